"""lmlab report: a page for every kind of run, that needs nothing else and overwrites nothing."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lmlab.cli import app
from lmlab.runs.report import gather_facts

pytestmark = pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning", "ignore:too few n-grams")
PLANETS = ["Mercury", "Venus", "Earth", "Mars", "Jupiter", "Saturn", "Uranus", "Neptune"]
TEXT = "".join(
    f"The planet {PLANETS[n % 8]} goes round the sun and so does <i>{PLANETS[(3 * n + 1) % 8]}</i> & all others. "
    f"On day {n} somebody looked at the planet with a new glass and wrote it down.\n"
    for n in range(200)
)
KINDS = {
    "ngram": ["--tokenizer", "bpe:300"],
    "lstm": ["--tokenizer", "words:min=2"],
    "gpt2": ["--tokenizer", "bpe:300"],
    "bert": ["--tokenizer", "wordpiece:200"],
    "electra": ["--tokenizer", "wordpiece:200"],
    "bart": ["--tokenizer", "bpe:300"],
}
VOID = {"meta", "input", "br", "wbr"}


def command(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of each ability after a few steps, one for translation, and one that was imported."""
    folder = tmp_path_factory.mktemp("reported")
    (folder / "book.txt").write_text(TEXT)
    lines = [
        (f"somebody saw {name} on day {n}", f"jemand sah {name} am Tag {n}") for n in range(40) for name in PLANETS
    ]
    for part, name in enumerate(("a.en", "a.de")):
        (folder / name).write_text("".join(f"{pair[part]}\n" for pair in lines))
    few = ["--size", "tiny", "--budget", "4steps", "--set", "train.log_every=1", "--set", "train.evaluations=2"]
    for kind, more in KINDS.items():
        options = [] if kind == "ngram" else few
        done = command("train", kind, folder / "book.txt", "-o", folder / kind, *more, *options)
        assert done.exit_code == 0, (kind, done.output, done.exception)
    pairs = ["--source", folder / "a.en", "--target", folder / "a.de", "--tokenizer", "bpe:300"]
    done = command("train", "transformer", *pairs, "-o", folder / "transformer", *few)
    assert done.exit_code == 0, (done.output, done.exception)
    assert command("convert", folder / "gpt2", folder / "hf", "--to", "huggingface").exit_code == 0
    assert command("convert", folder / "hf", folder / "imported").exit_code == 0
    return folder


class Checker(HTMLParser):
    """Fails where a tag is not closed, or something outside the page is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.headings: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag != "script"
        assert not {"src", "href"} & {name for name, _ in attrs}
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)


def read_page(path: Path) -> list[str]:
    checker = Checker()
    page = path.read_text(encoding="utf-8")
    checker.feed(page)
    assert checker.open == []
    assert "url(" not in page
    assert "<i>Venus" not in page, "what stands in the text is escaped"
    return checker.headings


@pytest.mark.parametrize(
    ("kind", "wanted", "left_out"),
    [
        ("ngram", ["What it writes", "Surprisal"], {"learning curve"}),
        ("lstm", ["Learning curve", "What it writes", "Surprisal"], set()),
        ("gpt2", ["Learning curve", "What it writes", "Surprisal"], set()),
        ("bert", ["Learning curve", "Predictions for masked words", "Surprisal"], set()),
        ("electra", ["Learning curve", "Predictions for masked words", "Surprisal"], set()),
        ("bart", ["Learning curve", "What it writes from a source"], {"surprisal"}),
        ("transformer", ["Learning curve", "What it writes from a source", "Surprisal"], set()),
        (
            "imported",
            ["What it writes"],
            {"held-out text", "surprisal", "validation", "learning curve", "cost", "changes"},
        ),
    ],
)
def test_every_ability_has_its_page(
    runs: Path, tmp_path: Path, kind: str, wanted: list[str], left_out: set[str]
) -> None:
    page = tmp_path / "page.html"
    done = command("report", runs / kind, "-o", page)
    assert done.exit_code == 0, (done.output, done.exception)
    headings = read_page(page)
    usual = ["Results and cost", *wanted, "Tokenizer"]
    assert headings[: len(usual)] == usual
    assert ("Not in this report" in headings) == bool(left_out)
    assert set(re.findall(r"without (.+?):", done.output)) == left_out


def test_json_has_the_same_facts_and_writes_nothing(runs: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs / "gpt2", run)
    done = command("report", run, "--json")
    facts = json.loads(done.stdout)
    assert not (run / "report.html").exists()
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    best = [line for line in lines if line.get("best")][-1]
    assert facts["validation"]["bits_per_byte"] == best["valid_bits_per_byte"]
    assert facts["cost"]["joules"] == lines[-1]["cost"]["joules"]
    assert [point["value"] for point in facts["curve"]["train"]] == [
        line["bits_per_byte"] for line in lines if line.get("loss") is not None
    ]
    assert {each["temperature"] for each in facts["samples"]["continuations"]} == {0.3, 0.7, 1.0}
    assert facts["left_out"] == {}
    assert str(runs) not in done.stdout, "places on this machine are nobody's business"


def test_surprisals_are_those_of_score(runs: Path) -> None:
    text = TEXT[:400]
    facts = gather_facts(runs / "gpt2", texts=[text])
    scored = json.loads(command("score", runs / "gpt2", "--text", text, "--json").stdout)
    assert facts["held_out"]["bits_per_byte"] == pytest.approx(scored["bits_per_byte"])
    [passage] = facts["surprisal"]
    assert "".join(piece for piece, _ in passage["pieces"]) == text
    assert sum(bits for _, bits in passage["pieces"]) == pytest.approx(scored["bits_per_byte"] * len(text.encode()))


def test_an_imported_run_takes_a_text(runs: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = command("report", runs / "imported", "-o", page, "--file", runs / "book.txt")
    assert done.exit_code == 0, done.output
    assert "Surprisal" in read_page(page)


def test_only_an_earlier_report_is_replaced(runs: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs / "ngram", run)
    for _ in range(2):
        assert command("report", run).exit_code == 0
    assert (run / "report.html").is_file()
    precious = tmp_path / "precious.html"
    precious.write_text("mine")
    done = command("report", run, "-o", precious)
    assert isinstance(done.exception, ValueError)
    assert "is not a report by lmlab" in str(done.exception)
    assert precious.read_text() == "mine"


def test_where_the_text_has_gone_the_rest_is_reported(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "gone.txt").write_text(TEXT)
    assert command("train", "ngram", tmp_path / "gone.txt", "-o", tmp_path / "run").exit_code == 0
    (tmp_path / "gone.txt").unlink()
    facts = gather_facts(tmp_path / "run")
    assert "gone.txt" in facts["left_out"]["held-out text"]
    assert facts["samples"]["continuations"][0]["prompt"] == ""
    assert facts["validation"] is not None


def test_changes_on_the_way_are_reported(runs: Path, tmp_path: Path) -> None:
    from lmlab.pages.run import make_page

    facts = gather_facts(runs / "ngram")
    assert "No change of settings is recorded" in make_page(facts)
    assert "step: 3, budget: 9steps" in make_page({**facts, "changes": [{"step": 3, "budget": "9steps"}]})


@pytest.mark.parametrize(
    ("arguments", "message"), [(["none"], "none does not exist"), (["ngram", "-o", "none/page.html"], "no folder")]
)
def test_errors_are_plain(runs: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str) -> None:
    monkeypatch.chdir(runs)
    done = command("report", *arguments)
    assert isinstance(done.exception, ValueError)
    assert message in str(done.exception)


def test_a_text_that_was_given_is_not_called_held_out(runs: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert command("report", runs / "gpt2", "-o", page, "--file", runs / "book.txt").exit_code == 0
    shown_text = page.read_text(encoding="utf-8")
    assert "held-out" not in shown_text
    assert "If the model was trained on it" in shown_text
