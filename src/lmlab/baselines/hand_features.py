"""A classifier over six features that a person made up, as logistic regression or with one hidden layer.

The sentiment classifier that courses begin with (Jurafsky & Martin, "Speech and Language Processing", chapter 5): words
of a positive and a negative list, "no", pronouns of the first and second person, "!", and the length. The lists are
written here, or learnt: the words that speak most for one of two classes.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lmlab.baselines.baseline import Floats, Predictions, check_examples
from lmlab.data.readers.examples import Example
from lmlab.metrics.classification import positive_label

NAMES = ("positive words", "negative words", '"no"', "1st and 2nd person pronouns", '"!"', "log of the word count")
TOKEN = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")
CHANCE = 2.0
"""Standard errors within which the odds of a word say nothing."""
PRONOUNS = frozenset(
    TOKEN.findall(
        """
    i me my mine myself we us our ours ourselves you your yours yourself yourselves i'm i've i'll i'd we're we've
    we'll we'd you're you've you'll you'd
    """
    )
)
POSITIVE = frozenset(
    TOKEN.findall(
        """
    admirable amazing amusing appealing astonishing awesome beautiful beautifully best better brilliant brilliantly
    captivating charm charming clever comforting compelling convincing cool delicious delight delightful dazzling
    eloquent engaging enjoy enjoyable enjoyed enjoys entertaining excellent exceptional exciting exhilarating
    extraordinary fantastic fascinating favorite favourite fine flawless fresh friendly fun funny generous genuine
    glad good gorgeous great happy heartfelt helpful hilarious honest imaginative impressive incredible ingenious
    insightful inspiring intelligent interesting inventive irresistible joy joyous kind likable lively love loved
    lovely loves lovingly magnificent marvelous masterful masterpiece memorable moving nice original outstanding
    perfect perfectly pleasant pleasing pleasure poignant powerful recommend recommended refreshing refreshingly
    remarkable rewarding rich riveting satisfying sensitive sharp sincere skillful smart solid spectacular splendid
    strong stunning stylish sublime superb sweet sympathetic tender terrific thoughtful thrilling touching triumph
    unforgettable unique uplifting vivid warm warmth well winning witty wonderful wonderfully worth worthwhile
    """
    )
)
NEGATIVE = frozenset(
    TOKEN.findall(
        """
    absurd amateurish annoying appalling atrocious awful awkward bad badly banal bland bloated bore bored boring
    broken cheap cheesy clichéd clichés cliched cliches clumsy cold confused confusing contrived crap crude cynical
    dead depressing derivative dire disappointing disappointment disaster disgusting dreadful dreary dull dumb
    embarrassing empty excruciating exhausting fail failed fails failure fake flat flawed forced forgettable
    formulaic frustrating generic hackneyed hate hated hokey hollow horrible idiotic incoherent inept insipid
    insulting irritating joyless lackluster lame lazy lifeless loud ludicrous meaningless mediocre mess messy
    mindless miserable misguided monotonous muddled nasty obnoxious offensive overlong overwrought pathetic
    pointless poor poorly predictable pretentious repetitive ridiculous rude sad second-rate shallow shoddy silly
    slow sloppy stale stupid stupidity superficial tedious terrible thin tired tiresome trite ugly unbearable uneven
    unfunny unfortunately uninspired uninteresting unpleasant unwatchable useless vapid waste wasted weak worse
    worst worthless wrong
    """
    )
)


class Lexicon(NamedTuple):
    """Words that speak for one class, and for the other."""

    positive: frozenset[str]
    negative: frozenset[str]


WRITTEN = Lexicon(POSITIVE, NEGATIVE)


def six_features(text: str, *, lexicon: Lexicon = WRITTEN) -> Floats:
    """x₁ … x₆ of a text, in the order of `NAMES`; as in the book, marks of punctuation count as words."""
    words = TOKEN.findall(text.lower().replace("’", "'"))
    return np.array(
        [
            sum(word in lexicon.positive for word in words),
            sum(word in lexicon.negative for word in words),
            "no" in words,
            sum(word in PRONOUNS for word in words),
            "!" in words,
            math.log(max(len(words), 1)),
        ],
        dtype=np.float64,
    )


def unit(inputs: Sequence[float], *, weights: Sequence[float], bias: float) -> tuple[float, float]:
    """One unit of a neural net: z = w · x + b and y = σ(z) = 1 / (1 + e^−z)."""
    z = math.fsum(w * x for w, x in zip(weights, inputs, strict=True)) + bias
    return z, 1 / (1 + math.exp(-z)) if z >= 0 else math.exp(z) / (1 + math.exp(z))


def learn_lexicon(train: Sequence[Example], *, positive: str, size: int = 200) -> Lexicon:
    """The words that speak most for and against a class: by log odds, each word seen once more in both, over its error.

    Monroe et al. 2008, "Fightin' Words": dividing by the standard error keeps rare words, whose odds are chance, out.
    """
    inside: Counter[str] = Counter()
    outside: Counter[str] = Counter()
    for each in train:
        (inside if each.label == positive else outside).update(TOKEN.findall(_text(each).lower()))
    words = sorted(word for word in inside.keys() | outside.keys() if word[0].isalpha())
    sizes = inside.total() + len(words), outside.total() + len(words)
    odds = {}
    for word in words:
        a, b = inside[word] + 1, outside[word] + 1
        difference = math.log(a / (sizes[0] - a)) - math.log(b / (sizes[1] - b)) if min(sizes) > max(a, b) else 0.0
        odds[word] = difference / math.sqrt(1 / a + 1 / b)
    order = sorted(words, key=lambda word: (-odds[word], word))
    return Lexicon(
        frozenset(word for word in order[:size] if odds[word] > CHANCE),
        frozenset(word for word in order[-size:] if odds[word] < -CHANCE),
    )


class HandFeatures:
    """Softmax over classes from the six features: straight (`hidden=0`), or through a layer of tanh units."""

    name = "hand_features"

    def __init__(self, *, hidden: int = 0, lexicon: Literal["written", "learnt"] = "written", seed: int = 0) -> None:
        if lexicon not in ("written", "learnt"):
            raise ValueError(f"lexicon={lexicon!r} must be 'written' or 'learnt'")
        self._hidden, self._kind, self._seed = hidden, lexicon, seed

    def fit(self, train: Sequence[Example], *, valid: Sequence[Example] | None = None) -> None:
        check_examples(train)
        self.labels: list[str] = sorted({each.label for each in train})
        self.lexicon = WRITTEN
        if self._kind == "learnt":
            if len(self.labels) != 2:
                raise ValueError(
                    f"word lists are learnt for two classes, and there are {len(self.labels)}: "
                    "give lexicon='written', or use a bag of words"
                )
            self.lexicon = learn_lexicon(train, positive=positive_label(self.labels) or self.labels[1])
        features = self._features(train)
        self._mean, self._spread = features.mean(0), features.std(0, correction=0).clamp_min(1e-6)
        self.net = self._make_net()
        place = {label: i for i, label in enumerate(self.labels)}
        targets = torch.tensor([place[each.label] for each in train])
        inputs = (features - self._mean) / self._spread
        parameters = list(self.net.parameters())
        optimizer = torch.optim.LBFGS(parameters, max_iter=100, line_search_fn="strong_wolfe")

        def closure() -> Tensor:
            optimizer.zero_grad()
            small = torch.stack([each.square().sum() for each in parameters if each.ndim == 2]).sum()
            loss: Tensor = F.cross_entropy(self.net(inputs), targets) + small / (2 * len(train))
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        optimizer.step(closure)  # type: ignore[no-untyped-call]

    @torch.no_grad()
    def predict(self, examples: Sequence[Example]) -> Predictions:
        scores = self.net((self._features(examples) - self._mean) / self._spread)
        sure, best = scores.softmax(1).max(1)
        return Predictions([self.labels[i] for i in best.tolist()], sure.numpy())

    def _make_net(self) -> nn.Sequential:
        generator = torch.Generator().manual_seed(self._seed)
        widths = [len(NAMES), *([self._hidden] if self._hidden else []), len(self.labels)]
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layer = nn.Linear(before, after, dtype=torch.float64)
            with torch.no_grad():
                layer.weight.normal_(std=before**-0.5, generator=generator)
                layer.bias.zero_()
            layers += [layer, nn.Tanh()]
        return nn.Sequential(*layers[:-1])

    def _features(self, examples: Sequence[Example]) -> Tensor:
        rows = [six_features(_text(each), lexicon=self.lexicon) for each in examples]
        return torch.from_numpy(np.array(rows, dtype=np.float64).reshape(len(rows), len(NAMES)))


def _text(example: Example) -> str:
    a = example.a if isinstance(example.a, str) else " ".join(example.a)
    return a if example.b is None else f"{a} {example.b}"
