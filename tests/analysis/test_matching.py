"""Pictures and texts in one space against sums by hand: vectors, labels, search and recall."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from captioned import SETTINGS, make_model
from lmlab.analysis.pictures.matching import (
    Matcher,
    check_labels,
    match_captions,
    read_rows,
    score_retrieval,
    score_zero_shot,
)
from lmlab.analysis.pictures.search import search
from lmlab.language_model import LanguageModel
from lmlab.models.defaults.vision import VISION
from lmlab.pages.views import to_page
from lmlab.tokenizers import resolve
from lmlab.tokenizers.frames import make_frame
from lmlab.tokenizers.processors.pictures import PictureProcessor

Image = pytest.importorskip("PIL.Image")
TEXTS = ["red above blue", "blue above red", "green above green", "red above green"]
FRAME = next(system.frame for system in VISION if system.name == "clip")


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    tokenizer = resolve("words", lambda: iter(TEXTS)).with_specials(["cls"])
    clip = make_model(vocabulary=max(tokenizer.vocabulary, SETTINGS["vocabulary"])).eval()
    processor = PictureProcessor(height=8, width=12, channels=3)
    frame = make_frame(FRAME, tokenizer)
    return LanguageModel(model=clip, tokenizer=tokenizer, own_frame=frame, processor=processor)


@pytest.fixture(scope="module")
def matcher(model: LanguageModel) -> Matcher:
    return model.matcher


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine pictures with four captions in three classes; one file is no picture."""
    home, numbers, rows = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0), ["picture\tcaption\tlabel"]
    for number in range(9):
        Image.fromarray(numbers.integers(0, 256, (10 + number, 14, 3)).astype(np.uint8)).save(home / f"{number}.png")
        rows.append(f"{number}.png\t{TEXTS[number % 4]}\t{('red', 'blue', 'green')[number % 3]}")
    (home / "bad.png").write_text("no picture")
    rows.append(f"bad.png\t{TEXTS[0]}\tred")
    (home / "captions.tsv").write_text("\n".join(rows))
    return home / "captions.tsv"


def pixels(table: Path, number: int) -> np.ndarray:
    return np.asarray(Image.open(table.parent / f"{number}.png"), np.uint8)


def test_vectors_do_not_depend_on_the_batch(matcher: Matcher, table: Path) -> None:
    texts = matcher.embed_texts([*TEXTS, "red " * 50])
    np.testing.assert_allclose(np.linalg.norm(texts, axis=1), 1, rtol=1e-5)
    for number, text in enumerate(TEXTS):
        np.testing.assert_allclose(matcher.embed_texts([text])[0], texts[number], atol=1e-5)
    found = matcher.embed_sources([row.picture for row in read_rows(str(table))])
    assert found.numbers == list(range(9))
    assert "bad.png is not a picture" in found.problems[0]
    for number in range(9):
        np.testing.assert_allclose(matcher.embed_pixels([pixels(table, number)])[0], found.vectors[number], atol=1e-5)


def test_labels_are_the_softmax_over_averaged_templates(matcher: Matcher, table: Path) -> None:
    vectors, labels = matcher.embed_pixels([pixels(table, 0)]), ["red", "blue"]
    templates = ["{} above blue", "green above {}"]
    means = []
    for label in labels:
        both = sum(matcher.embed_texts([template.replace("{}", label)])[0] for template in templates)
        means.append(both / np.linalg.norm(both))
    scores = torch.tensor(vectors @ np.stack(means).T) * float(matcher.model.scale())
    found = matcher.classify(vectors, labels, templates)
    np.testing.assert_allclose(found.probabilities, scores.softmax(-1).numpy(), atol=1e-5)
    assert found.best == [labels[int(scores.argmax())]]
    assert [name for name, _ in found.ranked(0)] == sorted(
        labels, key=lambda name: -found.probabilities[0][labels.index(name)]
    )


def test_recall_is_that_of_a_search_by_hand(matcher: Matcher, table: Path) -> None:
    rows = read_rows(str(table))
    matching, problems = match_captions(matcher, rows)
    assert len(problems) == 1
    scores = score_retrieval(matching)
    pictures = np.concatenate([matcher.embed_pixels([pixels(table, number)]) for number in range(9)])
    texts = matcher.embed_texts(TEXTS)
    order = np.argsort(-(pictures @ texts.T), axis=1)
    first = np.mean([order[number, 0] == number % 4 for number in range(9)])
    assert scores["picture_to_text_at_1"].estimate.value == pytest.approx(first)
    assert scores["picture_to_text_at_1"].chance == pytest.approx(1 / 4)
    assert scores["picture_to_text_at_5"].estimate.value == 1
    other = np.argsort(-(texts @ pictures.T), axis=1)
    first = np.mean([other[number, 0] % 4 == number for number in range(4)])
    assert scores["text_to_picture_at_1"].estimate.value == pytest.approx(first)
    assert scores["text_to_picture_at_1"].chance == pytest.approx(np.mean([3 / 9, 2 / 9, 2 / 9, 2 / 9]))


def test_zero_shot_accuracy(matcher: Matcher, table: Path) -> None:
    rows = read_rows(str(table))[:9]
    found = matcher.classify(matcher.embed_sources([row.picture for row in rows]).vectors, ["red", "blue", "green"])
    right = np.mean([best == row.label for best, row in zip(found.best, rows, strict=True)])
    assert score_zero_shot(found, [str(row.label) for row in rows]).value == pytest.approx(right)


def test_a_search_by_text_and_by_picture(matcher: Matcher, table: Path, model: LanguageModel) -> None:
    found = search(matcher, "red above blue", str(table), top=3)
    cosines = (
        matcher.embed_sources([row.picture for row in read_rows(str(table))[:9]]).vectors
        @ matcher.embed_texts(["red above blue"])[0]
    )
    assert [hit.cosine for hit in found.hits] == pytest.approx(sorted(cosines.tolist(), reverse=True)[:3], abs=1e-5)
    assert found.searched == 9
    page = to_page(found)
    assert page.count("data:image/png") == 3
    assert "skipped" in page
    own = search(matcher, str(table.parent / "5.png"), str(table), top=2)
    assert Path(own.hits[0].name).name == "5.png"
    assert own.hits[0].cosine == pytest.approx(1, abs=1e-5)
    assert own.hits[0].texts == (TEXTS[1],)
    lines = table.parent / "lines.txt"
    lines.write_text("\n".join([*TEXTS, ""]))
    texts = model.find(str(table.parent / "5.png"), lines, top=9)
    assert {hit.name for hit in texts.hits} == set(TEXTS)
    assert texts.table().columns[2] == "text"
    with pytest.raises(ValueError, match=r"6\.jpg does not exist"):
        search(matcher, "6.jpg", str(table))


@pytest.mark.parametrize(
    ("labels", "templates", "message"),
    [
        (["cat"], ["{}"], "at least two"),
        (["cat", "cat"], ["{}"], "at least two different"),
        (["cat", " "], ["{}"], "at least two"),
        (["cat", "dog"], ["a photo"], "mark the place of the label"),
        (["cat", "dog"], [], "no template"),
    ],
)
def test_labels_and_templates_that_do_not_fit(labels: list[str], templates: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_labels(labels, templates)
