"""lmlab evaluate, predict, embed and find with a model of pictures and texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from captioned import caption_recipe, write_captions
from lmlab.runs import run as runs

Image = pytest.importorskip("PIL.Image")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learnt two colours, its table of captions, and the pictures of the table in folders."""
    home = tmp_path_factory.mktemp("home")
    (home / "pictures").mkdir()
    table = write_captions(home / "pictures", copies=5)
    runs.start(caption_recipe(table, budget="40steps"), home / "clip")
    for name in ("red", "blue"):
        (home / "classes" / name).mkdir(parents=True)
        for number in range(4):
            source = home / "pictures" / f"{name}-{name}-{number}.png"
            (home / "classes" / name / f"{number}.png").write_bytes(source.read_bytes())
        (home / "large" / name).mkdir(parents=True)
        Image.open(home / "classes" / name / "0.png").resize((80, 80)).save(home / "large" / name / "0.png")
    return home


def test_evaluate_measures_recall_on_what_was_held_out(home: Path, run_command: Any) -> None:
    table = str(home / "pictures" / "captions.tsv")
    found = json.loads(run_command("evaluate", str(home / "clip"), table, "--json").out)
    assert found["split"] == "test"
    assert found["rows"] == 8
    assert found["text_to_picture_at_5"] > found["chance"]["text_to_picture_at_5"]
    low, high = found["intervals"]["picture_to_text_at_1"]
    assert low <= found["picture_to_text_at_1"] <= high
    assert "recall@10, picture to text" in run_command("evaluate", str(home / "clip"), table).out


def test_evaluate_measures_zero_shot_accuracy_on_classes(home: Path, run_command: Any) -> None:
    options = ("--template", "{} above {}", "--json")
    found = json.loads(run_command("evaluate", str(home / "clip"), str(home / "classes"), *options).out)
    assert (found["classes"], found["majority"], found["split"]) == (2, 0.5, None)
    assert found["accuracy"] >= 0.75
    assert "most frequent class 50.0%" in run_command("evaluate", str(home / "clip"), str(home / "classes")).out


def test_predict_gives_zero_shot_labels(home: Path, run_command: Any) -> None:
    picture = str(home / "classes" / "red" / "0.png")
    options = ("--labels", "red, blue", "--template", "{} above {}", "--json")
    record = json.loads(run_command("predict", str(home / "clip"), picture, *options).out)
    assert record["value"] == "red"
    assert sum(record["probabilities"].values()) == pytest.approx(1)
    found = run_command("predict", str(home / "clip"), str(home / "classes"), "--labels", "red,blue")
    assert found.out.count(".png: ") == 8


def test_embed_writes_pictures_and_texts(home: Path, run_command: Any) -> None:
    (home / "lines.txt").write_text("red above red\nblue above blue\n")
    run_command("embed", str(home / "clip"), str(home / "classes"), "-o", str(home / "pictures.npy"))
    run_command("embed", str(home / "clip"), str(home / "lines.txt"), "-o", str(home / "texts.npy"))
    pictures, texts = np.load(home / "pictures.npy"), np.load(home / "texts.npy")
    names = json.loads((home / "pictures.json").read_text())["names"]
    assert pictures.shape == (8, 8)
    nearest = [("red", "blue")[number] for number in (pictures @ texts.T).argmax(1)]
    assert [Path(name).parent.name for name in names] == nearest


def test_find_writes_a_page(home: Path, run_command: Any) -> None:
    page = home / "page.html"
    found = json.loads(
        run_command("find", str(home / "clip"), "blue above blue", str(home / "classes"), "--json", "-o", str(page)).out
    )
    assert all("blue" in hit["name"] for hit in found["hits"][:4])
    assert page.read_text().count("data:image/png") == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("predict", "clip", "classes"), "has learnt no labels: name some"),
        (("predict", "clip", "classes", "--template", "{}"), "--template belongs to zero-shot labels"),
        (("predict", "clip", "classes", "--labels", "red"), "at least two"),
        (("predict", "clip", "--labels", "red,blue"), "nothing to predict"),
        (("evaluate", "clip", "lines.txt"), "contains no pictures"),
        (("evaluate", "clip", "flat"), "neither captions nor several classes"),
        (("find", "clip", " ", "classes"), "the query is empty"),
        (("find", "clip", "red", "nowhere"), "nowhere does not exist"),
    ],
)
def test_errors_are_one_line(home: Path, arguments: tuple[str, ...], message: str, run_command: Any) -> None:
    (home / "lines.txt").write_text("red above red\n")
    (home / "flat").mkdir(exist_ok=True)
    (home / "flat" / "0.png").write_bytes((home / "classes" / "red" / "0.png").read_bytes())
    places = [str(home / word) if word in ("clip", "classes", "lines.txt", "flat") else word for word in arguments]
    said = run_command(*places)
    assert said.code == 2
    assert message in said.err
    assert "Traceback" not in said.err


def test_a_word_is_written_on_pictures(home: Path, run_command: Any) -> None:
    options = ("--word", "blue", "--template", "{} above {}", "--json", "-o", str(home / "attack.html"))
    found = json.loads(run_command("inspect", "typographic", str(home / "clip"), str(home / "large"), *options).out)
    assert found["pictures"] == 2
    assert set(found["labelled_as_word"]) == {"plain", "blank", "written"}
    assert (home / "attack.html").read_text().count("data:image/png") == 4
