"""`lmlab inspect`: each analysis as a user calls it, with tables, JSON and files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from rich.text import Text

from lmlab.analysis.layer_mix import LearntMix, TaskLayers
from lmlab.cli.commands import load_command
from lmlab.cli.inspect import COMMANDS
from lmlab.cli.inspect.display import show
from lmlab.runs.storage import write_tensors
from standins import TEXT, write_run
from translators import write_translator

pytestmark = pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning", "ignore:too few n-grams")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for kind in ("gpt2", "lstm", "ngram"):
        (folder / kind).mkdir()
        write_run(folder / kind, kind)
    return folder


@pytest.mark.parametrize("name", COMMANDS)
def test_a_row_says_what_the_analysis_says(name: str) -> None:
    command = load_command(COMMANDS[name])
    assert command.name == name
    assert command.help.splitlines()[0] == COMMANDS[name].help
    assert "Example" in command.help
    for text in (command.help, *(param.help or "" for param in command.params)):
        assert Text.from_markup(text).plain == text.replace("\\[", "["), "write \\\\[ for a bracket before a letter"


@pytest.mark.parametrize("kind", ["gpt2", "lstm", "ngram"])
def test_minimal_pairs(run_command, runs: Path, tmp_path: Path, kind: str) -> None:
    (tmp_path / "pairs.tsv").write_text("good\tbad\nthe cat sat .\tthe cat mat .\na dog ran .\ta dog log .\n")
    said = run_command("inspect", "minimal-pairs", str(runs / kind), "pairs.tsv", "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert found["accuracy"] in (0.0, 0.5, 1.0)
    assert [item["good"] for item in found["items"]] == ["the cat sat .", "a dog ran ."]
    said = run_command("inspect", "minimal-pairs", str(runs / kind), "pairs.tsv", "-o", "pairs.html")
    assert said.code == 0, said.err
    assert "of 2 pairs are right" in said.out
    page = (tmp_path / "pairs.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")


def test_surprisal(run_command, runs: Path, tmp_path: Path) -> None:
    gpt2, lstm = str(runs / "gpt2"), str(runs / "lstm")
    found = json.loads(run_command("inspect", "surprisal", gpt2, "--text", "the cat sat", "--json").out)
    assert [word["word"] for word in found["texts"][0]["words"]] == ["the", "cat", "sat"]
    (tmp_path / "lines.txt").write_text("the cat\n\na dog ran\n")
    said = run_command("inspect", "surprisal", gpt2, "lines.txt", "-o", "words.csv")
    assert said.code == 0, said.err
    lines = (tmp_path / "words.csv").read_text().splitlines()
    assert lines[0] == "text,position,word,letters,start,end,tokens,bits"
    assert [line.split(",")[2] for line in lines[1:]] == ["the", "cat", "a", "dog", "ran"]
    said = run_command("inspect", "surprisal", gpt2, "--versus", lstm, "--text", "the cat sat", "-o", "both.html")
    assert said.code == 0, said.err
    assert "difference" in said.out


def test_attention(run_command, runs: Path, tmp_path: Path) -> None:
    gpt2 = str(runs / "gpt2")
    found = json.loads(run_command("inspect", "attention", gpt2, "the cat sat", "--json").out)
    assert len(found["heads"]) == 4
    assert len(found["weights"][0][0]) == len(found["queries"])
    for arguments in (["-o", "a.html"], ["--layer", "1", "--head", "0", "-o", "a.png"], ["--rollout", "-o", "r.csv"]):
        said = run_command("inspect", "attention", gpt2, "the cat sat", *arguments)
        assert said.code == 0, said.err
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert (
        "has the largest weight from"
        in run_command("inspect", "attention", gpt2, "the cat sat", "--link", "sat:cat").out
    )


def test_cells(run_command, runs: Path, tmp_path: Path) -> None:
    lstm = str(runs / "lstm")
    (tmp_path / "text.txt").write_text(TEXT)
    said = run_command("inspect", "cells", lstm, "text.txt", "--regex", "cat|dog", "--top", "5", "-o", "found.html")
    assert said.code == 0, said.err
    assert "AUC" in said.out
    found = json.loads(run_command("inspect", "cells", lstm, "--text", "the cat sat", "--unit", "3", "--json").out)
    assert (found["part"], found["unit"]) == ("hidden", 3)
    said = run_command("inspect", "cells", lstm, "--text", "the cat", "--part", "forget_gate", "-o", "gate.png")
    assert said.code == 0, said.err


def test_probes(run_command, runs: Path, tmp_path: Path) -> None:
    rows = [f"{text}\t{label}" for text, label in (("the cat sat .", "cat"), ("a dog ran .", "dog")) for _ in range(12)]
    (tmp_path / "labels.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    said = run_command("inspect", "probes", str(runs / "lstm"), "labels.tsv", "--json")
    assert said.code == 0, said.err
    assert len(json.loads(said.out)["layers"]) == 2
    sentence = "1\tthe\t_\tDET\tDT\t_\t2\tdet\t_\t_\n2\tcat\t_\tNOUN\tNN\t_\t0\troot\t_\t_\n\n"
    (tmp_path / "tree.conllu").write_text(sentence * 20)
    said = run_command("inspect", "probes", str(runs / "gpt2"), "tree.conllu", "-o", "probes.html")
    assert said.code == 0, said.err
    assert "100.0% right" in said.out
    said = run_command("inspect", "probes", str(runs / "ngram"), "tree.conllu")
    assert said.code == 2


def test_senses(run_command, runs: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    said = run_command("inspect", "senses", str(runs / "gpt2"), "text.txt", "--word", "cat", "-o", "cat.html")
    assert said.code == 0, said.err
    assert "occurrences of “cat”" in said.out
    assert "give the word to show" in run_command("inspect", "senses", str(runs / "gpt2"), "text.txt").err


def test_bias(run_command, runs: Path, tmp_path: Path) -> None:
    said = run_command("inspect", "bias", str(runs / "ngram"), "-o", "bias.html")
    assert said.code == 0, said.err
    assert "Blodgett" in said.out
    (tmp_path / "crows.csv").write_text(
        "id,sent_more,sent_less,stereo_antistereo,bias_type\n0,the cat sat,the dog sat,stereo,animals\n"
    )
    found = json.loads(run_command("inspect", "bias", str(runs / "lstm"), "crows.csv", "--json").out)
    assert found["pairs"] == 1
    assert "belong together" in run_command("inspect", "bias", str(runs / "lstm"), "--source", "a").err


def test_gradients_and_neighbours(run_command, runs: Path, tmp_path: Path) -> None:
    gpt2 = str(runs / "gpt2")
    found = json.loads(run_command("inspect", "gradients", gpt2, "the cat", "--target", "sat", "--json").out)
    assert len(found["tokens"]) == len(found["values"])
    said = run_command("inspect", "gradients", gpt2, "the cat", "-o", "g.html")
    assert said.code == 0, said.err
    found = json.loads(run_command("inspect", "neighbours", gpt2, "cat", "--top", "3", "--json").out)
    assert len(found["neighbours"]) == 3
    said = run_command("inspect", "neighbours", gpt2, "cat", "dog", "mat", "-o", "n.png")
    assert said.code == 0, said.err


def test_layers(run_command, tmp_path: Path) -> None:
    (tmp_path / "tuned").mkdir()
    (tmp_path / "tuned" / "task.json").write_text('{"kind": "classification"}')
    scores = torch.tensor([0.0, 1.0, 2.0])
    write_tensors(tmp_path / "tuned" / "head.safetensors", {"mix.scores": scores, "mix.gamma": torch.tensor(1.5)})
    found = json.loads(run_command("inspect", "layers", "tuned", "--json").out)
    assert found["runs"][0]["weights"] == pytest.approx(scores.softmax(0).tolist())
    assert "reads layer 2 most (66.5%)" in run_command("inspect", "layers", "tuned").out
    write_tensors(tmp_path / "tuned" / "head.safetensors", {"head.weight": scores})
    assert "has learnt no mix of layers" in run_command("inspect", "layers", "tuned").err
    (tmp_path / "tuned" / "task.json").unlink()
    assert "lmlab finetune tuned DATA -o NEW --how mix" in run_command("inspect", "layers", "tuned").err
    assert "none does not exist" in run_command("inspect", "layers", "none").err


def test_an_even_mix_reads_all_layers_alike() -> None:
    assert (
        "reads all layers alike (33.0% to 33.9%)"
        in TaskLayers([LearntMix("a", "tagging", [0.33, 0.339, 0.331], 1)]).lead()
    )
    assert "reads layer 0 most (37.0%)" in TaskLayers([LearntMix("a", "tagging", [0.37, 0.33, 0.3], 1)]).lead()


@pytest.mark.parametrize("width", [30, 40, 60, 200])
def test_numbers_are_never_cut(width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    mixed = LearntMix("a run with a long name", "classification", [0.1234, 0.2345, 0.6421], 0.99)
    show(TaskLayers([mixed, mixed]), output=None, json_=False)
    said = capsys.readouterr().out
    assert all(said.count(number) >= 2 for number in ("0.99", "12.3%", "23.4%", "64.2%"))
    assert width <= 40 or max(map(len, said.splitlines())) <= width


def test_errors(run_command, runs: Path, tmp_path: Path) -> None:
    said = run_command("inspect", "errors", str(runs / "lstm"), "--text", "the cat", "--tokens", "12", "-o", "e.html")
    assert said.code == 0, said.err
    assert "syllable repeated" in said.out
    translator = str(write_translator(tmp_path / "translator"))
    found = json.loads(run_command("inspect", "errors", translator, "--text", "the cat sat .", "--plain", "--json").out)
    assert found["aligned"]
    assert [each["kind"] for each in found["outputs"]] == ["as it is"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["minimal-pairs", "RUN", "none.tsv"], "none.tsv does not exist"),
        (
            ["minimal-pairs", "RUN", "pairs.tsv", "--region", "half"],
            "region 'half' is not known; allowed: full, critical",
        ),
        (["minimal-pairs", "RUN", "pairs.tsv", "-o", "out.pdf"], "-o out.pdf: end the name with .html, .png, .json or"),
        (["minimal-pairs", "RUN", "pairs.tsv", "-o", "pairs.tsv"], "end the name with"),
        (["surprisal", "RUN"], "nothing to read: give FILE"),
        (["attention", "RUN", "a", "--layer", "7"], "--layer 7: there are 2, 0 to 1"),
        (["attention", "RUN", "a", "--link", "sat"], "--link sat: give two words"),
        (["attention", "RUN", "a", "--kind", "cross"], "--kind cross: this model has self"),
        (["cells", "RUN"], "give FILE (or - for standard input), or --text TEXT"),
        (["cells", "RUN", "pairs.tsv", "--find", "quote"], "unknown property 'quote'; did you mean 'quotes'"),
        (["minimal-pears", "RUN"], "Did you mean 'minimal-pairs'?"),
    ],
)
def test_bad_input_is_reported_in_one_line(run_command, runs: Path, tmp_path: Path, arguments, message: str) -> None:
    (tmp_path / "pairs.tsv").write_text("good\tbad\nthe cat sat .\tthe cat mat .\n")
    said = run_command("inspect", *(str(runs / "gpt2") if word == "RUN" else word for word in arguments))
    assert said.code == 2
    assert message in said.err
