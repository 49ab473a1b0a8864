"""Vectors from any mix of layers, against transformers' hidden states and loops written out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bert_pair import bert_pair
from encoders import embedding_weights, renamed
from lmlab.analysis.embedding import Pool, find_words
from lmlab.analysis.layer_vectors import SEGMENT
from lmlab.language_model import LanguageModel
from lmlab.layers.layer_mix import select_layers
from lmlab.models import frame_of
from lmlab.models.model import EncoderModel
from lmlab.models.ngram import NGram
from lmlab.tokenizers import Tokenizer, train
from standins import TEXT, random_model
from tolerances import of_blocks

pytestmark = pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning", "ignore:too few n-grams")

TEXTS = ["the cat sat on the mat .", "a dog", "", "the dog ran to the log and the cat sat on the mat .", "a cat"]
SHAPE: dict[str, Any] = {"width": 24, "heads": 3, "layers": 3, "window": 40, "dropout": 0.0}


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train("wordpiece:120", [TEXT])


def rows_of(lm: LanguageModel, texts: list[str]) -> list[list[int]]:
    """The texts as their model should see them."""
    ids = [lm.tokenizer.encode(text) for text in texts]
    if isinstance(lm.model, EncoderModel):
        cls, sep = lm.tokenizer.special("cls"), lm.tokenizer.special("sep")
        return [[cls, *row, sep] for row in ids]
    return [[lm.tokenizer.boundary, *row] for row in ids]


# Against transformers


@torch.no_grad()
def hidden_states(reference: nn.Module, rows: list[list[int]]) -> tuple[list[Tensor], Tensor]:
    """Every layer of theirs for a padded batch [B, T, D], and the mask of the real tokens [B, T]."""
    lengths = torch.tensor([len(row) for row in rows])
    tokens = nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
    real = torch.arange(tokens.shape[1]) < lengths[:, None]
    return list(reference(tokens, attention_mask=real.long(), output_hidden_states=True).hidden_states), real


def combine(states: list[Tensor], layers: str | int) -> Tensor:
    """The choices of the deck, written out."""
    return {
        "last": lambda: states[-1],
        "first": lambda: states[0],
        "second-to-last": lambda: states[-2],
        "sum:all": lambda: states[1] + states[2] + states[3],
        "sum:-2:": lambda: states[2] + states[3],
        "concat:-2:": lambda: torch.cat([states[2], states[3]], -1),
        "concat:3,0": lambda: torch.cat([states[3], states[0]], -1),
        "mean:1:3": lambda: (states[1] + states[2]) / 2,
        "mix": lambda: (states[0] + states[1] + states[2] + states[3]) / 4,
        1: lambda: states[1],
        "-3": lambda: states[1],
    }[layers]()


CHOICES: list[str | int] = [
    "last",
    "first",
    "second-to-last",
    "sum:all",
    "sum:-2:",
    "concat:-2:",
    "concat:3,0",
    "mean:1:3",
    "mix",
    1,
    "-3",
]


@pytest.mark.parametrize("layers", CHOICES)
def test_bert_agrees_with_transformers_in_every_mix(tokenizer: Tokenizer, layers: str | int) -> None:
    model, reference = bert_pair(tokenizer.vocabulary, width=24, heads=3, layers=3, window=40)
    lm = LanguageModel(model=model, tokenizer=tokenizer)
    states, real = hidden_states(reference, rows_of(lm, TEXTS))
    expected = combine(states, layers)
    for found, vectors, length in zip(lm.embed(TEXTS, layers=layers), expected, real.sum(1).tolist(), strict=True):
        np.testing.assert_allclose(found.vectors, vectors[1 : length - 1].numpy(), atol=2e-5)
        assert len(found.tokens) == length - 2
    weights = real[..., None].float()
    pooled = {
        "mean": (expected * weights).sum(1) / weights.sum(1),
        "max": expected.masked_fill(~real[..., None], -torch.inf).amax(1),
        "cls": expected[:, 0],
    }
    for pool, values in pooled.items():
        values[[not text for text in TEXTS]] = 0.0  # by our own rule, the same for every model
        found_pooled = lm.embed(TEXTS, layers=layers, pool=pool)  # type: ignore[call-overload]
        np.testing.assert_allclose(found_pooled, values.numpy(), atol=2e-5)


@pytest.mark.parametrize("layers", CHOICES)
def test_gpt2_agrees_with_transformers(tokenizer: Tokenizer, layers: str | int) -> None:
    transformers = pytest.importorskip("transformers")
    lm = random_model("gpt2", tokenizer, **SHAPE)
    config = transformers.GPT2Config(
        vocab_size=tokenizer.vocabulary,
        n_embd=SHAPE["width"],
        n_head=SHAPE["heads"],
        n_layer=SHAPE["layers"],
        n_positions=SHAPE["window"],
    )
    reference = transformers.GPT2Model(config).eval()
    names = {"embedding.weight": "wte.weight", "positions.weight": "wpe.weight"}
    pairs = {"norm": "ln_f"}
    for i in range(SHAPE["layers"]):
        pairs |= {
            f"blocks.{i}.attention_norm": f"h.{i}.ln_1",
            f"blocks.{i}.attention.query_key_value": f"h.{i}.attn.c_attn",
            f"blocks.{i}.attention.projection": f"h.{i}.attn.c_proj",
            f"blocks.{i}.feed_forward_norm": f"h.{i}.ln_2",
            f"blocks.{i}.feed_forward.expand": f"h.{i}.mlp.c_fc",
            f"blocks.{i}.feed_forward.contract": f"h.{i}.mlp.c_proj",
        }
    names |= {f"{our}.{kind}": f"{their}.{kind}" for our, their in pairs.items() for kind in ("weight", "bias")}
    for our, their in names.items():
        source, target = lm.model.get_parameter(our), reference.get_parameter(their)  # type: ignore[attr-defined]
        target.data.copy_(source if source.shape == target.shape and source.ndim == 1 else _turned(our, source))
    states, real = hidden_states(reference, rows_of(lm, TEXTS))
    expected = combine(states, layers)
    for found, vectors, length in zip(lm.embed(TEXTS, layers=layers), expected, real.sum(1).tolist(), strict=True):
        np.testing.assert_allclose(found.vectors, vectors[1:length].numpy(), atol=2e-5)
    texts = [text for text in TEXTS if text]
    means = [found.vectors.mean(0) for found in lm.embed(texts, layers=layers)]
    np.testing.assert_allclose(lm.embed(texts, layers=layers, pool="mean"), np.stack(means), atol=1e-5)


def _turned(name: str, weight: Tensor) -> Tensor:
    """Their `Conv1D` keeps its weights transposed."""
    return weight if name.startswith(("embedding", "positions")) else weight.T


def test_albert_calls_its_one_block_again_and_again(tokenizer: Tokenizer) -> None:
    transformers = pytest.importorskip("transformers")
    lm = random_model("albert", tokenizer, **SHAPE, embedding_width=10)
    config = transformers.AlbertConfig(
        vocab_size=tokenizer.vocabulary,
        embedding_size=10,
        hidden_size=SHAPE["width"],
        num_attention_heads=SHAPE["heads"],
        num_hidden_layers=SHAPE["layers"],
        max_position_embeddings=SHAPE["window"],
        intermediate_size=4 * SHAPE["width"],
    )
    reference = transformers.AlbertModel(config, add_pooling_layer=False).eval()
    for parameter in reference.parameters():
        nn.init.normal_(parameter, std=0.3)
    theirs = reference.state_dict()
    layer = "encoder.albert_layer_groups.0.albert_layers.0"
    pairs = {
        "projection": "encoder.embedding_hidden_mapping_in",
        "blocks.0.attention.projection": f"{layer}.attention.dense",
        "blocks.0.attention_norm": f"{layer}.attention.LayerNorm",
        "blocks.0.feed_forward.expand": f"{layer}.ffn",
        "blocks.0.feed_forward.contract": f"{layer}.ffn_output",
        "blocks.0.feed_forward_norm": f"{layer}.full_layer_layer_norm",
    }
    weights = {**embedding_weights(theirs, "embeddings"), **renamed(theirs, pairs)}
    for kind in ("weight", "bias"):
        parts = [theirs[f"{layer}.attention.{part}.{kind}"] for part in ("query", "key", "value")]
        weights[f"blocks.0.attention.query_key_value.{kind}"] = torch.cat(parts)
    left_out = lm.model.load_state_dict(weights, strict=False)  # type: ignore[attr-defined]
    assert all(name.startswith(("output", "pooler", "pair")) for name in left_out.missing_keys)
    assert not left_out.unexpected_keys
    states, real = hidden_states(reference, rows_of(lm, TEXTS))
    for number, state in enumerate(states):
        for found, vectors, length in zip(lm.embed(TEXTS, layers=number), state, real.sum(1).tolist(), strict=True):
            np.testing.assert_allclose(found.vectors, vectors[1 : length - 1].numpy(), atol=2e-5)


# The other families


@pytest.mark.parametrize("connections", ["none", "residual", "highway", "dense"])
@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
@pytest.mark.parametrize("kernel", ["fused", "readable"])
def test_recurrent_layers_are_those_of_a_loop_by_hand(
    tokenizer: Tokenizer, kind: str, connections: str, kernel: str
) -> None:
    lm = random_model(kind, tokenizer, width=12, hidden=20, layers=3, connections=connections, kernel=kernel)
    model: Any = lm.model
    (row,) = rows_of(lm, [TEXTS[0]])
    with torch.no_grad():
        below = [model.embedding(torch.tensor([row]))]
        for number, layer in enumerate(model.recurrent.layers):
            x = torch.cat(below, -1) if connections == "dense" else below[-1]
            y, _ = layer.unroll(x, layer.start(1))
            if number and connections == "residual":
                y = x + y
            if number and connections == "highway":
                t = model.recurrent.gates[number - 1](x).sigmoid()
                y = t * y + (1 - t) * x
            below.append(y)
    for number, expected in enumerate(below):
        (found,) = lm.embed(TEXTS[0], layers=number)
        np.testing.assert_allclose(found.vectors, expected[0, 1:].numpy(), atol=1e-5)
    (concat,) = lm.embed(TEXTS[0], layers="concat:0:")
    assert concat.vectors.shape == (len(row) - 1, 12 + 3 * 20)
    with pytest.raises(ValueError, match=r"widths 12, 20, 20, 20 cannot be added"):
        lm.embed(TEXTS[0], layers="mix")


@pytest.mark.parametrize(
    ("kind", "settings", "layers"),
    [
        ("nplm", {"width": 10, "hidden": 12, "order": 4}, 2),
        ("nplm", {"width": 10, "hidden": 12, "order": 4, "direct": True}, 2),
        ("bow", {"width": 10, "hidden": 12}, 2),
        ("attention-lm", {"width": 12, "heads": 2, "inner": 20, "window": 30}, 2),
        ("attention-lm", {"width": 12, "heads": 2, "layers": 3, "tricks": "pre", "window": 30}, 4),
        ("gpt", SHAPE, 4),
        ("transformer-xl", {"width": 12, "heads": 2, "layers": 3, "inner": 20, "dropout": 0.0}, 4),
    ],
)
def test_other_nets_begin_with_the_embeddings_and_end_with_what_they_predict_from(
    tokenizer: Tokenizer, kind: str, settings: dict[str, Any], layers: int
) -> None:
    lm = random_model(kind, tokenizer, **settings)
    model: Any = lm.model
    (row,) = rows_of(lm, [TEXTS[0]])
    tokens = torch.tensor([row])
    with torch.no_grad():
        last = model(tokens).hidden[0, 1:]
        if kind == "gpt":
            first = model.embed(tokens, 0)[0, 1:]
        elif kind == "attention-lm":
            places = 0 if model.positions is None else model.positions(0, tokens.shape[1])
            first = (model.embedding(tokens) + places)[0, 1:]
        else:
            first = model.embedding(tokens)[0, 1:] * (12**0.5 if kind == "transformer-xl" else 1)
    np.testing.assert_allclose(lm.embed(TEXTS[0])[0].vectors, last.numpy(), atol=1e-5)
    np.testing.assert_allclose(lm.embed(TEXTS[0], layers=layers - 1)[0].vectors, last.numpy(), atol=1e-5)
    np.testing.assert_allclose(lm.embed(TEXTS[0], layers="first")[0].vectors, first.numpy(), atol=1e-5)
    with pytest.raises(ValueError, match=rf"no layer {layers}: this model has the layers 0 \(embeddings\) to"):
        lm.embed(TEXTS[0], layers=layers)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("kind", ["transformer", "bart"])
def test_an_encoder_decoder_gives_its_encoder(tokenizer: Tokenizer, kind: str, norm: str) -> None:
    lm = random_model(kind, tokenizer, width=12, heads=2, layers=2, inner=20, norm=norm)
    model: Any = lm.model
    every = lm.embed(TEXTS, layers="concat:0:")
    for text, found in zip(TEXTS, every, strict=True):
        source = torch.tensor([[*tokenizer.encode(text), tokenizer.boundary]])
        with torch.no_grad():
            positions = model.encoder.positions(0, source.shape[1])
            x = model.encoder.embed(model.embedding(source) * model.scale, positions)
            last = model.read(source)
        expected = torch.cat([x, last], -1)[0, :-1]
        np.testing.assert_allclose(found.vectors[:, :12], expected[:, :12].numpy(), atol=1e-5)
        np.testing.assert_allclose(found.vectors[:, -12:], expected[:, 12:].numpy(), atol=1e-5)
        assert found.vectors.shape[1] == 3 * 12


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_a_recurrent_encoder_gives_each_of_its_layers(tokenizer: Tokenizer, cell: str, bidirectional: bool) -> None:
    lm = random_model("seq2seq", tokenizer, width=10, hidden=12, layers=2, cell=cell, bidirectional=bidirectional)
    encoder: Any = lm.model.encoder  # type: ignore[attr-defined]
    texts = [text for text in TEXTS if text]
    for text, found in zip(texts, lm.embed(texts, layers="concat:0:"), strict=True):
        with torch.no_grad():
            x = lm.model.embedding(torch.tensor([[*tokenizer.encode(text), tokenizer.boundary]]))  # type: ignore[attr-defined]
            below = [x]
            for number, layer in enumerate(encoder.ahead):
                y, _ = layer.unroll(below[-1], layer.start(1))
                if bidirectional:
                    back = encoder.back[number]
                    z, _ = back.unroll(below[-1].flip(1), back.start(1))
                    y = torch.cat([y, z.flip(1)], -1)
                below.append(y)
        np.testing.assert_allclose(found.vectors, torch.cat(below, -1)[0, :-1].numpy(), atol=1e-5)


def test_a_source_that_is_read_backwards_keeps_its_order(tokenizer: Tokenizer) -> None:
    lm = random_model("seq2seq", tokenizer, width=10, hidden=12, bidirectional=False)
    backwards = LanguageModel(
        model=lm.model, tokenizer=tokenizer, own_frame=frame_of(lm.model, tokenizer, backwards=True)
    )
    ids = tokenizer.encode(TEXTS[0])
    turned = tokenizer.decode(ids[::-1])
    assert tokenizer.encode(turned) == ids[::-1]
    (found,) = backwards.embed(TEXTS[0])
    np.testing.assert_allclose(found.vectors, lm.embed(turned)[0].vectors[::-1], atol=1e-6)
    assert found.tokens == [tokenizer.show(token) for token in ids]


def test_electra_gives_its_discriminator(tokenizer: Tokenizer) -> None:
    lm = random_model("electra", tokenizer, **SHAPE, embedding_width=8, generator=1 / 3)
    model: Any = lm.model
    rows = rows_of(lm, TEXTS[:1])
    with torch.no_grad():
        states = list(model.discriminator.layers(tokens=torch.tensor(rows)))
    for number, state in enumerate(states):
        found = lm.embed(TEXTS[0], layers=number)[0].vectors
        np.testing.assert_allclose(found, state[0, 1:-1].numpy(), atol=1e-5)
    np.testing.assert_allclose(lm.embed(TEXTS[0])[0].vectors, states[-1][0, 1:-1].numpy(), atol=1e-5)


@pytest.mark.parametrize("kind", ["lstm", "nplm"])
def test_a_text_longer_than_a_segment_is_read_as_one(tokenizer: Tokenizer, kind: str) -> None:
    lm = random_model(kind, tokenizer, width=10, hidden=12)
    text = " ".join(["the cat sat on the mat and a dog ran to the log ."] * 40)
    (row,) = rows_of(lm, [text])
    assert len(row) > 2 * SEGMENT
    with torch.no_grad():
        whole = lm.model(torch.tensor([row])).hidden[0, 1:].numpy()  # type: ignore[operator]
    texts = ["a dog", text, "the mat ."]
    np.testing.assert_allclose(lm.embed(texts)[1].vectors, whole, atol=1e-5)
    np.testing.assert_allclose(lm.embed(texts, pool="mean")[1], whole.mean(0), atol=1e-5)
    np.testing.assert_allclose(lm.embed(texts, pool="max")[1], whole.max(0), atol=1e-5)


# Order, batches, words


@pytest.mark.parametrize("kind", ["bert", "gpt2", "lstm"])
@pytest.mark.parametrize("layers", ["last", "mix"])
def test_order_and_batches_change_nothing(tokenizer: Tokenizer, kind: str, layers: str) -> None:
    shape = {"width": 12, "hidden": 12, "layers": 2} if kind == "lstm" else SHAPE
    lm = random_model(kind, tokenizer, **shape)
    texts = [text for text in TEXTS if text] * 3
    expected = np.concatenate([lm.embed([text], layers=layers, pool="mean") for text in texts])
    calls: list[tuple[int, int]] = []
    for size in (1, 20, 10_000):
        found = lm.embed(texts, layers=layers, pool="mean", batch_tokens=size, progress=lambda *n: calls.append(n))
        np.testing.assert_allclose(found, expected, atol=1e-5)
        assert calls[-1][0] == calls[-1][1] == sum(map(len, rows_of(lm, texts)))
        calls.clear()
    tokens = [found.vectors.mean(0) for found in lm.embed(texts[::-1], layers=layers)][::-1]
    if kind != "bert":
        np.testing.assert_allclose(np.stack(tokens), expected, atol=1e-5)


@pytest.mark.parametrize("spec", ["characters", "bytes", "words", "bpe:300", "unigram:300", "wordpiece:120"])
def test_tokens_are_aligned_with_words(spec: str) -> None:
    aligned = train(spec, [TEXT])
    lm = random_model("lstm", aligned, width=6, hidden=6, layers=1)
    text = " the  naïve cat€ costs 5 😀\nThe dog's log."
    (found,) = lm.embed(text)
    words = text.split()
    assert found.tokens == [aligned.show(token) for token in aligned.encode(text)]
    assert {word for word in found.words if word is not None} == set(range(len(words)))
    for (first, end), word in zip(found.offsets, found.words, strict=True):
        piece = text[first:end].strip()
        assert (word is None) == (not piece)
        if word is not None:
            assert piece in words[word]
    for word, expected in enumerate(words):
        inside = [place for place, number in enumerate(found.words) if number == word]
        first, end = found.offsets[inside[0]][0], found.offsets[inside[-1]][1]
        assert text[first:end].strip() == expected
        np.testing.assert_allclose(found.word_vectors()[word], found.vectors[inside].mean(0), atol=1e-6)
        np.testing.assert_allclose(found.word_vectors("first")[word], found.vectors[inside[0]], atol=1e-6)


def test_words_are_numbered_by_their_first_letter() -> None:
    assert find_words("ab  c", [(0, 1), (1, 2), (2, 3), (3, 5), (2, 4)]) == [0, 0, None, 1, None]
    assert find_words("", []) == []


def test_an_empty_text_has_no_tokens(tokenizer: Tokenizer) -> None:
    lm = random_model("bert", tokenizer, **SHAPE)
    (found,) = lm.embed("")
    assert found.vectors.shape == (0, SHAPE["width"])
    assert found.word_vectors().shape == (0, SHAPE["width"])
    assert lm.embed([], pool="mean").shape[0] == 0
    assert lm.embed([]) == []


@pytest.mark.parametrize("kind", ["bert", "gpt2", "lstm", "transformer"])
@pytest.mark.parametrize("pool", ["mean", "max"])
def test_the_vector_of_an_empty_text_is_zero_for_every_model(tokenizer: Tokenizer, kind: str, pool: Pool) -> None:
    shape = {"width": 6, "hidden": 6} if kind == "lstm" else SHAPE if kind == "bert" else {"width": 8, "heads": 2}
    lm = random_model(kind, tokenizer, **shape)
    texts = ["a cat", "", " \t", "the dog"]
    found = lm.embed(texts, pool=pool)
    assert not found[1:3].any()
    assert found[[0, 3]].any(1).all()
    np.testing.assert_allclose(found[[0, 3]], lm.embed(["a cat", "the dog"], pool=pool), atol=1e-5)
    assert lm.embed(["", ""], pool=pool).shape == (2, found.shape[1])
    assert not lm.embed("", pool=pool).any()


# What is refused


def test_a_text_that_is_too_long_is_named_or_cut(tokenizer: Tokenizer) -> None:
    lm = random_model("bert", tokenizer, **{**SHAPE, "window": 6})
    texts = ["a dog", "the cat sat on the mat"]
    with pytest.raises(ValueError, match=r"text 2 has 6 tokens, and the model reads at most 4: split .*truncate"):
        lm.embed(texts, pool="mean")
    with pytest.raises(ValueError, match="text 2 has 6 tokens"):
        lm.embed(texts)
    found = lm.embed(texts, truncate=True)[1]
    assert found.tokens == ["the", "cat", "sat", "on"]
    rounding = of_blocks(SHAPE["layers"], width=SHAPE["width"])
    np.testing.assert_allclose(found.vectors, lm.embed("the cat sat on")[0].vectors, atol=rounding)
    assert not found.word_vectors()[4:].any()
    cut = lm.embed(texts, truncate=True, pool="cls")[1]
    np.testing.assert_allclose(cut, lm.embed("the cat sat on", pool="cls")[0], atol=rounding)


@pytest.mark.parametrize("given", ["lats", "sum", "sum:", "sum:x", "-4:", "concat:1:2:3", "mean:1,", "", "1.5"])
def test_layers_that_mean_nothing_are_refused(given: str) -> None:
    with pytest.raises(ValueError, match=r"not understood; allowed: last, first, second-to-last, mix"):
        select_layers(given)


def test_layers_that_are_not_there_are_refused(tokenizer: Tokenizer) -> None:
    lm = random_model("bert", tokenizer, **SHAPE)
    for given in (4, -5, "sum:1,7"):
        with pytest.raises(ValueError, match=r"there is no layer .*: this model has the layers 0 \(embeddings\) to 3"):
            lm.embed("a", layers=given)
    with pytest.raises(ValueError, match="no layer is in that range"):
        lm.embed("a", layers="sum:3:2")


def test_what_has_no_vectors_is_refused(tokenizer: Tokenizer) -> None:
    stream = np.array([tokenizer.boundary, *tokenizer.encode(TEXT)])
    config = NGram.Config(vocabulary=tokenizer.vocabulary, order=2, boundary=tokenizer.boundary)
    counts = LanguageModel(model=NGram.fit(stream, config=config), tokenizer=tokenizer)
    with pytest.raises(ValueError, match=r"ngram .* cannot give contextual vectors"):
        counts.embed("a cat")
    lstm = random_model("lstm", tokenizer, width=6, hidden=6)
    with pytest.raises(ValueError, match=r"lstm has no \[CLS\] token .* mean or max"):
        lstm.embed("a cat", pool="cls")
    with pytest.raises(ValueError, match="'median' is not known; allowed: cls, mean, max"):
        lstm.embed("a cat", pool="median")  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="batch_tokens = 0"):
        lstm.embed("a cat", batch_tokens=0)
    plain = train("bpe:300", [TEXT])
    with pytest.raises(ValueError, match="the tokenizer has no token for cls"):
        random_model("bert", plain, **SHAPE).embed("a cat")
