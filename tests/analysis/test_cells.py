"""Cells: exact against the fused pass, properties and areas by brute force, and a search that finds a planted cell."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lmlab.analysis.cells.activations import CellPart, CellText, Read, cell_parts, read_cells
from lmlab.analysis.cells.properties import find_property, in_brackets, in_quotes, late_in_line, matches
from lmlab.analysis.cells.search import rank_cells, search_cells
from lmlab.analysis.layer_vectors import SEGMENT
from lmlab.layers.recurrent import GRULayer, LSTMLayer
from lmlab.layers.watching import watching, watching_layers
from lmlab.metrics.auc import areas
from lmlab.runs.model_files import set_spellings
from lmlab.tokenizers import train
from standins import TEXT, random_model
from tolerances import rounding

pytestmark = pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning")


@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm", "awd-lstm"])
def test_the_watched_pass_is_the_fused_one(kind: str) -> None:
    torch.manual_seed(0)
    lm = random_model(kind, train("words", [TEXT]), width=12, hidden=12, layers=2)
    tokens = torch.arange(9)[None]
    paths = [part.path for part in cell_parts(lm.model)]
    with torch.no_grad():
        plain, state = lm.model(tokens)
        with watching(lm.model, *paths) as seen:
            watched, after = lm.model(tokens)
    tolerance = rounding(terms=12, depth=2 * 9, growth=8)
    assert torch.allclose(plain, watched, atol=tolerance)
    for a, b in zip(torch.utils._pytree.tree_leaves(state), torch.utils._pytree.tree_leaves(after), strict=True):
        assert torch.allclose(a, b, atol=tolerance)
    assert all(len(values) == 1 and values[0].shape == (1, 9, 12) for values in seen.values())


def test_gates_make_the_state() -> None:
    torch.manual_seed(0)
    x, h, c = torch.randn(3, 5), torch.randn(3, 4), torch.randn(3, 4)
    lstm, gru = LSTMLayer(5, 4), GRULayer(5, 4)
    parts = lstm.parts(x, (h, c), lstm.weights())
    assert torch.allclose(parts["cell"], parts["forget_gate"] * c + parts["input_gate"] * parts["proposal"])
    assert torch.allclose(parts["hidden"], parts["output_gate"] * torch.tanh(parts["cell"]))
    parts = gru.parts(x, h, gru.weights())
    mixed = (1 - parts["update_gate"]) * h + parts["update_gate"] * parts["proposal"]
    assert torch.allclose(parts["hidden"], mixed)


def test_long_texts_carry_their_state_from_segment_to_segment() -> None:
    torch.manual_seed(0)
    tokenizer = train("characters", [TEXT])
    lm = random_model("lstm", tokenizer, width=6, hidden=6, layers=1)
    text = (TEXT * 2)[: 2 * SEGMENT + 7]
    read = read_cells(lm, text, parts=["hidden"])
    ids = torch.tensor([[tokenizer.boundary, *tokenizer.encode(text)]])
    with torch.no_grad(), watching_layers() as layers:
        lm.model(ids)
    (values,) = read.activations.values()
    assert values.shape == (len(read.tokens), 6)
    assert np.allclose(values, layers[1][0, 1:].numpy(), atol=rounding(terms=6, depth=40, growth=8))


def test_xlnet_reads_both_ways_in_pieces() -> None:
    torch.manual_seed(0)
    lm = random_model("xlnet", train("characters", [TEXT]), width=8, heads=2, layers=1, inner=12, memory=4)
    read = read_cells(lm, TEXT[: SEGMENT + 30])
    later = read_cells(lm, TEXT[SEGMENT - 1 : SEGMENT + 30])  # the first piece has the boundary, too
    (values,), (alone,) = read.activations.values(), later.activations.values()
    assert np.allclose(values[SEGMENT - 1 :], alone, atol=1e-5)
    assert not np.allclose(alone[0], next(iter(read_cells(lm, TEXT[SEGMENT - 1]).activations.values()))[0], atol=1e-3)


def test_elmo_shows_the_cells_from_left_to_right_of_words_that_it_spells() -> None:
    torch.manual_seed(0)
    tokenizer = train("spelled:6", [TEXT])
    shape = {"vocabulary": tokenizer.predicted, "width": 6, "cells": 9, "filters": [[2, 6]], "letter_width": 4}
    lm = random_model("elmo", tokenizer, **shape)
    set_spellings(lm.model, tokenizer)
    read = read_cells(lm, "the quokka sat on the wombat", parts=["hidden"])
    assert read.tokens == ["the", "quokka", "sat", "on", "the", "wombat"]
    assert [part.path for part in read.activations] == [f"recurrent.0.layers.{n}.inside.hidden" for n in range(2)]
    row = lm.frame.row(a=tokenizer.encode("the quokka sat on the wombat"))["tokens"]
    with torch.no_grad(), watching_layers() as layers:
        lm.model(torch.tensor([row]))
    tolerance = rounding(terms=9, depth=20, growth=8)
    assert np.allclose(read.activations[next(iter(read.activations))], layers[1][0, 1:-1, :6], atol=tolerance)


@pytest.mark.parametrize("kind", ["gpt2", "bert", "transformer-xl", "llama"])
def test_neurons_are_what_the_second_matrix_reads(kind: str) -> None:
    torch.manual_seed(0)
    shape = {"width": 8, "heads": 2, "layers": 2} | ({"inner": 12} if kind == "transformer-xl" else {"window": 12})
    lm = random_model(kind, train("wordpiece:120", [TEXT]), **shape)
    read = read_cells(lm, "the cat sat on the mat .")
    part = next(iter(read.activations))
    seen: list[torch.Tensor] = []
    module = lm.model.get_submodule(part.path.replace("expand", "contract"))
    handle = module.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    row = lm.frame.row(a=lm.tokenizer.encode("the cat sat on the mat ."))["tokens"]
    with torch.no_grad(), watching(lm.model, "embedding"):
        lm.model(torch.tensor([row]))
    handle.remove()
    expected = seen[0].reshape(len(row), -1)[1 : 1 + len(read.tokens)].numpy()
    assert np.allclose(read.activations[part], expected, atol=1e-5)


def test_neurons_of_a_shared_layer_are_distinguished_by_depth() -> None:
    torch.manual_seed(0)
    shape = {"width": 8, "heads": 2, "layers": 3, "window": 12, "embedding_width": 6}
    lm = random_model("albert", train("wordpiece:120", [TEXT]), **shape)
    read = read_cells(lm, "the cat sat on the mat .")
    assert [part.layer for part in read.activations] == [0, 1, 2]
    seen: list[torch.Tensor] = []
    module = lm.model.get_submodule("blocks.0.feed_forward.contract")
    handle = module.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    row = lm.frame.row(a=lm.tokenizer.encode("the cat sat on the mat ."))["tokens"]
    with torch.no_grad(), watching(lm.model, "embedding"):
        lm.model(torch.tensor([row]))
    handle.remove()
    for values, expected in zip(read.activations.values(), seen, strict=True):
        assert np.allclose(values, expected.reshape(len(row), -1)[1 : 1 + len(read.tokens)].numpy(), atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "shape"), [("nplm", {"hidden": 5}), ("bow", {"hidden": 5}), ("attention-lm", {"inner": 5, "heads": 2})]
)
def test_tanh_units_are_the_hidden_vectors(kind: str, shape: dict[str, int]) -> None:
    torch.manual_seed(0)
    lm = random_model(kind, train("characters", [TEXT]), width=6, **shape)
    read = read_cells(lm, TEXT[:40])
    ((part, values),) = read.activations.items()
    row = lm.frame.row(a=lm.tokenizer.encode(TEXT[:40]))["tokens"]
    with torch.no_grad():
        expected = lm.model(torch.tensor([row])).hidden[0, 1:]
    assert (part.layer, part.name, values.shape) == (0, "neurons", (40, 5))
    assert np.allclose(values, expected.numpy(), atol=1e-6)


def test_texts_longer_than_a_window_are_read_in_pieces() -> None:
    lm = random_model("gpt2", train("characters", [TEXT]), width=8, heads=2, layers=1, window=10)
    read = read_cells(lm, TEXT[:95])
    (values,) = read.activations.values()
    alone = read_cells(lm, TEXT[9:18]).activations
    assert len(values) == 95
    assert np.allclose(values[9:18], next(iter(alone.values())), atol=1e-5)


def test_properties_by_hand() -> None:
    def marked(marks: np.ndarray, text: str) -> str:
        return "".join(letter if mark else "." for letter, mark in zip(text, marks, strict=True))

    text = 'a "bc" d “e” "f\n\ng'
    assert marked(in_quotes(text), text) == '.."bc....“e.."f\n..'
    text = "a (b [c] d) e) f"
    assert marked(in_brackets(text), text) == "..(b [c] d......"
    text = "x" * 45 + "\n" + "y" * 5
    assert marked(late_in_line(text), text) == "." * 39 + "x" * 6 + "." * 6
    text = "if a:\n  while b > c: d"
    assert marked(find_property("if")(text), text) == "if a..  while b > c..."
    assert marked(matches(r"[0-9]+")("a12b3"), "a12b3") == ".12.3"
    with pytest.raises(ValueError, match="is not a regular expression"):
        matches("(")
    with pytest.raises(ValueError, match="unknown property 'quote'; did you mean 'quotes'"):
        find_property("quote")


def test_areas_are_counted_pairs() -> None:
    generator = np.random.default_rng(0)
    scores = generator.integers(0, 6, size=(40, 3)).astype(np.float32)  # with ties
    labels = generator.random(40) < 0.4
    expected = [
        np.mean([[(a > b) + 0.5 * (a == b) for b in scores[~labels, c]] for a in scores[labels, c]]) for c in range(3)
    ]
    assert np.allclose(areas(scores, labels), expected)
    assert np.isnan(areas(scores, np.zeros(40, bool))).all()


def test_a_planted_cell_is_found_and_judged_on_the_other_half() -> None:
    generator = np.random.default_rng(0)
    text = "".join(generator.choice(list('ab "'), 800).tolist())
    marks = in_quotes(text)
    values = generator.normal(size=(800, 30)).astype(np.float32)
    values[:, 17] = -3 * marks + generator.normal(size=800)
    values[400:, 5] = 9 * marks[400:]  # it follows the property only where it is judged
    read = Read(text, list(text), [(i, i + 1) for i in range(800)], {CellPart(1, "cell", "x"): values})
    found = rank_cells(read, marks, name="quotes", top=30)
    best = found.found[0]
    assert (best.layer, best.part, best.unit, best.sign) == (1, "cell", 17, -1)
    assert best.held_out == pytest.approx(areas(-values[400:, 17:18], marks[400:])[0])
    assert best.held_out > 0.95
    assert [cell.searched for cell in found.found] == sorted((cell.searched for cell in found.found), reverse=True)
    assert 5 in [cell.unit for cell in found.found if abs(cell.held_out - 0.5) == 0.5]  # perfect there, and not first
    values[:400, 5] = 9 * marks[:400]
    values[400:, 5] = generator.normal(size=400)  # perfect where it is searched, chance where it is judged
    first = rank_cells(read, marks, name="quotes").found[0]
    assert (first.unit, first.searched) == (5, 1.0)
    assert first.held_out < 0.6
    assert "".join(piece for piece, _ in found.excerpt) == text[400:]


def test_search_runs_on_a_model_and_tells_what_it_lacks() -> None:
    lm = random_model("lstm", train("characters", [TEXT]), width=6, hidden=6, layers=2)
    found = search_cells(lm, TEXT, matches("cat|dog"), name="animals")
    assert {cell.part for cell in found.found} <= {"cell", "hidden"}
    assert found.units == 24
    assert "animals" in found._repr_html_()
    with pytest.raises(ValueError, match="quotes holds at 0 of"):
        search_cells(lm, TEXT, in_quotes, name="quotes")
    with pytest.raises(ValueError, match="part 'memory' is not known; this model has: hidden, cell"):
        read_cells(lm, TEXT, parts=["memory"])
    with pytest.raises(ValueError, match="unit = 6: there are 6"):
        CellText.of(read_cells(lm, "the cat"), layer=0, part="cell", unit=6)
    lm = random_model("word2vec", train("words", [TEXT]), width=6)
    with pytest.raises(ValueError, match="has no cells or neurons"):
        read_cells(lm, TEXT)


def test_a_pattern_of_a_stranger_has_little_time() -> None:
    text = "a12b3 " + "a" * 40 + "!"
    assert (matches("[0-9]+", within=60)(text) == matches("[0-9]+")(text)).all()
    with pytest.raises(ValueError, match=r"takes longer than 0\.5 seconds"):
        matches("(a+)+$", within=0.5)(text)
