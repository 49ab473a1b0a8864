"""Comparisons of data that are not text: music by nats per note, pixels by bits per dimension, with intervals."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

import lmlab
from lmlab.comparison.folder import Published, add
from lmlab.comparison.leaderboard import read_rankings
from lmlab.runs.held_out import held_out_items
from lmlab.runs.storage import read_json

SETTINGS = {"train.batch": 8, "train.evaluations": 2}


@pytest.fixture(scope="module")
def tunes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Published]:
    folder = tmp_path_factory.mktemp("music") / "compared"
    systems = ["ngram", "lstm", "music-transformer"]
    done = lmlab.compare(
        "builtin:tunes", output=folder, models=systems, size="tiny", budget="12steps", settings=SETTINGS, csv=True
    )
    return folder, done


def test_music_is_ranked_by_nats_per_note(tunes: tuple[Path, Published]) -> None:
    """The score of each system is that of its tokens, read one by one from the beginning of each piece."""
    folder, done = tunes
    (ranking,) = read_rankings(done.board)
    assert ranking.ranked[0].name == "ngram"
    assert (ranking.units.kind, ranking.units.count) == ("pieces", 8)
    for entry in ranking.ranked:
        assert entry.low < entry.score < entry.high
        assert entry.measured["nats_per_step"] == pytest.approx(4 * entry.score)
        model = lmlab.load(folder / entry.name)
        items = held_out_items(folder / entry.name)
        nats, tokens = 0.0, sum(map(len, items))
        for item in items[:1]:
            state, token = model.model.start(1), model.processor.boundary
            for following in item.tolist()[:40]:
                logits, state = model.model.step(torch.tensor([[token]]), state)
                nats -= float(logits.log_softmax(-1)[0, following])
                token = following
        record = read_json(folder / "scores" / f"{entry.name}.json")
        assert sum(record["nats"]) / tokens == pytest.approx(entry.score)
        assert nats < record["nats"][0] < nats * len(items[0]) / 4


def test_the_report_says_pieces_and_shows_samples(tunes: tuple[Path, Published]) -> None:
    folder, done = tunes
    page = done.report.read_text()
    assert "144 pieces, each with" in page
    assert "tested on 8 test pieces" in page
    assert "nats per note" in page
    assert "bits per byte" not in page
    assert page.count("<title>Sample</title>") + page.count("Sample") >= 3
    rows = list(csv.DictReader((folder / "leaderboard.csv").open()))
    assert rows[0]["name"] == "ngram"
    assert float(rows[0]["nats_per_note"]) == pytest.approx(
        json.loads((folder / "leaderboard.json").read_text())["grid"][0]["nats_per_note"]
    )


def test_it_is_resumed_and_runs_are_added(tunes: tuple[Path, Published], tmp_path: Path) -> None:
    folder, _ = tunes
    again = lmlab.compare(
        "builtin:tunes",
        output=folder,
        models=["ngram", "lstm", "music-transformer"],
        size="tiny",
        budget="12steps",
        settings=SETTINGS,
    )
    assert len(read_rankings(again.board)[0].ranked) == 3
    settings = {"train.batch": 8, "train.evaluations": 1}
    lmlab.train("gpt2", "builtin:tunes", output=tmp_path / "other", size="tiny", budget="4steps", settings=settings)
    (ranking,) = read_rankings(add([tmp_path / "other"], folder).board)
    assert "other" in [entry.name for entry in ranking.ranked]
    lmlab.train("gpt2", "builtin:tunes", output=tmp_path / "events", size="tiny", tokenizer="events", budget="2steps")
    with pytest.raises(ValueError, match="all need the same tokenizer"):
        add([tmp_path / "events"], folder)


def test_pixels_are_ranked_by_bits_per_dimension(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    numbers = np.random.default_rng(0)
    (tmp_path / "bars").mkdir()
    for number in range(120):
        pixels = np.zeros((6, 6), np.uint8)
        pixels[:, numbers.integers(6)] = 255 - number
        image.fromarray(pixels if number % 2 else pixels.T).save(tmp_path / "bars" / f"{number}.png")
    done = lmlab.compare(
        tmp_path / "bars",
        output=tmp_path / "compared",
        models=["ngram", "gpt2"],
        tokenizer="pixels:2",
        size="tiny",
        budget="12steps",
        settings={**SETTINGS, "data.size": 6},
    )
    (ranking,) = read_rankings(done.board)
    assert all(0 < entry.score < 1 for entry in ranking.ranked)
    assert ranking.units.kind == "pictures"
    record = read_json(tmp_path / "compared" / "scores" / "ngram.json")
    bits = sum(record["nats"]) / math.log(2) / (36 * len(record["nats"]))
    assert next(each.score for each in ranking.ranked if each.name == "ngram") == pytest.approx(bits)
    assert 'src="data:image/png;base64,' in done.report.read_text()


def test_what_cannot_be_compared_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="all models need the same tokenizer"):
        lmlab.compare(
            "builtin:tunes", output=tmp_path / "a", models="lstm,gpt2", tokenizer=["lstm=events", "gpt2=grid:4"]
        )
    with pytest.raises(ValueError, match=r"bert .* cannot rank it on grid"):
        lmlab.compare("builtin:tunes", output=tmp_path / "a", models="bert,gpt2")
    with pytest.raises(ValueError, match=r"train\.KEY and data\.KEY"):
        lmlab.compare("builtin:tunes", output=tmp_path / "a", models="gpt2", settings={"model.layers": 3})
    assert not (tmp_path / "a").exists()
