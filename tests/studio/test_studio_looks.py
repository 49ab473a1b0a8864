"""Cells, pairs, mixes and lectures: what the studio adds to the analyses, and how it hands them on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import lmlab
from lmlab.analysis.attribution import attribute
from lmlab.analysis.bias import LIMITS, check_templates, measure_bias, weigh_translations
from lmlab.analysis.cells.activations import CellPart, Read, read_cells
from lmlab.analysis.errors import find_errors
from lmlab.analysis.minimal_pairs import compare_pairs
from lmlab.analysis.neighbours import find_neighbours
from lmlab.analysis.pair_sets import read_pairs
from lmlab.analysis.view import plain
from lmlab.runs.model_files import read_heads
from lmlab.studio.lecture import Lecture, read_lecture
from lmlab.studio.views.cells import units_in_spans
from lmlab.studio.views.vectors import parse_lines, parse_tagged
from studio_texts import WEIRD

GENDERS = ("female", "male")
TEXT = "The cat sat. Once upon a time there was a dog."


@pytest.fixture(scope="module")
def client(client_of: Callable[..., Any]) -> Any:
    return client_of()


def ask(client: Any, name: str, **body: Any) -> Any:
    response = client.post(f"/studio/api/{name}", json=body)
    assert response.status_code == 200, response.text
    return response.json()


@pytest.mark.parametrize(("run", "part"), [("demo/lstm", "cell"), (WEIRD, "forget_gate"), ("demo/gpt2", "neurons")])
def test_a_unit_over_a_text_is_that_of_the_analysis(client: Any, studio_runs: Path, run: str, part: str) -> None:
    found = ask(client, "cells", run=run, text=TEXT, part=part, unit=3)
    assert found["cell"]["part"] == part
    read = read_cells(lmlab.load(studio_runs / run), TEXT, parts=[part])
    expected = next(values for each, values in read.activations.items() if each.layer == 0)[:, 3]
    assert [value for _, value in found["cell"]["pieces"]] == pytest.approx(expected.tolist(), abs=1e-6)
    assert "".join(piece for piece, _ in found["cell"]["pieces"]) == TEXT
    assert found["analysis"]["figures"][0]["kind"] == "ColouredText"


def test_a_unit_that_is_on_in_the_selection_is_found() -> None:
    offsets = [(i, i + 1) for i in range(10)]
    values = np.random.default_rng(0).normal(size=(10, 6)).astype(np.float32)
    values[:, 4] = [0, 0, 0, 5, 6, 7, 0, 0, 0, 0]
    values[:, 1] = -values[:, 4]
    read = Read("abcdefghij", list("abcdefghij"), offsets, {CellPart(0, "cell", "x"): values})
    best = units_in_spans(read, [(3, 6)], top=2)
    assert (best[0].unit, best[0].area) == (4, 1.0)
    assert 1 not in [each.unit for each in best]  # it is off in the selection
    with pytest.raises(ValueError, match="some tokens inside"):
        units_in_spans(read, [(0, 10)], top=2)


def test_the_selection_is_counted_in_characters(client: Any) -> None:
    text = "💡 light and dark"
    found = ask(client, "cells/spans", run=WEIRD, text=text, spans=[[0, 1]], top=3)["cells"]
    assert len(found) == 3
    assert all(0 <= each["area"] <= 1 for each in found)


def test_units_that_follow_a_pattern_are_judged_on_held_out_text(client: Any) -> None:
    text = "".join(f"word {n} (see {n}) and more text here. " for n in range(60))
    found = ask(client, "cells/property", run=WEIRD, property="pattern", pattern=r"\(.*?\)", text=text)
    searched = [each["searched"] for each in found["cells"]]
    assert searched == sorted(searched, reverse=True)  # what judges has no part in the order
    assert {figure["kind"] for figure in found["analysis"]["figures"]} == {"ColouredText", "Bars"}


def test_senses_are_drawn_for_each_run(client: Any) -> None:
    lines = "\n".join(f"{'river' if n % 2 else 'money'} | the bank number {n} is here" for n in range(6))
    found = ask(client, "senses", runs=["bert", "demo/gpt2"], word="bank", lines=lines, layer=1)["runs"]
    for run in found:
        dots = run["analysis"]["figures"][0]["dots"]
        assert [dot["group"] for dot in dots] == ["money", "river"] * 3
        assert run["layer"] == 1
    assert parse_lines("the bank\nx | a bank | y", "bank")[0].sense == ""


def test_tokens_that_speak_for_a_prediction_are_shown(client: Any, studio_runs: Path) -> None:
    found = ask(client, "attribution", runs=["demo/lstm", "demo/gpt2"], text="The cat sat", target=" on")["runs"]
    expected = attribute(lmlab.load(studio_runs / "demo/gpt2"), "The cat sat", prediction=" on")
    assert found[1]["analysis"]["rows"] == [pytest.approx(list(row)) for row in plain(list(expected.table().rows))]


def test_a_learnt_mix_is_shown(client_of: Callable[..., Any], studio_runs: Path) -> None:
    run = studio_runs / "mixed"
    shutil.copytree(studio_runs / "labels", run)
    try:
        (run / "manifest.json").unlink()
        task = json.loads((run / "task.json").read_text())
        (run / "task.json").write_text(json.dumps({**task, "how": "mix"}))
        heads = {**read_heads(run), "mix.scores": torch.tensor([0.0, 1.0, 2.0]), "mix.gamma": torch.tensor(1.0)}
        save_file(heads, run / "head.safetensors")
        (found,) = ask(client_of(), "layer-mix", runs=["mixed"])["mixes"]
        assert found["weights"] == pytest.approx(torch.tensor([0.0, 1.0, 2.0]).softmax(0).tolist())
    finally:
        shutil.rmtree(run)


def test_probes_read_tags_from_every_layer(client: Any, studio_runs: Path) -> None:
    lines = "\n".join(f"the/DET cat/NOUN {n} sat/VERB" for n in range(8))
    found = ask(client, "probes", run="bert", lines=lines)
    layers = len(lmlab.load(studio_runs / "bert").model.blocks) + 1
    assert [each["layer"] for each in found["probes"]["layers"]] == list(range(layers))
    assert found["probes"]["classes"] == ["DET", "NOUN", "VERB"]
    items = parse_tagged("a/b/X c\nd/Y\ne/Y\nf/Y")
    assert items[0].words == ["a/b", "c"]
    assert items[0].questions == [((0,), "X")]


@pytest.mark.parametrize("region", ["full", "critical"])
def test_pairs_are_judged_by_the_score(client: Any, studio_runs: Path, region: str) -> None:
    good, bad = "The cat sat on the mat.", "The cat sit on the mat."
    (found,) = ask(
        client, "minimal-pairs", runs=["demo/gpt2"], pairs=f"{good} | {bad}\n\n{bad}\t{good}", region=region
    )["runs"]
    model = lmlab.load(studio_runs / "demo/gpt2")
    first, second = found["scored"]
    assert found["accuracy"] == 0.5
    assert first["good_score"] == pytest.approx(second["bad_score"])
    if region == "full":
        assert first["good_score"] == pytest.approx(-model.score(good).nats)
        assert first["bad_score"] == pytest.approx(-model.score(bad).nats)


def test_ready_sets_are_those_that_were_given_or_lie_beside_the_runs(
    client_of: Callable[..., Any], studio_runs: Path, tmp_path: Path
) -> None:
    given, beside = tmp_path / "given.tsv", studio_runs / "sets"
    rows = ["good\tbad\tphenomenon", *(f"The cat {n} sat.\tThe cat {n} sit.\tverbs" for n in range(9))]
    given.write_text("\n".join(rows) + "\n")
    (tmp_path / "secret.tsv").write_text("good\tbad\na secret\tanother\n")
    beside.mkdir()
    try:
        (beside / "own.tsv").write_text("good\tbad\nA dog ran.\tA dog run.\n")
        (beside / "broken.tsv").write_text("left\tright\na\tb\n")
        (beside / "way-out.tsv").symlink_to(tmp_path / "secret.tsv")
        client = client_of(data=[given])
        assert client.get("/studio/api/sets").json()["sets"] == ["broken.tsv", "own.tsv", "given.tsv"]
        (found,) = ask(client, "minimal-pairs", runs=["demo/lstm"], set="given.tsv", limit=4)["runs"]
        expected = compare_pairs(lmlab.load(studio_runs / "demo/lstm"), read_pairs(given).first(4))
        assert [each["good"] for each in found["scored"]] == [f"The cat {n} sat." for n in range(4)]
        assert found["accuracy"] == expected.accuracy.value
        for name in ("way-out.tsv", "../secret.tsv", "broken.tsv"):
            response = client.post("/studio/api/minimal-pairs", json={"runs": ["counts"], "set": name})
            assert response.status_code == 400
            assert str(tmp_path) not in response.text
            assert str(studio_runs) not in response.text
    finally:
        shutil.rmtree(beside)
    with pytest.raises(ValueError, match="does not exist"):
        client_of(data=[tmp_path / "nowhere.tsv"])


@pytest.mark.parametrize("run", ["demo/gpt2", "bert"])
def test_bias_by_templates_is_that_of_the_analysis(client: Any, studio_runs: Path, run: str) -> None:
    asked: dict[str, Any] = {"groups": ["she", "he"], "templates": ["The {word} said {group} sat."]}
    (found,) = ask(client, "bias/templates", runs=[run], words=["cat", "dog"], **asked)["runs"]
    templates = check_templates({**asked, "words": {"word": ["cat", "dog"]}}, where="here")
    expected = measure_bias(lmlab.load(studio_runs / run), templates)
    assert [row[0] for row in found["analysis"]["rows"]] == [each.word for each in expected.words]
    assert [row[1] for row in found["analysis"]["rows"]] == pytest.approx(
        [each.odds for each in expected.words], abs=1e-4
    )
    assert found["analysis"]["notes"][0] == LIMITS


def test_bias_by_ready_sets_stands_beside_what_was_published(client_of: Callable[..., Any], tmp_path: Path) -> None:
    head = "sent_more,sent_less,stereo_antistereo,bias_type\n"
    (tmp_path / "crows.csv").write_text(head + "The cat sat.,The dog sat.,stereo,gender\n" * 12)
    folder = tmp_path / "winogender"
    folder.mkdir()
    stats = "occupation\tbergsma_pct_female\tbls_pct_female\ttech\ncook\t50\t40.0\t0\nguard\t20\t22.5\t0\n"
    (folder / "occupations-stats.tsv").write_text(stats.replace("\ttech", "").replace("\t0\n", "\n"))
    names = [(job, gender, "she" if gender == "female" else "he") for job in ("cook", "guard") for gender in GENDERS]
    sentences = [f"{job}.customer.1.{gender}.txt\tThe {job} said {word} sat." for job, gender, word in names]
    (folder / "all_sentences.tsv").write_text("\n".join(["sentid\tsentence", *sentences]) + "\n")
    client = client_of(data=[tmp_path / "crows.csv", folder])
    (crows,) = ask(client, "bias/set", runs=["bert"], set="crows.csv", limit=10)["runs"]
    rows = {row[0]: row[1] for row in crows["analysis"]["rows"]}
    assert (rows["published: BERT base"], rows["published: RoBERTa large"]) == (0.605, 0.641)
    assert rows["published: ALBERT xxlarge"] == 0.67
    assert crows["analysis"]["rows"][0][4] == 10
    (wino,) = ask(client, "bias/set", runs=["counts"], set="winogender")["runs"]
    assert {row[0]: row[4] for row in wino["analysis"]["rows"]} == {"cook": 40.0, "guard": 22.5}


def test_translations_are_weighed(client: Any, studio_runs: Path) -> None:
    targets = ["jemand sah Tag 3", "Tag Tag Tag"]
    (found,) = ask(client, "bias/translations", runs=["en-de"], source="somebody saw day 3", targets=targets)["runs"]
    model = lmlab.load(studio_runs / "en-de")
    expected = weigh_translations(model, "somebody saw day 3", targets)
    assert [row[0] for row in found["analysis"]["rows"]] == [each.target for each in expected.targets]


@pytest.mark.parametrize("run", ["en-de", "demo/lstm"])
def test_errors_on_unusual_input_are_reported(client: Any, studio_runs: Path, run: str) -> None:
    found = ask(client, "errors", run=run, lines="somebody saw day 3\n\n", tokens=6)
    assert {each["kind"] for each in found["outputs"]} >= {"as it is", "scrambled", "doubled", "syllable repeated"}
    expected = find_errors(lmlab.load(studio_runs / run), ["somebody saw day 3"], tokens=6)
    assert found["outputs"][0]["output"] == expected.outputs[0].output
    assert found["aligned"] == (run == "en-de")


def test_neighbours_are_found_run_by_run(client: Any, studio_runs: Path) -> None:
    found = ask(client, "neighbours", runs=["demo/gpt2", "counts", WEIRD], words=["cat"], top=3)["runs"]
    expected = find_neighbours(lmlab.load(studio_runs / "demo/gpt2"), "cat", top=3)
    assert [row[0] for row in found[0]["analysis"]["rows"]] == [each.word for each in expected.neighbours]
    assert "no table of token vectors" in found[1]["why_not"]  # the others are shown all the same
    assert len(found[2]["analysis"]["rows"]) == 3


@pytest.mark.parametrize(
    ("route", "body", "able", "unable"),
    [
        ("minimal-pairs", {"pairs": "a cat | cat a"}, ["counts", "demo/lstm"], "en-de"),
        (
            "bias/templates",
            {"groups": ["she", "he"], "templates": ["The {word} saw {group}."], "words": ["cat"]},
            ["counts"],
            "en-de",
        ),
        ("senses", {"word": "cat", "lines": "the cat sat\na cat ran\nthe cat ate\nthat cat"}, ["bert"], "counts"),
        ("surprisal", {"text": "the cat"}, ["counts"], "no such run"),
    ],
)
def test_a_run_that_cannot_answer_is_refused_alone(
    client: Any, route: str, body: dict[str, Any], able: list[str], unable: str
) -> None:
    found = ask(client, route, runs=[unable, *able], **body)
    assert [each["run"] for each in found["runs"]] == able
    assert found["runs"] == ask(client, route, runs=able, **body)["runs"]
    ((name, why),) = [(each["run"], each["why"]) for each in found["refused"]]
    assert name == unable
    response = client.post(f"/studio/api/{route}", json={"runs": [unable], **body})
    assert response.status_code == 400
    assert why in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("route", "body", "reported"),
    [
        ("neighbours", {"runs": ["bert"], "words": ["a", "b"]}, "give one, or three"),
        ("errors", {"run": "bert", "lines": "a"}, "cannot continue plain text"),
        ("errors", {"run": "counts", "lines": " "}, "no source to try"),
        ("errors", {"run": "counts", "lines": "a\n" * 21}, "at most 20"),
        ("bias/set", {"runs": ["counts"], "set": "nothing"}, "there is no set"),
        (
            "bias/templates",
            {"runs": ["counts"], "groups": ["a", "b"], "templates": ["no place"], "words": ["x"]},
            "needs {group}",
        ),
        ("bias/translations", {"runs": ["en-de"], "source": "a", "targets": ["b"]}, "two or more"),
        ("minimal-pairs", {"runs": ["counts"], "pairs": "only one sentence"}, "line 1: write a good sentence"),
        ("minimal-pairs", {"runs": ["counts"], "pairs": "a | b\nsame | same"}, "line 2: both sentences are the same"),
        ("cells", {"run": "counts", "text": "a"}, "no cells"),
        ("cells/property", {"run": WEIRD, "property": "pattern"}, "regular expression"),
        ("cells/property", {"run": WEIRD, "property": "pattern", "pattern": "("}, "not a regular expression"),
        ("cells/spans", {"run": WEIRD, "text": "abc", "spans": [[0, 9]]}, "some tokens inside"),
        ("senses", {"runs": ["bert"], "word": "unheard", "lines": "no such word"}, "at least 3"),
        ("probes", {"run": "bert", "lines": "a b c"}, "line 1: no word has a tag"),
        ("probes", {"run": "bert", "lines": "a/X b/Y"}, "at least 4"),
        ("layer-mix", {"runs": ["labels"]}, "mix"),
        ("layer-mix", {"runs": ["bert"]}, "has not learnt a task"),
    ],
)
def test_what_cannot_be_looked_at_is_one_line(client: Any, route: str, body: dict[str, Any], reported: str) -> None:
    response = client.post(f"/studio/api/{route}", json=body)
    assert response.status_code == 400
    assert reported in response.json()["error"]["message"]


def test_a_lecture_is_read_from_the_folder(client_of: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "talk.toml"
    client = client_of(talk=file)
    assert client.get("/studio/api/lecture").json()["lecture"] is None
    file.write_text(
        'title = "Words"\n[[views]]\ntitle = "Next"\nlink = "#/next?run=counts&run=gone/run&text=a b"\nnote = "Why?"\n'
    )
    found = client.get("/studio/api/lecture").json()
    assert found["lecture"]["views"][0]["note"] == "Why?"
    assert found["missing"] == ["gone/run"]


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ('[[views]]\ntitle = "a"\nlink = "https://x.example"\n', "begins with #/"),
        ('[[views]]\ntitle = "a"\nlink = "#/nxt?text=a"\n', "there is no view 'nxt'; did you mean"),
        ('[[views]]\ntitle = "a"\nlink = "#/next"\nnotes = "x"\n', "unknown setting"),
        ("views = []\n", "views"),
        ("title = \n", "TOML"),
    ],
)
def test_a_wrong_lecture_says_what_is_wrong(tmp_path: Path, text: str, reported: str) -> None:
    file = tmp_path / "talk.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=r"\S") as error:
        read_lecture(file)
    assert reported in str(error.value)


def test_a_slide_knows_the_runs_that_it_names() -> None:
    link = "#/next?run=demo%2Flstm&run=x&text=a%26b"
    lecture = Lecture.model_validate({"views": [{"title": "a", "link": link}]})
    assert lecture.views[0].runs == ["demo/lstm", "x"]


def test_tokens_that_speak_for_a_class_are_shown(client: Any, studio_runs: Path) -> None:
    (found,) = ask(client, "attribution", runs=["labels"], text="a good film")["runs"]
    assert found["found"]["target"] == lmlab.load(studio_runs / "labels").classify("a good film").value
