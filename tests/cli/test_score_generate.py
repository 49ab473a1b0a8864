"""The verbs score, generate and next, as a user types them."""

from __future__ import annotations

import gzip
import json
import math
import os
import signal
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

import lmlab
from lmlab.cli.generate import generate
from lmlab.cli.next import next_
from lmlab.cli.score import score
from patience import PATIENCE
from standins import TEXT, write_run

KEYS = ["bits_per_byte", "perplexity", "word_perplexity", "nats", "tokens", "words", "bytes"]

app = typer.Typer()
app.command("score")(score)
app.command("generate")(generate)
app.command("next")(next_)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for name, kind, spec in [
        ("counts", "ngram", "characters"),
        ("net", "lstm", "characters"),
        ("words", "ngram", "words"),
        ("gpt", "gpt2", "bytes"),
    ]:
        (folder / name).mkdir()
        write_run(folder / name, kind, spec=spec)
    return folder


def lmlab_(*arguments, **options):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], **options)


def printed(*arguments, **options):
    result = lmlab_(*arguments, **options)
    assert result.exit_code == 0, (result.stderr, result.exception)
    return result.stdout


def refused(*arguments, **options):
    """The message of the ValueError, which the command line's main prints."""
    result = lmlab_(*arguments, **options)
    assert isinstance(result.exception, ValueError), result.exception
    return str(result.exception)


def test_json_is_the_score_and_nothing_else(runs, tmp_path):
    file = tmp_path / "test.txt"
    file.write_text("the dog sat on the mat .\n")
    values = json.loads(printed("score", runs / "counts", file, "--json"))
    assert [key for key in values if key in KEYS] == KEYS
    expected = lmlab.load(runs / "counts").score(file.read_text())
    assert values["nats"] == pytest.approx(expected.nats)
    assert values["bits_per_byte"] == pytest.approx(expected.nats / math.log(2) / 25)
    assert values["lossy"] is False


def test_files_folders_gz_and_standard_input_are_documents(runs, tmp_path):
    (tmp_path / "a.txt").write_text("the cat")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"a dog"))
    expected = lmlab.load(runs / "net").score(["the cat", "a dog"]).nats
    files = json.loads(printed("score", runs / "net", tmp_path / "a.txt", tmp_path / "b.txt.gz", "--json"))
    folder = json.loads(printed("score", runs / "net", tmp_path, "--json"))
    piped = json.loads(printed("score", runs / "net", tmp_path / "a.txt", "-", "--json", input="a dog"))
    typed = json.loads(printed("score", runs / "net", "--text", "the cat", "--text", "a dog", "--json"))
    for values in (files, folder, piped, typed):
        assert values["nats"] == pytest.approx(expected, rel=1e-6)


def test_documents_are_distinguished_as_in_training_or_as_asked(runs, tmp_path):
    file = tmp_path / "lines.txt"
    file.write_text("the cat\na dog\n")
    expected = lmlab.load(runs / "net").score(["the cat", "a dog"]).nats
    assert json.loads(printed("score", runs / "net", file, "--documents", "lines", "--json"))["nats"] == pytest.approx(
        expected, rel=1e-6
    )
    (tmp_path / "trained").mkdir()
    trained = write_run(tmp_path / "trained", "lstm", spec="characters")
    (trained / "recipe.json").write_text(json.dumps({"data": {"documents": "lines"}}))
    assert json.loads(printed("score", trained, file, "--json"))["nats"] == pytest.approx(expected, rel=1e-6)
    assert "did you mean 'lines'" in refused("score", runs / "net", file, "--documents", "line")


def test_batch_changes_nothing(runs, tmp_path):
    file = tmp_path / "test.txt"
    file.write_text(TEXT)
    nats = [
        json.loads(printed("score", runs / "gpt", file, "--text", "cat", "--json", "--batch", batch))["nats"]
        for batch in (1, 7)
    ]
    assert nats[0] == pytest.approx(nats[1], rel=1e-6)


def test_tokens_are_tab_separated_where_there_is_no_screen(runs):
    result = lmlab_("score", runs / "counts", "--text", "a\tb\nc", "--by-token")
    heading, *rows = (line.split("\t") for line in result.stdout.splitlines())
    assert heading == ["token", "bits"]
    assert [token for token, _ in rows] == [
        token for token, _ in lmlab.load(runs / "counts").score("a\tb\nc").surprisals
    ]
    assert sum(float(bits) for _, bits in rows) == pytest.approx(
        lmlab.load(runs / "counts").score("a\tb\nc").nats / math.log(2), abs=1e-3
    )
    total = lmlab.load(runs / "counts").score("a\tb\nc").bits
    assert "bits per byte" in result.stderr
    assert f"{total:,.1f} bits" in result.stderr


def test_several_texts_are_apart_and_together(runs, tmp_path):
    file = tmp_path / "test.txt"
    file.write_text("the dog sat on the mat .\n")
    lm = lmlab.load(runs / "counts")
    options = ("--text", "the cat", "--text", "the cat", "--text", "zebra", file)
    shown = printed("score", runs / "counts", *options, env={"COLUMNS": "200"})
    apart = [lm.score(text) for text in ("the cat", "the cat", "zebra", file.read_text())]
    rows = [line for line in shown.splitlines() if line.startswith("│")]
    assert len(rows) == 4
    for row, name, each in zip(rows, ("the cat", "the cat", "zebra", str(file)[:39]), apart, strict=True):
        assert name in row
        assert f"{each.bits_per_byte:.4f}" in row
        assert f"{each.perplexity:,.2f}" in row
    values = json.loads(printed("score", runs / "counts", *options, "--json"))
    assert [each["nats"] for each in values["texts"]] == pytest.approx([each.nats for each in apart])
    assert values["nats"] == pytest.approx(sum(each.nats for each in apart))
    assert f"{values['bits_per_byte']:.4f} bits per byte" in shown
    alone = printed("score", runs / "counts", "--text", "the cat")
    assert "│" not in alone
    assert "texts" not in json.loads(printed("score", runs / "counts", "--text", "the cat", "--json"))
    with_nothing = json.loads(printed("score", runs / "counts", "--text", "", "--text", "cat", "--json"))
    assert with_nothing["texts"][0]["bits_per_byte"] is None


def test_tokens_in_json(runs):
    values = json.loads(printed("score", runs / "counts", "--text", "the", "--by-token", "--json"))
    assert [row["token"] for row in values["surprisals"]] == ["t", "h", "e"]
    assert sum(row["bits"] for row in values["surprisals"]) == pytest.approx(values["nats"] / math.log(2))


def test_tokens_on_a_screen_are_coloured_with_a_legend(runs, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    text = printed("score", runs / "counts", "--text", "the cat Q", "--by-token", color=True)
    assert "below 1" in text
    assert "bits over 9 tokens; bits of each" in text
    assert "\x1b[" in text


def test_a_lossy_tokenizer_is_reported(runs):
    assert "too low (lossy)" in printed("score", runs / "words", "--text", "the zebra")
    assert "bits per byte (lossy)" in printed("score", runs / "words", "--text", "the zebra")
    assert "(lossy)" in printed("score", runs / "words", "--text", "a", "--text", "b", env={"COLUMNS": "200"})
    assert "lossy" not in printed("score", runs / "counts", "--text", "the cat")
    assert json.loads(printed("score", runs / "words", "--text", "the zebra", "--json"))["lossy"] is True
    assert "flatter" not in printed("score", runs / "counts", "--text", "the cat")


def test_mixtures(runs, tmp_path):
    held_out = tmp_path / "valid.txt"
    held_out.write_text("the dog ran to a log .\n")
    lm, other = lmlab.load(runs / "counts"), lmlab.load(runs / "net")
    text = "a cat sat ."
    given = json.loads(printed("score", runs / "counts", "--text", text, "--mix", f"{runs / 'net'}=0.2", "--json"))
    assert given["nats"] == pytest.approx(lm.mix([other], weights=[0.8, 0.2]).score(text).nats)
    assert given["weights"] == pytest.approx([0.8, 0.2])
    equal = json.loads(printed("score", runs / "counts", "--text", text, "--mix", runs / "net", "--json"))
    assert equal["weights"] == [0.5, 0.5]
    learnt = json.loads(
        printed("score", runs / "counts", "--text", text, "--mix", runs / "net", "--learn-weights", held_out, "--json")
    )
    assert learnt["weights"] == pytest.approx(lm.mix([other]).learn_mixture(held_out.read_text()))
    assert "mixture weights" in printed("score", runs / "counts", "--text", text, "--mix", runs / "net")


def test_mixtures_that_cannot_be(runs):
    both = ["score", runs / "counts", "--text", "a", "--mix"]
    assert "tokenizers differ" in refused(*both, runs / "words")
    assert "is not a weight" in refused(*both, f"{runs / 'net'}=much")
    assert "at most 1" in refused(*both, f"{runs / 'net'}=1.5")
    assert "give --mix" in refused("score", runs / "counts", "--text", "a", "--learn-weights", "x")


def test_nothing_to_score_is_refused(runs, tmp_path):
    assert "nothing to score" in refused("score", runs / "counts")
    assert "empty" in refused("score", runs / "counts", "-", input="")
    assert "does not exist" in refused("score", runs / "counts", tmp_path / "nowhere.txt")
    assert "does not exist" in refused("score", tmp_path / "nowhere", "--text", "a")
    assert "not a run directory" in refused("score", tmp_path, "--text", "a")


def test_generate_prints_the_prompt_and_what_follows(runs):
    expected = lmlab.load(runs / "words").generate("the cat", tokens=20, seed=3)
    assert printed("generate", runs / "words", "the cat", "--tokens", 20, "--seed", 3) == f"the cat{expected}\n"


def test_generate_json_and_options(runs):
    values = json.loads(
        printed(
            "generate",
            runs / "counts",
            "the",
            "--samples",
            3,
            "--temperature",
            0.7,
            "--top-k",
            5,
            "--top-p",
            0.9,
            "--min-p",
            0.01,
            "--repetition-penalty",
            1.1,
            "--stop",
            r"\n",
            "--seed",
            9,
            "--json",
        )
    )
    expected = lmlab.load(runs / "counts").generate(
        "the", samples=3, temperature=0.7, top_k=5, top_p=0.9, min_p=0.01, repetition_penalty=1.1, stop="\n", seed=9
    )
    assert values == {"prompt": "the", "samples": expected, "seed": 9}
    assert not any("\n" in text for text in values["samples"])


def test_several_samples_are_apart(runs):
    text = printed("generate", runs / "counts", "the", "--samples", 2, "--tokens", 10)
    for each in lmlab.load(runs / "counts").generate("the", samples=2, tokens=10):
        assert f"the{each}\n" in text
    assert "1 of 2" in text
    assert "2 of 2" in text


def test_beams(runs):
    best = json.loads(printed("generate", runs / "counts", "the", "--beams", 4, "--samples", 2, "--json", "-n", 8))
    assert best["samples"] == lmlab.load(runs / "counts").generate("the", beams=4, samples=2, tokens=8)
    assert "draws nothing" in refused("generate", runs / "counts", "--beams", 4, "--top-k", 3)
    assert "give --beams" in refused("generate", runs / "counts", "--length-penalty", 0.5)


def test_the_prompt_may_come_from_standard_input(runs):
    assert printed("generate", runs / "words", "-", "-n", 5, input="the cat") == printed(
        "generate", runs / "words", "the cat", "-n", 5
    )


def test_bad_values_are_refused(runs):
    assert "top_p = 7.0" in refused("generate", runs / "counts", "--top-p", 7)
    assert "temperature = -1.0" in refused("generate", runs / "counts", "--temperature", -1)


def test_next(runs):
    values = json.loads(printed("next", runs / "words", "sat on", "--top", 3, "--json"))
    assert values[0]["token"] == "the"
    assert len(values) == 3
    assert '"the"' in printed("next", runs / "words", "sat on").splitlines()[0]


def test_help_teaches_by_examples():
    for verb in ("score", "generate", "next"):
        assert f"lmlab {verb} runs/book" in printed(verb, "--help")


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_ctrl_c_while_streaming_ends_cleanly(tmp_path):
    write_run(tmp_path, "gpt2", spec="words")  # never ends a text: its boundary is the end of a line
    code = "import sys, typer; from lmlab.cli.generate import generate; typer.run(generate)"
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", code, str(tmp_path), "the", "--tokens", "100000000", "--device", "cpu"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.read(20)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert b"Traceback" not in errors


@pytest.mark.parametrize("weights", ["int8", "bf16"])
def test_rounded_weights_score_and_generate(runs, weights):
    plain = json.loads(printed("score", runs / "gpt", "--text", TEXT[:200], "--json"))
    rounded = json.loads(printed("score", runs / "gpt", "--text", TEXT[:200], "--json", "--weights", weights))
    assert rounded["bits_per_byte"] == pytest.approx(plain["bits_per_byte"], rel=0.02)
    assert rounded["bits_per_byte"] != plain["bits_per_byte"]
    assert printed("generate", runs / "gpt", "The ", "--tokens", 5, "--weights", weights)
    assert "has counts and no weights" in refused("score", runs / "counts", "--text", "a", "--weights", weights)
