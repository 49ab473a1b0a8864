"""The verbs translate, evaluate and average, and the traces of searches, as a user types them."""

from __future__ import annotations

import gzip
import io
import json
import math
import re
import sys

import pytest

import lmlab
from standins import write_run
from translators import write_translator

SOURCES = ["the cat sat on the mat .", "", "a dog ran .", "the log and the mat ."]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    write_translator(folder / "en-de", seed=2)
    (folder / "gpt").mkdir()
    write_run(folder / "gpt", "gpt2", spec="characters")
    (folder / "test.en").write_text("\n".join(SOURCES) + "\n")
    return folder


def test_lines_go_in_and_lines_come_out(runs, run_command, tmp_path):
    expected = lmlab.load(runs / "en-de").translate(SOURCES, beams=3, tokens=8, length_penalty=1.0)
    options = ("--beams", "3", "--tokens", "8", "--length-penalty", "1", "-o", "out.de")
    said = run_command("translate", str(runs / "en-de"), str(runs / "test.en"), *options)
    assert said.code == 0, said.err
    assert said.out == ""
    assert (tmp_path / "out.de").read_text() == "".join(f"{line}\n" for line in expected)
    assert expected[1] == ""
    assert len(set(expected)) > 2


def test_standard_input_and_n_best(runs, run_command, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a dog\r\n\nthe cat")))
    options = ("--beams", "4", "--nbest", "2", "--tokens", "6", "-o", "n.txt")
    assert run_command("translate", str(runs / "en-de"), *options).code == 0
    found = lmlab.load(runs / "en-de").translator.translate(["a dog", "", "the cat"], beams=4, tokens=6)
    lines = (tmp_path / "n.txt").read_text().splitlines()
    assert lines == [f"{i} ||| {t.text} ||| {t.score:.4f}" for i, each in enumerate(found) for t in each[:2]]
    assert [line[0] for line in lines] == ["0", "0", "2", "2"]


def test_traces_and_alignments_of_translations(runs, run_command, tmp_path):
    files = ("--trace", "t.html", "--alignments", "a.html")
    said = run_command("translate", str(runs / "en-de"), str(runs / "test.en"), "--tokens", "5", *files)
    assert said.code == 0, said.err
    assert "wrote t.html wrote a.html" in said.err
    assert (tmp_path / "t.html").read_text().count("<svg") == 3
    page = (tmp_path / "a.html").read_text()
    assert page.count("<svg") == 3
    assert "mean over all heads of the last block" in page
    one = ("--alignments", "b.html", "--layer", "0", "--head", "1")
    assert run_command("translate", str(runs / "en-de"), str(runs / "test.en"), "--tokens", "5", *one).code == 0
    assert "those of head 1 of block 0" in (tmp_path / "b.html").read_text()


def test_alignments_are_of_the_tokens_that_were_written(runs, run_command, tmp_path):
    """Tokens need not be those into which their own text would be cut; and lines keep their numbers and their text."""
    lm = lmlab.load(runs / "en-de")
    (found,) = lm.translator.translate(["a dog ran ."], tokens=6)
    other = found[0]._replace(tokens=found[0].tokens[::-1] + found[0].tokens[:1])
    (drawn,) = lm.alignments(["a dog ran ."], [other])
    assert drawn.target[:-1] == [lm.tokenizer.show(token) for token in other.tokens]
    assert drawn.texts == ("a dog ran .", other.text)
    options = ("--tokens", "5", "--alignments", "a.html")
    assert run_command("translate", str(runs / "en-de"), str(runs / "test.en"), *options).code == 0
    page = (tmp_path / "a.html").read_text()
    assert re.findall(r"<h2>(\d+)</h2><dl><dt>source</dt><dd>(.*?)</dd>", page) == [
        (str(number), text) for number, text in enumerate(SOURCES, 1) if text
    ]
    pytest.importorskip("matplotlib")
    assert run_command("translate", str(runs / "en-de"), str(runs / "test.en"), *options[:3], "p.png").code == 0
    assert sorted(path.name for path in tmp_path.glob("p*.png")) == ["p-1.png", "p-3.png", "p-4.png"]


def test_long_lines_are_cut_where_that_is_wanted(runs, run_command, tmp_path):
    (tmp_path / "long").write_text("a dog\n" + "the cat sat " * 5_000 + "\n")
    options = ("--truncate", "--longest", "6", "--tokens", "4", "--alignments", "a.html")
    said = run_command("translate", str(runs / "en-de"), "long", *options)
    assert said.code == 0, said.err
    assert "line 2 is cut after 'the cat sat the cat sat'; the rest is not translated" in said.err
    expected = lmlab.load(runs / "en-de").translate(["a dog", "the cat sat the cat sat"], tokens=4)
    assert said.out == " ".join(" ".join(expected).split())


def test_files_are_read_as_for_training(runs, run_command, tmp_path):
    """A byte order mark, Windows line ends and compression change nothing."""
    (tmp_path / "odd").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(SOURCES).encode())
    (tmp_path / "packed.gz").write_bytes(gzip.compress("\n".join(SOURCES).encode()))
    plain, odd, packed = (
        run_command("translate", str(runs / "en-de"), name, "--beams", "1").out
        for name in (str(runs / "test.en"), "odd", "packed.gz")
    )
    assert plain == odd == packed != ""
    (tmp_path / "latin").write_bytes("a dög".encode("latin-1"))
    said = run_command("translate", str(runs / "en-de"), "latin", "--beams", "1")
    assert said.code == 0
    assert "1 bytes that are not UTF-8 were replaced" in said.err


def test_a_search_of_any_model_can_be_watched(runs, run_command, tmp_path):
    arguments = ("generate", str(runs / "gpt"), "the ", "--tokens", "5", "--beams", "3")
    for name in ("t.html", "t.json"):
        assert run_command(*arguments, "--trace", name).code == 0
    (tree,) = json.loads((tmp_path / "t.json").read_text())["searches"]
    found = lmlab.load(runs / "gpt").generate("the ", tokens=5, beams=3, samples=3)
    assert [result["text"] for result in tree["results"]] == found
    assert tree["prompt"] == "the "
    assert 'data-beams="3"' in (tmp_path / "t.html").read_text()
    said = run_command(*arguments, "--trace", "-")
    assert "3 beams, 5 steps" in said.out
    best = {node["id"]: node for node in tree["candidates"]}[tree["results"][0]["path"][-1]]
    assert f"{best['total']:.2f} ★ {tree['results'][0]['score']:.2f}" in said.out
    assert "✗" in said.out


def test_evaluation_is_what_sacrebleu_says(runs, run_command, tmp_path):
    sacrebleu = pytest.importorskip("sacrebleu")
    sources = [line for line in SOURCES if line]
    hypotheses = lmlab.load(runs / "en-de").translate(sources, beams=2)
    references = [hypotheses[0], "ein hund lief .", "der baum"]
    for name, lines in (("s", sources), ("t", references)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    options = ("--source", "s", "--target", "t", "--beams", "2", "-o", "h")
    said = run_command("evaluate", str(runs / "en-de"), *options, "--json")
    assert said.code == 0, said.err
    values = json.loads(said.out)
    assert (tmp_path / "h").read_text().splitlines() == hypotheses
    assert values["bleu"] == pytest.approx(sacrebleu.corpus_bleu(hypotheses, [references]).score)
    assert values["chrf"] == pytest.approx(sacrebleu.corpus_chrf(hypotheses, [references]).score)
    assert "tok:13a" in values["bleu_signature"]
    assert values["exact_match"] == pytest.approx(1 / 3)
    nats = lmlab.load(runs / "en-de").translator.score(sources, references)
    assert values["loss"] == pytest.approx(sum(part.sum() for part in nats) / sum(map(len, nats)), rel=1e-6)
    assert values["perplexity"] == pytest.approx(math.exp(values["loss"]))
    plain = run_command("evaluate", str(runs / "en-de"), *options, "--overwrite")
    assert f"{values['bleu']:.2f} BLEU" in plain.out
    assert values["chrf_signature"] in plain.out


def test_averaging_needs_kept_checkpoints(runs, run_command):
    said = run_command("average", str(runs / "en-de"), "--last", "3")
    assert said.code == 2
    assert "--set train.keep=3" in said.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("translate", "{gpt}", "{text}"), "lmlab train transformer --source"),
        (("translate", "{run}", "{text}", "--nbest", "9"), "--nbest 9 with --beams 5"),
        (("translate", "{run}", "{text}", "--trace", "t.txt"), ".html (a page) or .json"),
        (("translate", "{run}", "{text}", "--trace", "no/t.html"), "there is no folder"),
        (("translate", "{run}", "{text}", "--alignments", "a.svg"), ".html (a page) or .png"),
        (("translate", "{run}", "{text}", "--alignments", "a.html", "--head", "5"), "--head 5: there are"),
        (("translate", "{run}", "missing.en"), "missing.en"),
        (("translate", "{run}", "{text}", "--alignments", "a.html", "--layer", "9"), "--layer 9: the decoder has"),
        (("translate", "{run}", "{text}", "--head", "1"), "give --alignments"),
        (("translate", "{run}", "{text}", "--length-penalty", "1000"), "--length-penalty 1000.0: give"),
        (("translate", "{run}", "{text}", "--length-penalty", "nan"), "--length-penalty nan: give"),
        (("translate", "{run}", "{text}", "-o", "no/out"), "there is no folder"),
        (("translate", "{run}", "{text}", "-o", "."), "is a folder"),
        (("translate", "{run}", "{text}", "--longest", "5"), "line 1 has 7 tokens, and at most 5 are translated"),
        (("translate", "{run}", "long"), "cut such lines with --truncate, or allow more with --longest 20000"),
        (("translate", "{run}", "{text}", "--text", "a dog"), "either a file or texts"),
        (("translate", "{run}", "binary"), "it is UTF-16"),
        (("translate", "{run}", "."), "give one file"),
        (("translate", "{run}", "empty"), "it is empty"),
        (("evaluate", "{run}", "--source", "{text}", "--target", "{text}", "-o", "no/out"), "there is no folder"),
        (("evaluate", "{run}", "--source", "blank", "--target", "blank"), "nothing to evaluate"),
        (("generate", "{gpt}", "a", "--trace", "t.html"), "give --beams too"),
        (("generate", "{run}", "a"), "lmlab translate, lmlab evaluate"),
        (("evaluate", "{gpt}"), "lmlab score"),
        (("evaluate", "{run}"), "--source FILE and --target FILE"),
        (("evaluate", "{run}", "--source", "{text}", "--target", "short"), "short"),
        (("evaluate", "{run}", "--source", "{text}", "--target", "nothere"), "nothere does not exist"),
    ],
)
def test_mistakes_are_reported_clearly(runs, run_command, tmp_path, arguments, message):
    (tmp_path / "binary").write_bytes(b"\xff\xfe\xff\0" * 50)
    (tmp_path / "blank").write_text("\n\n")
    (tmp_path / "empty").write_text("")
    (tmp_path / "long").write_text("a dog\n" + "cat " * 20_000)
    (tmp_path / "short").write_text("ein hund\n")
    names = {"run": runs / "en-de", "gpt": runs / "gpt", "text": runs / "test.en"}
    said = run_command(*(argument.format(**names) for argument in arguments))
    assert said.code == 2
    assert message in said.err
