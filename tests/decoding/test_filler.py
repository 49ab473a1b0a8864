"""Filling masks, against transformers, brute force, and a table of cities made by hand."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import tokenizers as hf
import torch
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers
from torch import Tensor, nn

from bert_pair import bert_pair
from lmlab.decoding.masked_text import MaskedText, encode_masked_text
from lmlab.language_model import LanguageModel
from lmlab.layers.padding import gather_positions
from lmlab.models import LINEAGE
from lmlab.models.abilities import FillsMasks, require
from lmlab.models.model import EncoderModel, Filler, Output, TokenModelConfig
from lmlab.tokenizers import Tokenizer, train
from lmlab.tokenizers.frames import Frame
from standins import TEXT, random_model
from tolerances import of_blocks

pytestmark = pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning")
ROLES = ("pad", "cls", "sep", "mask")
SHAPE: dict[str, Any] = {"width": 24, "heads": 3, "layers": 2, "window": 40, "dropout": 0.0}


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train("wordpiece:120", [TEXT])


def encode(text: str, tokenizer: Tokenizer) -> MaskedText:
    specials = {"cls": tokenizer.special("cls"), "sep": tokenizer.special("sep")}
    return encode_masked_text(text, tokenizer, Frame(templates=LINEAGE["bert"].frame, specials={"tokens": specials}))


@torch.no_grad()
def scores_at(lm: LanguageModel, tokens: list[int], places: list[int]) -> Tensor:
    """The log-probabilities at places of one text [N, V]."""
    filler = require(lm.model, FillsMasks)
    return filler.fill(tokens=torch.tensor([tokens]), at=torch.tensor([places]))[0].double().log_softmax(-1)


# The model


def test_the_distribution_of_each_mask_is_that_of_transformers(tokenizer: Tokenizer) -> None:
    transformers = pytest.importorskip("transformers")
    model, reference = bert_pair(tokenizer.vocabulary, width=24, heads=3, layers=2, window=40)
    lm = LanguageModel(model=model, tokenizer=tokenizer)
    wrapped = transformers.PreTrainedTokenizerFast(
        tokenizer_object=hf.Tokenizer.from_str(tokenizer.engine.to_str()), mask_token="[MASK]"
    )
    text = "The [MASK] sat on the [MASK]."
    ids = [tokenizer.special("cls"), *wrapped(text, add_special_tokens=False).input_ids, tokenizer.special("sep")]
    places = [place for place, token in enumerate(ids) if token == tokenizer.special("mask")]
    with torch.no_grad():
        expected = reference(torch.tensor([ids])).logits[0, places].softmax(-1)
    filled = lm.fill(text, top=tokenizer.vocabulary)
    for candidates, probabilities in zip(filled.candidates, expected, strict=True):
        best = probabilities.topk(len(probabilities))
        assert [p for _, p in candidates] == pytest.approx(best.values.tolist(), abs=1e-5)
        shown = {tokenizer.show(token): p for token, p in enumerate(probabilities.tolist())}
        assert {token: p for token, p in candidates} == pytest.approx(shown, abs=1e-5)  # noqa: C416
    assert sum(p for _, p in filled.candidates[0]) == pytest.approx(1)


def chain(lm: LanguageModel, tokens: list[int], places: list[int], filling: tuple[int, ...], order: str) -> float:
    """log P of a filling, one mask after another, as the definition has it."""
    tokens, total, left = list(tokens), 0.0, list(range(len(places)))
    while left:
        scores = scores_at(lm, tokens, places)
        fixed = {"left-to-right": left[0], "right-to-left": left[-1], "2,1": left[-1]}
        blank = fixed.get(order, max(left, key=lambda blank: scores[blank].max().item()))
        total += scores[blank, filling[blank]].item()
        tokens[places[blank]] = filling[blank]
        left.remove(blank)
    return total


@pytest.fixture(scope="module")
def small() -> LanguageModel:
    """A model with few tokens, so that all fillings can be tried."""
    return random_model("bert", train("characters", ["abcde"]).with_specials(ROLES), std=0.6, **{**SHAPE, "width": 12})


@pytest.mark.parametrize("order", ["left-to-right", "confident", "right-to-left", "2,1"])
@pytest.mark.parametrize("text", ["a[MASK]b[MASK]c", "[MASK][MASK]"])
def test_joint_filling_finds_what_brute_force_finds(small: LanguageModel, text: str, order: Any) -> None:
    tokenizer = small.tokenizer
    masked = encode(text, tokenizer)
    every = {
        filling: chain(small, masked.tokens, masked.positions, filling, order)
        for filling in itertools.product(range(tokenizer.vocabulary), repeat=2)
    }
    best = sorted(every, key=lambda filling: -every[filling])[:6]
    found = small.fill(text, top=6, jointly=True, order=order, beams=tokenizer.vocabulary)
    assert [filling.tokens for filling in found.fillings] == [tuple(map(tokenizer.show, filling)) for filling in best]
    assert [filling.joint for filling in found.fillings] == pytest.approx([math.exp(every[f]) for f in best], rel=1e-4)
    if order != "confident":
        assert sum(map(math.exp, every.values())) == pytest.approx(1, abs=1e-5)


def test_independent_filling_is_the_product_of_marginals(small: LanguageModel) -> None:
    tokenizer, text = small.tokenizer, "[MASK]ab[MASK]c[MASK]"
    masked = encode(text, tokenizer)
    scores = scores_at(small, masked.tokens, masked.positions)
    every = {
        filling: sum(scores[blank, token].item() for blank, token in enumerate(filling))
        for filling in itertools.product(range(tokenizer.vocabulary), repeat=3)
    }
    best = sorted(every, key=lambda filling: -every[filling])[:9]
    found = small.fill(text, top=9).fillings
    assert [filling.tokens for filling in found] == [tuple(map(tokenizer.show, filling)) for filling in best]
    assert [filling.independent for filling in found] == pytest.approx([math.exp(every[f]) for f in best], rel=1e-4)
    joint = [chain(small, masked.tokens, masked.positions, filling, "left-to-right") for filling in best]
    assert [filling.joint for filling in found] == pytest.approx([math.exp(each) for each in joint], rel=1e-4)


def test_one_mask_is_the_same_jointly(small: LanguageModel) -> None:
    rounding = of_blocks(2, width=12, growth=8)
    alone, joint = small.fill("ab[MASK]d"), small.fill("ab[MASK]d", jointly=True)
    assert [each.tokens for each in alone.fillings] == [each.tokens for each in joint.fillings]
    for filling, candidate in zip(alone.fillings, alone.candidates[0], strict=True):
        assert filling.tokens == (candidate.token,)
        assert filling.independent == pytest.approx(candidate.probability, rel=rounding)
        assert filling.joint == pytest.approx(candidate.probability, rel=rounding)


class Cities(EncoderModel):
    """Two names that go together: New York 0.3, New Delhi 0.25, Golden Gate 0.45."""

    PAIRS = {("New", "York"): 0.3, ("New", "Delhi"): 0.25, ("Golden", "Gate"): 0.45}  # noqa: RUF012

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.config = TokenModelConfig(vocabulary=tokenizer.vocabulary)
        self.names = {name: tokenizer.encode(name)[0] for pair in self.PAIRS for name in pair}
        self.mask, self.output = tokenizer.special("mask"), _AsIs()
        self.register_parameter("somewhere", nn.Parameter(torch.zeros(1)))

    def offers(self) -> tuple[object, ...]:
        return self, Filler(self, self.output)

    def forward(self, tokens: Tensor, *, at: Tensor, **inputs: Any) -> Output:
        hidden = torch.full((*tokens.shape, self.vocabulary), 1e-9)
        for row, place in itertools.product(range(len(tokens)), range(tokens.shape[1])):
            if tokens[row, place] == self.mask:
                first = place == 3  # [CLS] I saw
                for (one, two), p in self.PAIRS.items():
                    here, other = (one, two) if first else (two, one)
                    there = tokens[row, place + 1] if first else tokens[row, place - 1]
                    if there in (self.mask, self.names[other]):
                        hidden[row, place, self.names[here]] += p
        return Output(gather_positions(hidden.log(), at), None)


class _AsIs(nn.Module):
    def logits(self, hidden: Tensor) -> Tensor:
        return hidden


def test_masks_that_go_together_are_why_it_matters() -> None:
    tokenizer = train("words", ["I saw New York Delhi Golden Gate ."]).with_specials(ROLES)
    lm = LanguageModel(model=Cities(tokenizer), tokenizer=tokenizer)
    text = "I saw [MASK] [MASK] ."
    alone, joint = lm.fill(text).fillings[0], lm.fill(text, jointly=True).fillings[0]
    assert alone.text == "I saw New Gate ."
    assert alone.independent == pytest.approx(0.55 * 0.45, abs=1e-6)
    assert alone.joint < 1e-6
    assert joint.text == "I saw Golden Gate ."
    assert joint.joint == pytest.approx(0.45, abs=1e-6)
    assert joint.independent == pytest.approx(0.45 * 0.45, abs=1e-6)


def test_electra_fills_with_its_generator(tokenizer: Tokenizer) -> None:
    lm = random_model("electra", tokenizer, **SHAPE, generator=1 / 3)
    generator: Any = lm.model.generator  # type: ignore[attr-defined]
    found, alone = lm.fill("the [MASK] sat"), LanguageModel(model=generator, tokenizer=tokenizer).fill("the [MASK] sat")
    assert found.by_generator
    assert not alone.by_generator
    assert found.candidates == alone.candidates


# The text


PIECES = ["<unk>", "▁", *"abcdehlmnorstw,.!-", "▁the", "▁cat", "▁mat", "cat", "▁sat", "▁on", "▁the▁"]


def published(name: str) -> Tokenizer:
    """Tokenizers that add a space to the beginning of a text, in each of the ways that are in use."""
    engine = hf.Tokenizer(models.Unigram([(piece, -1.0 * len(PIECES) / len(piece)) for piece in PIECES], unk_id=0))
    engine.decoder = decoders.Metaspace()
    if name == "t5":
        engine.pre_tokenizer = pre_tokenizers.Metaspace()
    elif name == "xlm-r":
        engine.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    elif name == "llama":
        engine.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        replace = decoders.Replace("▁", " ")
        engine.decoder = decoders.Sequence([replace, decoders.Fuse(), decoders.Strip(" ", left=1, right=0)])
    else:
        engine = hf.Tokenizer.from_str(train("bpe:300", [TEXT]).engine.to_str())
        engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    return Tokenizer(engine).with_specials(ROLES)


CARRY = ["bpe:300", "unigram:300", "t5", "xlm-r", "llama", "prefixed"]
TOKENIZERS = ["characters", "bytes", "words", "wordpiece:120", *CARRY]


def tokenizer_of(spec: str) -> Tokenizer:
    if spec in ("t5", "xlm-r", "llama", "prefixed"):
        return published(spec)
    return train(spec, [TEXT]).with_specials(ROLES)


@pytest.mark.parametrize("spec", TOKENIZERS)
@pytest.mark.parametrize(
    "text",
    [
        "the [MASK] sat on the mat .",
        "[MASK] sat on the [MASK]",
        "the [MASK] [MASK] on",
        "a cat, the [MASK].",
        " the [MASK] sat\non the [MASK] .",
    ],
)
def test_the_parts_have_the_tokens_of_the_whole_text(spec: str, text: str) -> None:
    """What is left when the tokens of a word are taken out, with the space before it where tokens carry that."""
    tokenizer = tokenizer_of(spec)
    text = text.replace(".", " .") if spec == "words" else text
    word = "c" if spec in ("characters", "bytes") else "cat"
    stateful = spec in CARRY
    parts, filled, spans = text.split("[MASK]"), "", []
    for part in parts[:-1]:
        filled += part
        spans.append((len(filled) - (stateful and filled.endswith(" ")), len(filled) + len(word)))
        filled += word
    filled += parts[-1]
    encoding = tokenizer.engine.encode(filled, add_special_tokens=False)
    assert encoding.ids == tokenizer.encode(filled)
    expected: list[int] = []
    seen: set[int] = set()
    for token, (first, end) in zip(encoding.ids, encoding.offsets, strict=True):
        blanks = [i for i, span in enumerate(spans) if first < span[1] and end > span[0]]
        expected += [tokenizer.special("mask") for i in blanks if i not in seen] if blanks else [token]
        seen.update(blanks)
    masked = encode(text, tokenizer)
    assert masked.tokens == [tokenizer.special("cls"), *expected, tokenizer.special("sep")]
    assert [masked.tokens[place] for place in masked.positions] == [tokenizer.special("mask")] * (len(parts) - 1)


def test_a_mask_is_read_as_roberta_reads_it(shared_data: Any) -> None:
    """Their mask token takes the white space before it with it."""
    transformers = pytest.importorskip("transformers")
    tokenizer = Tokenizer.load(shared_data("tokenizers") / "gpt2").with_specials(ROLES)
    engine = hf.Tokenizer.from_str(Tokenizer.load(shared_data("tokenizers") / "gpt2").engine.to_str())
    mask = AddedToken("<mask>", lstrip=True, special=True)
    wrapped = transformers.PreTrainedTokenizerFast(tokenizer_object=engine, mask_token=mask)
    for text in (
        "He drove the yellow <mask> into the front of our house.",
        "<mask> is <mask> <mask>.",
        "un<mask>able, (<mask>) and <mask>'s",
    ):
        theirs = wrapped(text, add_special_tokens=False).input_ids
        ours = encode(text, tokenizer).tokens[1:-1]
        assert [wrapped.mask_token_id if token == tokenizer.special("mask") else token for token in ours] == theirs
    kept = encode("a\n[MASK]", tokenizer).tokens  # theirs would lose the end of the line
    assert tokenizer.decode(kept[1:-2]) == "a\n"


def test_a_mask_may_be_written_in_three_ways(tokenizer: Tokenizer) -> None:
    theirs = hf.Tokenizer.from_str(train("bpe:300", [TEXT]).engine.to_str())
    theirs.add_special_tokens(["<s>", "</s>", "<mask>"])
    for made in (tokenizer, Tokenizer(theirs)):
        first, second = encode("the [MASK] sat", made), encode("the <mask> sat", made)
        assert first.tokens == second.tokens
        assert len(first.positions) == 1
    assert Tokenizer(theirs).special("mask") in encode("a [MASK]", Tokenizer(theirs)).tokens


class Says(EncoderModel):
    """Fills every mask with the same token."""

    def __init__(self, tokenizer: Tokenizer, token: int) -> None:
        super().__init__()
        self.config, self.token, self.output = TokenModelConfig(vocabulary=tokenizer.vocabulary), token, _AsIs()
        self.register_parameter("somewhere", nn.Parameter(torch.zeros(1)))

    def offers(self) -> tuple[object, ...]:
        return self, Filler(self, self.output)

    def forward(self, tokens: Tensor, *, at: Tensor, **inputs: Any) -> Output:
        return Output(torch.nn.functional.one_hot(at * 0 + self.token, self.vocabulary) * 9.0, None)


@pytest.mark.parametrize(
    ("spec", "piece", "text", "expected"),
    [
        ("wordpiece:120", "cat", "The [MASK] sat, [MASK]!", "The cat sat, cat!"),
        ("wordpiece:120", "##t", "A ca [MASK] (sat).", "A cat (sat)."),
        ("wordpiece:120", "[SEP]", "A [MASK] sat.", "A [SEP] sat."),
        ("bpe:300", "Ġcat", "The [MASK] sat ([MASK])", "The cat sat ( cat)"),
        ("bpe:300", "t", "The ca[MASK] sa [MASK].", "The cat sat."),
        ("words", "cat", "the [MASK]  sat", "the cat  sat"),
        ("words", "<eos>", "the [MASK] sat", "the\n sat"),
        ("characters", " ", "a[MASK]cat", "a cat"),
        ("t5", "▁cat", "the [MASK]. [MASK]", "the cat. cat"),
        ("xlm-r", "▁cat", "the [MASK]. [MASK]", "the cat. cat"),
        ("llama", "cat", "the [MASK]. [MASK]", "thecat.cat"),
        ("prefixed", "Ġcat", "[MASK], the [MASK].", "cat, the cat."),
    ],
)
def test_the_filled_text_is_the_users_own(spec: str, piece: str, text: str, expected: str) -> None:
    tokenizer = tokenizer_of(spec)
    token = tokenizer.engine.token_to_id(piece)
    assert token is not None
    lm = LanguageModel(model=Says(tokenizer, token), tokenizer=tokenizer)
    assert lm.fill(text, top=1).fillings[0].text == expected


# What is refused


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        ("the cat sat", {}, r"no mask: write \[MASK\] in place of a token, as in"),
        ("", {}, "no mask"),
        ("the [MASK]", {"top": 0}, "top = 0"),
        ("the [MASK]", {"beams": 0, "jointly": True}, "beams = 0"),
        ("the [MASK]", {"order": "random"}, "allowed: left-to-right, confident"),
        ("[MASK] the [MASK]", {"order": "2,2"}, "order 2,2 is not a permutation of the masks: name each from 1 to 2"),
        ("[MASK] the [MASK]", {"order": (1, 2, 3)}, "order 1,2,3 is not a permutation of the masks"),
        ("the [MASK] " + "cat " * 50, {}, r"has 54 tokens with \[CLS\] and \[SEP\], .* at most 40: shorten"),
    ],
)
def test_what_cannot_be_filled_is_refused(tokenizer: Tokenizer, text: str, settings: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        random_model("bert", tokenizer, **SHAPE).fill(text, **settings)


def test_models_that_fill_nothing_say_what_to_use(tokenizer: Tokenizer) -> None:
    text = "the [MASK]"
    with pytest.raises(
        ValueError, match=r"gpt2 is a causal .* cannot predict masked tokens.*lmlab generate.* bert, roberta"
    ):
        random_model("gpt2", tokenizer, **SHAPE).fill(text)
    with pytest.raises(ValueError, match=r"transformer is an encoder–decoder; .*lmlab translate"):
        random_model("transformer", tokenizer, width=12, heads=2).fill(text)
    with pytest.raises(ValueError, match=r"electra is a replaced-token detector; .*lmlab embed.* bert, roberta"):
        random_model("electra", tokenizer, **SHAPE, parts="discriminator", generator=1 / 3).fill(text)
    headless = random_model("bert", tokenizer, **SHAPE, head=False)
    with pytest.raises(ValueError, match=r"cannot predict masked tokens"):
        headless.fill(text)
    with pytest.raises(ValueError, match="cannot predict masked tokens"):
        headless.score("the cat")
    with pytest.raises(ValueError, match="no token for mask"):
        LanguageModel(model=random_model("bert", tokenizer, **SHAPE).model, tokenizer=train("bpe:300", [TEXT])).fill(
            text
        )
