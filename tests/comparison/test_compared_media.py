"""Comparisons on pictures, recordings and episodes: each ranked by the metric of its task, in sizes of one system."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lmlab
from lmlab.analysis.pictures.matching import match_captions, read_rows, score_retrieval
from lmlab.comparison.folder import add
from lmlab.comparison.leaderboard import read_rankings
from lmlab.comparison.variants import Variant, folder_name, parse_variant
from lmlab.runs.held_out import held_out_pictures
from lmlab.runs.storage import read_json

Image = pytest.importorskip("PIL.Image")
SETTINGS = {"train.batch": 8, "train.evaluations": 1}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty pictures of two classes, and a table with their captions."""
    home, numbers = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    lines = ["picture\tcaption"]
    for number in range(60):
        path = home / "folder" / ("dark" if number % 2 else "light") / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = numbers.integers(0, 100, (8, 8, 3)).astype(np.uint8) + np.uint8(0 if number % 2 else 150)
        Image.fromarray(pixels).save(path)
        lines.append(f"{path.relative_to(home)}\ta {path.parent.name} square number {number % 10}")
    (home / "captions.tsv").write_text("\n".join(lines))
    return home


def test_sizes_and_settings_of_one_system(pictures: Path, tmp_path: Path) -> None:
    done = lmlab.compare(
        pictures / "folder",
        output=tmp_path / "compared",
        models=["vit", "vit:patch=4", "vit:tiny:patch=8:layers=1"],
        size="tiny",
        budget="8steps",
        seeds=2,
        settings=SETTINGS,
        csv=True,
    )
    (ranking,) = read_rankings(done.board)
    assert {entry.name for entry in ranking.ranked} == {"vit", "vit:patch=4", "vit:tiny:patch=8:layers=1"}
    assert (ranking.units.kind, ranking.units.count) == ("examples", 6)
    for entry in ranking.ranked:
        accuracies = []
        for run in entry.run:
            model, split = lmlab.load(tmp_path / "compared" / run), held_out_pictures(tmp_path / "compared" / run)
            found = [each.value for each in model.predictor.predict(list(split.examples))]
            accuracies.append(np.mean([one == other for one, other in zip(found, split.labels, strict=True)]))
        assert entry.score == pytest.approx(np.mean(accuracies))
        assert entry.measured["majority"] == 0.5
        assert entry.training["tokens"] > 0
        assert entry.kind == "vit"
    recipe = read_json(tmp_path / "compared" / "vit-tiny-patch=8-layers=1-seed0" / "recipe.json")
    assert (recipe["model"]["patch"], recipe["model"]["layers"]) == (8, 1)
    page = done.report.read_text()
    assert "accuracy: higher is better" in page
    assert "lmlab predict FOLDER PICTURE" in page
    assert 'src="data:image/png;base64,' in page
    lmlab.train("vit", pictures / "folder", output=tmp_path / "other", size="tiny", budget="2steps", settings=SETTINGS)
    (ranking,) = read_rankings(add([tmp_path / "other"], tmp_path / "compared").board)
    assert "other" in [entry.name for entry in ranking.ranked]


def test_captions_and_retrieval(pictures: Path, tmp_path: Path) -> None:
    """Systems of two questions on the same data are ranked apart; the score is that of lmlab evaluate."""
    pytest.importorskip("sacrebleu")
    done = lmlab.compare(
        pictures / "captions.tsv",
        output=tmp_path / "compared",
        models="clip,captioner",
        size="tiny",
        budget="4steps",
        settings=SETTINGS,
    )
    rankings = {each.track.name: each for each in read_rankings(done.board)}
    assert rankings.keys() == {"captions", "retrieval"}
    (clip,), (captioner,) = rankings["retrieval"].ranked, rankings["captions"].ranked
    split = held_out_pictures(tmp_path / "compared" / "clip")
    rows = [row for row in read_rows(str(pictures / "captions.tsv")) if row.picture.name in split.names]
    matching, _ = match_captions(lmlab.load(tmp_path / "compared" / "clip").matcher, rows)
    scores = score_retrieval(matching)
    assert clip.score == pytest.approx(scores["text_to_picture_at_1"].estimate.value)
    assert clip.measured["recall_at_5"] == pytest.approx(scores["text_to_picture_at_5"].estimate.value)
    assert clip.measured["chance"] == pytest.approx(scores["text_to_picture_at_1"].chance)
    assert 0 <= captioner.score <= 100
    assert captioner.measured["exact_match"] == 0


def test_recordings_and_episodes(tmp_path: Path) -> None:
    whisper = lmlab.compare(
        "builtin:tones",
        output=tmp_path / "tones",
        models="whisper:nano:window=24",
        budget="2steps",
        settings={"train.batch": 4},
    )
    (ranking,) = read_rankings(whisper.board)
    assert ranking.ranked[0].score >= 0
    assert ranking.track.score.metric.better == "lower"
    episodes = lmlab.compare(
        "builtin:cart-pole",
        output=tmp_path / "pole",
        models="decision-transformer,decision-transformer:layers=1",
        size="tiny",
        budget="3steps",
        settings=SETTINGS,
    )
    (ranking,) = read_rankings(episodes.board)
    assert len(ranking.ranked) == 2
    assert all(0 < entry.score < 1 for entry in ranking.ranked)


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ("vit,clip", "compare systems that learn from the same data"),
        ("visualbert", "lmlab evaluate NEW DATA"),
        ("policy", "lmlab act RUN --env builtin:world"),
        ("vit:huge", "unknown size 'huge' of vit"),
        ("vit:small:tiny", "write a model as vit"),
        ("vit:patsch=4", "unknown setting model.patsch of vit"),
    ],
)
def test_what_cannot_be_compared_is_one_line(tmp_path: Path, models: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        lmlab.compare("builtin:signs", output=tmp_path / "compared", models=models, budget="2steps")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "compared").exists()


def test_names_of_variants() -> None:
    assert parse_variant("vit:B/16:dropout=0.1") == Variant("vit", "B/16", {"dropout": 0.1})
    assert folder_name("vit:B/16:dropout=0.1") == "vit-B-16-dropout=0.1"
