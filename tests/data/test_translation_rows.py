"""A text and its translation in one row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from framed import encoder_frame
from lmlab.data.corpora.corpus import Corpus
from lmlab.data.corpora.pairs import prepare_pairs
from lmlab.data.loaders.pairs import TranslationRows
from lmlab.objectives import create_objective
from lmlab.runs.recipe import make_recipe
from lmlab.runs.run import start

ENGLISH = [f"a dog number {i} runs" + " far" * (i % 4) for i in range(40)]
GERMAN = [f"ein Hund Nummer {i} läuft" + " weit" * (i % 3) for i in range(40)]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    for name, lines in (("en", ENGLISH), ("de", GERMAN)):
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {"source": str(tmp_path / "en"), "target": str(tmp_path / "de")}


@pytest.fixture
def corpus(files: dict[str, str], tmp_path: Path) -> Corpus:
    return prepare_pairs(**files, split=(1.0,), tokenizer="characters", cache=tmp_path / "cache")


def test_each_pair_is_one_row_once_in_an_epoch(corpus: Corpus) -> None:
    tokenizer = corpus.tokenizer.with_specials(("pad", "cls", "sep", "mask"))
    cls, sep, pad = (tokenizer.special(name) for name in ("cls", "sep", "pad"))
    loader = TranslationRows(corpus.train, frame=encoder_frame(tokenizer), pad=pad, batch=4, window=80, seed=0)
    found = []
    for step in range(int(loader.steps_per_epoch)):
        rows = loader.batch(step)
        lengths = rows.lengths if rows.lengths is not None else np.full(len(rows.tokens), rows.tokens.shape[1])
        assert rows.segments is not None
        assert rows.positions is not None
        for tokens, segments, positions, length in zip(
            rows.tokens, rows.segments, rows.positions, lengths, strict=True
        ):
            assert (tokens[length:] == pad).all()
            one, two = np.flatnonzero(tokens == sep)
            assert (tokens[0], two) == (cls, length - 1)
            found.append((tokenizer.decode(tokens[1:one]), tokenizer.decode(tokens[one + 1 : two])))
            assert segments[:length].tolist() == [0] * (one + 1) + [1] * (two - one)
            assert positions[:length].tolist() == [*range(one + 1), *range(two - one)]
    assert sorted(found) == sorted(zip(ENGLISH, GERMAN, strict=True))


def test_masks_are_made_on_both_sides(corpus: Corpus) -> None:
    tokenizer = corpus.tokenizer.with_specials(("pad", "cls", "sep", "mask"))
    objective = create_objective({"kind": "masked"}, tokenizer, encoder_frame(tokenizer))
    loader = objective.loader(corpus.train, batch=8, window=80, seed=0, streams=False)
    batch = objective.batch(loader.batch(0), np.random.default_rng(0))
    sides = batch.inputs["segments"].gather(1, batch.labels["positions"])[batch.labels["targets"] >= 0]
    assert set(sides.tolist()) == {0, 1}
    with pytest.raises(ValueError, match=r"objective\.pairs=none"):
        create_objective({"kind": "masked", "pairs": "next-sentence"}, tokenizer, encoder_frame(tokenizer)).loader(
            corpus.train, batch=8, window=80, seed=0, streams=False
        )


def test_pairs_too_long_for_a_row(corpus: Corpus) -> None:
    with pytest.raises(ValueError, match="none of the 40 pairs fits into a row of 20 tokens"):
        TranslationRows(corpus.train, frame=encoder_frame(corpus.tokenizer), pad=2, batch=4, window=20, seed=0)


@pytest.mark.parametrize("kind", ["mbert", "xlm-r"])
def test_a_multilingual_model_learns_from_translations(files: dict[str, str], tmp_path: Path, kind: str) -> None:
    values = {
        "data": files,
        "tokenizer": {"spec": "bpe:300"},
        "model": {"kind": kind, "size": "tiny"},
        "train": {"budget": "40steps", "batch": 8},
    }
    outcome = start(make_recipe(values), tmp_path / "run")
    assert outcome.progress.best is not None
    assert outcome.progress.best < 0.9 * np.log(300)


def test_replaced_token_detection_wants_plain_text(files: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="replaced learns from plain text"):
        make_recipe({"data": files, "model": {"kind": "electra", "size": "tiny"}})
