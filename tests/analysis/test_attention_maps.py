"""Attention by layer and head: equal to transformers', exact for every system that has it, statistics by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bert_pair import bert_pair
from lmlab.analysis.alignment import attention_names
from lmlab.analysis.attention import Attention, Links, Rollout, read_attention, self_attention_names
from lmlab.language_model import LanguageModel, load
from lmlab.layers.watching import watching
from lmlab.models import LINEAGE, load_class, systems_that_read
from lmlab.models.abilities import FillsMasks, ability
from lmlab.models.model import EncoderDecoder
from lmlab.tokenizers import train
from standins import TEXT, random_model
from tolerances import of_blocks
from translators import write_translator

pytestmark = pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning")
SHAPE = {"width": 24, "heads": 3, "layers": 3, "window": 40}
ATTENTIVE = [
    *("attention-lm", "gpt", "gpt2", "transformer-xl", "bert", "roberta", "albert", "electra"),
    *("xlnet", "reformer", "llama", "music-transformer"),
]


def test_weights_are_those_of_transformers() -> None:
    torch.manual_seed(0)
    tokenizer = train("wordpiece:120", [TEXT])
    model, reference = bert_pair(tokenizer.vocabulary, **SHAPE)
    lm = LanguageModel(model=model, tokenizer=tokenizer)
    found = read_attention(lm, "the cat sat on the mat .")["self"]
    reference.set_attn_implementation("eager")
    row = [tokenizer.special("cls"), *tokenizer.encode("the cat sat on the mat ."), tokenizer.special("sep")]
    with torch.no_grad():
        theirs = reference(torch.tensor([row]), output_attentions=True).attentions
    expected = torch.cat(theirs).numpy()  # [L, H, T, T]
    assert found.weights.shape == expected.shape == (3, 3, len(row), len(row))
    assert np.abs(found.weights - expected).max() < of_blocks(3, width=24, growth=8)
    assert found.special == [True, *[False] * (len(row) - 2), True]


@pytest.mark.parametrize("name", ATTENTIVE)
def test_the_watched_pass_is_the_fused_one(name: str) -> None:
    torch.manual_seed(0)
    tokenizer = train("wordpiece:120", [TEXT])
    known = load_class(name).Config.model_fields
    shape = {
        **SHAPE,
        "inner": 30,
        "embedding_width": 8,
        "tricks": "pre",
        "dropout": 0.0,
        "generator": 1.0,
        "key_value_heads": 1,
    }
    lm = random_model(name, tokenizer, std=0.1, **{key: value for key, value in shape.items() if key in known})
    found = read_attention(lm, "the cat sat on the mat .")["self"]
    layers, _, queries, keys = found.weights.shape
    assert (layers, queries, keys) == (3, len(found.queries), len(found.queries))
    assert np.allclose(found.weights.sum(-1), 1, atol=1e-5)
    hidden = read_attention(lm, "the cat sat on the mat .", masked=[2])["self"]
    masks = ability(lm.model, FillsMasks) is not None
    assert hidden.removed == (() if masks else ((2, found.queries[2]),))
    assert hidden.weights.shape == (layers, found.weights.shape[1], *[queries - (not masks)] * 2)
    tokens = torch.arange(9)[None]
    with torch.no_grad():
        plain = lm.model(tokens).hidden
        with watching(lm.model, *self_attention_names(lm.model)):
            watched = lm.model(tokens).hidden
    assert torch.allclose(plain, watched, atol=float(plain.abs().max()) * of_blocks(3, width=24, growth=8))


def test_every_system_with_attention_is_covered() -> None:
    """A new system that calls its weights `probabilities` is in the list above, or is an encoder-decoder."""
    for name in systems_that_read("text"):
        if name == "ngram" or issubclass(load_class(name), EncoderDecoder):
            continue
        with torch.device("meta"):
            cls = load_class(name)
            model = cls(cls.Config(**{**next(iter(LINEAGE[name].sizes.values())), "vocabulary": 50}))
        if self_attention_names(model) and name not in ("mbert", "xlm-r"):
            assert name in ATTENTIVE


@pytest.mark.parametrize("kind", ["transformer", "seq2seq", "bart"])
def test_translators_have_attention_of_three_kinds(tmp_path, kind: str) -> None:
    size = {"width": 16, "layers": 2, "dropout": 0.0}
    size |= {"hidden": 16} if kind == "seq2seq" else {"heads": 2, "inner": 24}
    lm = load(write_translator(tmp_path / "run", kind=kind, size=size))
    found = read_attention(lm, "the cat sat .", target="die katze sass .")
    cross = found["cross"]
    (alignment,) = lm.alignments("the cat sat .", ["die katze sass ."])
    assert cross.keys == alignment.source
    assert cross.queries == alignment.target
    assert np.allclose(cross.weights[-1].mean(0), alignment.weights, atol=1e-5)
    assert set(found) == ({"cross"} if kind == "seq2seq" else {"encoder", "decoder", "cross"})
    assert len(attention_names(lm.model)) == len(cross.weights)
    if kind != "seq2seq":
        causal = found["decoder"].weights
        assert np.allclose(np.triu(causal, 1), 0)
        assert read_attention(lm, "the cat sat .")["cross"].keys == cross.keys  # it writes its own target


def test_statistics_by_hand() -> None:
    weights = np.array([[[[1, 0, 0], [0.5, 0.5, 0], [0.25, 0.5, 0.25]], np.eye(3)]], np.float32)  # [1, 2, 3, 3]
    found = Attention("self", ["a", "b", "c"], ["a", "b", "c"], weights, [True, False, False])
    first, second = found.heads()
    assert first.entropy == pytest.approx((0 + 1 + 1.5) / 3)
    assert first.distance == pytest.approx((0 + 0.5 + 0.25 * 2 + 0.5) / 3)
    assert first.itself == pytest.approx((1 + 0.5 + 0.25) / 3)
    assert first.previous == pytest.approx(0.5)
    assert first.first == pytest.approx(first.special) == pytest.approx(1.75 / 3)
    assert (second.entropy, second.itself) == (0.0, 1.0)
    assert found.looking("c", "b")[0] == (0, 0, 0.5)
    rolled = 0.5 * weights[0].mean(0) + 0.5 * np.eye(3)
    assert np.allclose(Rollout.of(found).weights, rolled)
    assert Links.of(found, "b", "a").links[0].weight == 0.5


def test_rollout_is_the_product_over_layers() -> None:
    generator = np.random.default_rng(0)
    weights = generator.dirichlet(np.ones(4), size=(3, 2, 4)).astype(np.float32)  # [L, H, T, T]
    found = Attention("self", list("abcd"), list("abcd"), weights)
    expected = np.zeros((4, 4))
    mixed = [0.5 * layer.mean(0) + 0.5 * np.eye(4) for layer in weights]
    for i in range(4):  # all paths from place i of the last layer down
        for j in range(4):
            for k in range(4):
                expected[i] += mixed[2][i, j] * mixed[1][j, k] * mixed[0][k]
    assert np.allclose(found.rollout(), expected, atol=1e-6)


def test_what_cannot_be_shown_is_reported() -> None:
    tokenizer = train("words", [TEXT])
    lm = random_model("lstm", tokenizer, width=8, hidden=8, layers=1)
    with pytest.raises(ValueError, match="lstm has no attention; look at its cells"):
        read_attention(lm, "the cat")
    lm = random_model("gpt2", tokenizer, width=8, heads=2, layers=1, window=4)
    with pytest.raises(ValueError, match="has 7 tokens, and the model reads at most 4"):
        read_attention(lm, "the cat sat on the mat")
    found = read_attention(lm, "the cat")["self"]
    with pytest.raises(ValueError, match="layer = 1: there are 1"):
        found.of(layer=1)
    with pytest.raises(ValueError, match="no token is 'dog'; there are: <eos> the cat"):
        found.looking("cat", "dog")
    assert "<svg" in found._repr_html_()
