"""A model kind whose template is another: training, scoring and embedding all follow it, and so does a loaded run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lmlab
from lmlab.models import LINEAGE
from lmlab.objectives.masked import Masked
from lmlab.objectives.seq2seq import Seq2Seq
from lmlab.runs.recipe import make_recipe
from lmlab.runs.run import resume, start
from translators import write_translator

TEMPLATE = {"tokens": "sep:0 cls:0 a:0 sep:0 [sep:1 b:1 sep:1]"}
TEXT = "".join(f"the cat sat on mat {i} . a dog ran to log {i} . birds sing .\n" for i in range(40))


def record_batches(monkeypatch: pytest.MonkeyPatch, objective: type) -> list[Any]:
    """What the batches of an objective are made of, in the order of the run."""
    found: list[Any] = []
    usual = objective.batch  # type: ignore[attr-defined]

    def batch(self: Any, raw: Any, generator: Any = None) -> Any:
        found.append(raw)
        return usual(self, raw, generator)

    monkeypatch.setattr(objective, "batch", batch)
    return found


def rows_read(lm: lmlab.LanguageModel, call: Any) -> list[list[int]]:
    """The rows of tokens that the model embeds while it is called."""
    seen: list[list[int]] = []
    (table,) = [
        module
        for module in lm.model.modules()
        if isinstance(module, torch.nn.Embedding) and module.num_embeddings == lm.model.vocabulary
    ]
    handle = table.register_forward_pre_hook(lambda _, inputs: seen.extend(inputs[0].tolist()))
    call()
    handle.remove()
    return seen


@pytest.mark.parametrize("pairs", ["none", "sentence-order"])
def test_rows_of_training_scores_and_vectors_follow_the_template(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pairs: str
) -> None:
    (tmp_path / "text").write_text(TEXT)
    values = {
        "data": {"text": str(tmp_path / "text"), "documents": "lines"},
        "tokenizer": {"spec": "words"},
        "model": {"kind": "bert", "size": "tiny"},
        "objective": {"pairs": pairs},
        "train": {"budget": "2steps", "batch": 4, "window": 24},
    }
    with monkeypatch.context() as patch:
        patch.setitem(LINEAGE, "bert", replace(LINEAGE["bert"], frame=TEMPLATE))
        batches = record_batches(patch, Masked)
        start(make_recipe(values), tmp_path / "run")
    lm = lmlab.load(tmp_path / "run")  # by now the kind has its usual template again: the run has its own
    assert dict(lm.frame.templates) == TEMPLATE
    cls, sep = (lm.tokenizer.special(name) for name in ("cls", "sep"))
    assert batches
    for raw in batches:
        assert (raw.tokens[:, :2] == [sep, cls]).all()
        counts = (raw.tokens == sep).sum(1)
        assert set(counts.tolist()) == {2 if pairs == "none" else 4}
        lengths = np.full(len(raw.tokens), raw.tokens.shape[1]) if raw.lengths is None else raw.lengths
        assert (raw.tokens[np.arange(len(lengths)), lengths - 1] == sep).all()
        if pairs != "none":
            assert raw.cls.tolist() == [1] * len(lengths)
            seps = np.stack([np.flatnonzero(row == sep) for row in raw.tokens])
            assert (seps[:, 2] == seps[:, 1] + 1).all()
            assert (raw.segments.sum(1) == seps[:, 3] - seps[:, 1]).all(), "the second text, with what belongs to it"

    ids = lm.tokenizer.encode("the cat sat")
    mask = lm.tokenizer.special("mask")
    scored = rows_read(lm, lambda: lm.score("the cat sat"))
    expected = [[sep, cls, *ids[:i], mask, *ids[i + 1 :], sep] for i in range(len(ids))]
    assert sorted(scored) == sorted(expected)
    assert rows_read(lm, lambda: lm.embed("the cat sat")) == [[sep, cls, *ids, sep]]
    with torch.inference_mode():
        hidden = lm.model(tokens=torch.tensor([[sep, cls, *ids, sep]])).hidden[0]
    np.testing.assert_allclose(lm.embed(["the cat sat"], pool="cls")[0], hidden[1].numpy(), atol=1e-5)
    np.testing.assert_allclose(lm.embed("the cat sat")[0].vectors, hidden[2:-1].numpy(), atol=1e-5)


def test_a_run_that_is_resumed_keeps_its_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pairs.tsv").write_text("".join(f"the cat {i}\tdie katze {i}\n" for i in range(30)))
    values = {
        "data": {"pairs": str(tmp_path / "pairs.tsv")},
        "tokenizer": {"spec": "words"},
        "model": {"kind": "transformer", "size": "tiny"},
        "train": {"budget": "2steps", "batch": 4, "window": 16},
    }
    batches = record_batches(monkeypatch, Seq2Seq)
    with monkeypatch.context() as patch:
        frame = {"source": "boundary a boundary", "tokens": "start b boundary"}
        patch.setitem(LINEAGE, "transformer", replace(LINEAGE["transformer"], frame=frame))
        start(make_recipe(values), tmp_path / "run")
    resume(tmp_path / "run", settings={"budget": "4steps"})
    lm = lmlab.load(tmp_path / "run")
    assert len(batches) > 4
    assert all((raw.source[:, 0] == lm.tokenizer.boundary).all() for raw in batches)
    assert lm.translator.source_rows(["the cat"]) == [
        [lm.tokenizer.boundary, *lm.tokenizer.encode("the cat"), lm.tokenizer.boundary]
    ]
    assert lm.translate("") == ""


@pytest.mark.parametrize("backwards", [False, True])
def test_a_run_without_a_frame_is_read_as_before(tmp_path: Path, backwards: bool) -> None:
    old = lmlab.load(write_translator(tmp_path / "old", source_spec="characters", reverse=backwards))
    assert old.frame.backwards == (("source",) if backwards else ())
    assert old.translator.frame is old.frame
    assert old.source_tokenizer is not None
    ids = old.source_tokenizer.encode("the cat")
    assert old.translator.source_rows(["the cat"]) == [
        [*(ids[::-1] if backwards else ids), old.source_tokenizer.boundary]
    ]
    new = write_translator(tmp_path / "new", source_spec="characters")
    old.frame.save(new)
    assert lmlab.load(new).translate("the cat", tokens=6) == old.translate("the cat", tokens=6)
    found, turned = (lmlab.load(path).alignments("the cat", "der hund")[0] for path in (tmp_path / "old", new))
    assert found == turned
    assert found.source[:-1] == [old.source_tokenizer.show(token) for token in ids]


def test_a_target_needs_one_end(tmp_path: Path) -> None:
    lm = lmlab.load(write_translator(tmp_path / "run"))
    translator = lm.translator
    assert translator.end == lm.tokenizer.boundary
    endless = replace(translator, frame=replace(lm.frame, templates={"source": "a boundary", "tokens": "start b"}))
    with pytest.raises(ValueError, match="one token that ends it"):
        endless.translate(["cat"])
