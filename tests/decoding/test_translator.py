"""Translating many sentences is translating each alone, and the scores are those of the model."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

import lmlab
from lmlab.decoding.beam_search import length_penalty_of
from standins import write_run
from tolerances import of_blocks
from translators import write_translator

LINES = ["the cat sat on the mat .", "", "a dog", "the dog and a cat sat on the log .", "   ", "mat", "a cat ran ."]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return lmlab.load(write_translator(tmp_path_factory.mktemp("run") / "plain", seed=3))


def by_steps(model, source, target):
    """The surprisal of each target token, with the model's `step` alone, one sentence, no padding."""
    translator = model.translator
    (row,), (text,) = translator.source_rows([source]), translator.target_rows([target])
    with torch.inference_mode():
        state, nats = model.model.begin(model.model.encode(source=torch.tensor([row]))), []
        for before, after in itertools.pairwise(text):
            logits, state = model.model.step(torch.tensor([[before]]), state)
            nats.append(-logits[0].double().log_softmax(-1)[after].item())
    return nats


KINDS = {
    "transformer": {},
    "bart": {"window": 40},
    "seq2seq": {"size": {"width": 8, "hidden": 8, "attention": "additive", "feeding": True}},
    "seq2seq without attention": {"size": {"width": 8, "hidden": 8, "attention": "none", "cell": "gru"}},
}
ROUNDING = math.sqrt(12) * of_blocks(4, width=16, growth=8)  # of a score, to which 12 tokens add


@pytest.mark.parametrize("batch", [1, 2, 32])
@pytest.mark.parametrize("kind", KINDS)
def test_lines_keep_their_order_and_are_as_if_alone(kind, batch, tmp_path):
    model = lmlab.load(write_translator(tmp_path, kind=kind.split()[0], seed=3, **KINDS[kind]))
    found = model.translator.translate(LINES, beams=3, tokens=12, batch=batch)
    assert [len(each) for each in found] == [3, 0, 3, 3, 0, 3, 3]
    for line, each in zip(LINES, found, strict=True):
        (alone,) = model.translator.translate([line], beams=3, tokens=12)
        assert [t.text for t in each] == [t.text for t in alone]
        assert [t.score for t in each] == pytest.approx([t.score for t in alone], abs=ROUNDING)
    assert len({each[0].text for each in found if each}) > 1


def test_scores_are_what_the_model_gives_to_the_text(model):
    for line in ("the cat sat on the mat .", "a dog"):
        (found,) = model.translator.translate([line], beams=4, tokens=9, length_penalty=0.8)
        for each in found:
            written = each.tokens + ([model.tokenizer.boundary] if each.finished else [])
            nats = by_steps(model, line, model.tokenizer.decode(each.tokens))
            assert -sum(nats[: len(written)]) == pytest.approx(each.log_probability, abs=1e-3)
            assert each.score == pytest.approx(each.log_probability / length_penalty_of(len(written), 0.8))


def test_a_wide_search_finds_what_enumeration_finds(tmp_path):
    tiny = lmlab.load(write_translator(tmp_path, spec="words:5", seed=1))
    translator, ends = tiny.translator, tiny.tokenizer.boundary
    others = [token for token in range(tiny.tokenizer.vocabulary) if token != ends]
    (row,) = translator.source_rows(["the cat"])
    scored = {}
    for length in range(4):
        for text in itertools.product(others, repeat=length):
            whole = [ends, *text, ends]
            with torch.inference_mode():
                hidden, _ = tiny.model(torch.tensor([whole[:-1]]), source=torch.tensor([row]))
                nats = tiny.model.nll(hidden[0], torch.tensor(whole[1:])).double()
            scored[text if length == 3 else (*text, ends)] = -nats[: min(length + 1, 3)].sum().item()
    (found,) = translator.translate(["the cat"], beams=len(scored), tokens=3, length_penalty=0.0)
    assert len(found) == len(scored)
    assert [each.log_probability for each in found] == pytest.approx(sorted(scored.values(), reverse=True), abs=1e-4)


def test_losses_are_those_of_reading_step_by_step(model):
    sources, targets = LINES[:4], ["die katze sass .", "ein hund", "", "der hund und eine katze sassen auf der matte ."]
    together = model.translator.score(sources, targets, batch=4)
    for source, target, nats in zip(sources, targets, together, strict=True):
        assert nats.tolist() == pytest.approx(by_steps(model, source, target), abs=1e-4)
        assert len(nats) == len(model.tokenizer.encode(target)) + 1


def test_each_side_may_have_its_own_tokenizer_and_its_own_direction(tmp_path):
    run = write_translator(tmp_path / "two", source_spec="characters", reverse=True)
    model = lmlab.load(run)
    assert model.source_tokenizer is not None
    (row,) = model.translator.source_rows(["cat"])
    assert [model.source_tokenizer.show(token) for token in row[:-1]] == ["t", "a", "c"]
    assert row[-1] == model.source_tokenizer.boundary
    assert isinstance(model.translate("cat", beams=2, tokens=5), str)
    forward = lmlab.load(write_translator(tmp_path / "one", source_spec="characters"))
    assert forward.translator.source_rows(["cat"])[0][:-1] == row[:-1][::-1]


def test_a_start_of_its_own_begins_the_target_and_is_never_written(tmp_path):
    run = write_translator(tmp_path, start=7)
    model = lmlab.load(run)
    assert model.translator.target_rows(["die katze"])[0][0] == 7
    found = model.translator.translate(["the cat", "a dog"], beams=6, tokens=10)
    assert all(7 not in each.tokens for each in itertools.chain(*found))


def test_special_tokens_stand_in_no_translation(tmp_path):
    run = write_translator(tmp_path)
    tokenizer = lmlab.load(run).tokenizer
    marked = tokenizer.with_specials(["pad", "mask"])
    run = write_translator(tmp_path / "more", vocabulary=marked.vocabulary)
    model = lmlab.load(run)
    free = model.translator.translate(["the cat", "a dog", "mat"], beams=8, tokens=8)
    marked.save(run / "tokenizer.json")
    (run / "manifest.json").unlink()
    bound = lmlab.load(run).translator.translate(["the cat", "a dog", "mat"], beams=8, tokens=8)
    roles = {marked.special("pad"), marked.special("mask")}
    assert any(roles & set(each.tokens) for each in itertools.chain(*free))
    assert not any(roles & set(each.tokens) for each in itertools.chain(*bound))


def test_a_model_with_positions_refuses_what_is_too_long(tmp_path):
    model = lmlab.load(write_translator(tmp_path, kind="bart", window=8))
    assert len(model.translate(["a cat sat on the mat ."], tokens=8)) == 1
    with pytest.raises(ValueError, match="source 2 has 8 tokens, and the model reads at most 7"):
        model.translate(["a cat", "the cat sat on the mat and ran"])
    with pytest.raises(ValueError, match="at most 8 can be generated"):
        model.translate("a cat", tokens=9)
    with pytest.raises(ValueError, match="target 1 has 8 tokens, and the model writes at most 7"):
        model.translator.score(["a cat"], ["die katze sass auf der matte und lief"])


def test_a_source_that_would_take_too_long_is_refused_or_cut(model):
    long = "the cat sat on the mat . " * 300
    with pytest.raises(ValueError, match=r"source 2 has 2,100 tokens, and the model reads at most 1,024: split it"):
        model.translate(["a cat", long])
    with pytest.raises(ValueError, match=r"source 1 has 7 tokens, and the model reads at most 5: .* longest = 5"):
        model.translate("the cat sat on the mat .", longest=5)
    with pytest.raises(ValueError, match="longest = 0"):
        model.translate("the cat", longest=0)
    short = model.translator.shorten(["a cat", long, "  "], longest=5)
    assert short == ["a cat", "the cat sat on the", ""]
    assert model.translate("the cat sat", longest=None, tokens=3) == model.translate("the cat sat", tokens=3)


def test_progress_and_trees_come_for_every_line(model):
    calls, trees = [], []
    found = model.translator.translate(
        LINES,
        beams=2,
        tokens=6,
        batch=2,
        trace=trees.append,
        progress=lambda done, total: calls.append((done, total)),
    )
    assert calls == sorted(calls), "never backwards"
    assert {total for _, total in calls} == {sum(len(row) for row in model.translator.source_rows(LINES) if row[1:])}
    assert calls[-1][0] == calls[-1][1]
    assert len(calls) > 3, "within the search of one batch, too"
    assert [tree.source for tree in trees] == [line for line in LINES if line.strip()]
    results = [[result.text.strip() for result in tree.results] for tree in trees]
    assert results == [[t.text for t in each] for each in found if each]


def test_what_is_no_translator_says_what_to_do(model, tmp_path):
    gpt = lmlab.load(write_run(tmp_path, "gpt2", spec="characters"))
    with pytest.raises(ValueError, match="lmlab train transformer --source"):
        gpt.translate("the cat")
    for call in (model.generate, model.next, model.score):
        with pytest.raises(ValueError, match="lmlab translate"):
            call("the cat")


def test_nats_are_float64(model):
    (nats,) = model.translator.score(["a dog"], ["ein hund"])
    assert nats.dtype == np.float64
