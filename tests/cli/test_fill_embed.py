"""The verbs fill and embed, and score on a masked model, as a user types them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import lmlab
from lmlab.cli import app
from lmlab.models import load_class
from lmlab.runs.model_files import model_tensors, write_config
from lmlab.runs.storage import write_tensors
from lmlab.tokenizers import train
from standins import TEXT, write_run

pytestmark = pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning", "ignore:too few n-grams")
KINDS: dict[str, dict[str, Any]] = {
    "bert": {"width": 16, "heads": 2, "layers": 2, "window": 16, "dropout": 0.0},
    "electra": {"width": 16, "heads": 2, "layers": 2, "window": 16, "dropout": 0.0, "generator": 0.5},
    "transformer": {"width": 16, "heads": 2, "layers": 1, "inner": 16},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    tokenizer = train("wordpiece:120", [TEXT])
    for kind, settings in KINDS.items():
        (folder / kind).mkdir()
        tokenizer.save(folder / kind / "tokenizer.json")
        torch.manual_seed(0)
        cls = load_class(kind)
        config = cls.Config(vocabulary=tokenizer.vocabulary, **settings)
        model = cls(config)
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.data.normal_(std=0.5)
        write_config(folder / kind, kind, config.model_dump())
        write_tensors(folder / kind / "model.safetensors", model_tensors(model))
    for kind in ("ngram", "lstm", "gpt2"):
        (folder / kind).mkdir()
        write_run(folder / kind, kind)
    return folder


def lmlab_(*arguments: object, **options: Any) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], **options)


def printed(*arguments: object, **options: Any) -> str:
    result = lmlab_(*arguments, env={"COLUMNS": "200"}, **options)
    assert result.exit_code == 0, (result.stderr, result.exception)
    return str(result.stdout)


def refused(*arguments: object, **options: Any) -> str:
    """The message of the ValueError, which the command line's main prints."""
    result = lmlab_(*arguments, **options)
    assert isinstance(result.exception, ValueError), (result.exception, result.output)
    return str(result.exception)


# fill


def test_one_mask_is_a_table_of_tokens_and_texts(runs: Path) -> None:
    text = "The [MASK] sat on the mat."
    shown = printed("fill", runs / "bert", text, "--top", 3)
    expected = lmlab.load(runs / "bert").fill(text, top=3)
    for filling in expected.fillings:
        (line,) = (line for line in shown.splitlines() if filling.text in line)
        assert filling.tokens[0] in line
        assert f"{filling.joint:.2%}" in line
    assert "joint" not in shown


def test_several_masks_show_both_scores(runs: Path) -> None:
    text = "The [MASK] sat on the <mask>."
    alone, joint = printed("fill", runs / "bert", text), printed("fill", runs / "bert", text, "--jointly")
    assert "mask 2" in alone
    assert "sorted by independent probability" in alone
    assert "sorted by joint probability" in joint
    values = json.loads(printed("fill", runs / "bert", text, "--jointly", "--top", 4, "--json"))
    expected = lmlab.load(runs / "bert").fill(text, top=4, jointly=True)
    assert values["jointly"] is True
    assert [each["text"] for each in values["fillings"]] == [each.text for each in expected.fillings]
    assert [each["joint"] for each in values["fillings"]] == pytest.approx([each.joint for each in expected.fillings])
    assert [each["independent"] for each in values["fillings"]] == pytest.approx(
        [each.independent for each in expected.fillings]
    )
    assert len(values["candidates"]) == 2
    assert len(values["candidates"][0]) == 4
    sure = json.loads(printed("fill", runs / "bert", text, "--jointly", "--order", "confident", "--json"))
    best = lmlab.load(runs / "bert").fill(text, jointly=True, order="confident").fillings[0]
    assert sure["fillings"][0]["text"] == best.text


def test_many_masks_stay_readable(runs: Path) -> None:
    """Sixty columns of one letter each are no table."""
    wide = {**KINDS["bert"], "window": 80}
    folder = runs / "wide"
    if not folder.exists():
        folder.mkdir()
        tokenizer = train("wordpiece:120", [TEXT])
        tokenizer.save(folder / "tokenizer.json")
        config = load_class("bert").Config(vocabulary=tokenizer.vocabulary, **wide)
        write_config(folder, "bert", config.model_dump())
        write_tensors(folder / "model.safetensors", model_tensors(load_class("bert")(config)))
    text = "the " + "[MASK] " * 60
    result = lmlab_("fill", folder, text, "--top", 3, env={"COLUMNS": "100"})
    assert result.exit_code == 0, result.exception
    best = lmlab.load(folder).fill(text, top=3).candidates
    rows = [line for line in result.stdout.splitlines() if "%" in line]
    for number, row in enumerate(rows[:20], start=1):
        assert row.strip("│ ").startswith(str(number))
        assert all(candidate.token in row for candidate in best[number - 1])
    assert "… and 40 more masks" in result.stdout
    assert len(json.loads(printed("fill", folder, text, "--json"))["candidates"]) == 60


def test_the_text_may_come_through_a_pipe(runs: Path) -> None:
    piped = printed("fill", runs / "bert", "-", "--json", input="a [MASK] .\n")
    assert json.loads(piped) == json.loads(printed("fill", runs / "bert", "a [MASK] .", "--json"))


def test_electra_says_which_part_fills(runs: Path) -> None:
    assert "generator fills" in printed("fill", runs / "electra", "a [MASK] .")
    assert "generator fills" not in printed("fill", runs / "bert", "a [MASK] .")


def test_what_fill_refuses(runs: Path) -> None:
    assert 'write [MASK] in place of a token, as in "The [MASK]' in refused("fill", runs / "bert", "the cat")
    assert "reads at most 16" in refused("fill", runs / "bert", "[MASK]" + " cat" * 20)
    assert "lmlab next" in refused("fill", runs / "gpt2", "a [MASK]")
    assert "lmlab generate" in refused("fill", runs / "ngram", "a [MASK]")
    assert "lmlab translate" in refused("fill", runs / "transformer", "a [MASK]")
    assert "allowed: left-to-right, confident" in refused("fill", runs / "bert", "a [MASK]", "--order", "best")
    assert "does not exist" in refused("fill", runs / "nothing", "a [MASK]")


# embed


LINES = ["The cat sat on the mat.", "a dog", "the naïve café"]


def test_pooled_vectors_have_a_row_for_each_line(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    out = tmp_path / "out.npy"
    options = ("--layers", "concat:-2:", "--pool", "mean", "-o", out)
    shown = printed("embed", runs / "bert", tmp_path / "lines.txt", *options)
    found = np.load(out, allow_pickle=False)
    assert found.dtype == np.float32
    np.testing.assert_allclose(
        found, lmlab.load(runs / "bert").embed(LINES, layers="concat:-2:", pool="mean"), atol=1e-6
    )
    assert "3 texts x 32" in shown
    assert str(out) in shown.replace("\n", "")
    assert not list(tmp_path.glob(".*"))
    options += ("--overwrite",)
    piped = printed("embed", runs / "bert", *options, "--batch-tokens", 5, input="\r\n".join(LINES))
    assert piped == shown
    np.testing.assert_allclose(np.load(out), found, atol=1e-6)


@pytest.mark.parametrize("kind", ["bert", "lstm", "gpt2", "transformer"])
def test_vectors_of_tokens_come_with_their_words(runs: Path, tmp_path: Path, kind: str) -> None:
    out = tmp_path / "out.npy"
    printed("embed", runs / kind, "-", "-o", out, input="\n".join(LINES))
    vectors = np.load(out, allow_pickle=False)
    listing = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert [each["text"] for each in listing["texts"]] == LINES
    assert listing["layers"] == "last"
    for each, expected in zip(listing["texts"], lmlab.load(runs / kind).embed(LINES), strict=True):
        rows = vectors[each["start"] : each["start"] + len(each["tokens"])]
        np.testing.assert_allclose(rows, expected.vectors, atol=1e-6)
        assert each["tokens"] == expected.tokens
        assert each["words"] == expected.words
        assert [tuple(place) for place in each["offsets"]] == expected.offsets
    assert len(vectors) == sum(len(each["tokens"]) for each in listing["texts"])


def test_what_embed_refuses(runs: Path, tmp_path: Path) -> None:
    out = ("-o", tmp_path / "out.npy")
    assert "-o vectors.npy" in refused("embed", runs / "bert", "-", input="a")
    assert "ends in .npy" in refused("embed", runs / "bert", "-", "-o", tmp_path / "out.txt", input="a")
    assert "there is no folder" in refused("embed", runs / "bert", "-", "-o", tmp_path / "no/out.npy", input="a")
    assert "standard input is empty" in refused("embed", runs / "bert", "-", *out, input="")
    (tmp_path / "binary").write_bytes(b"\0\x01\x02" * 99)
    assert "it is binary" in refused("embed", runs / "bert", tmp_path / "binary", *out)
    assert "allowed: cls, mean, max" in refused("embed", runs / "bert", "-", *out, "--pool", "median", input="a")
    assert "allowed: last, first" in refused("embed", runs / "bert", "-", *out, "--layers", "lats", input="a")
    assert "cannot give contextual vectors" in refused("embed", runs / "ngram", "-", *out, input="a")
    long = "a\n" + "cat " * 20
    reported = refused("embed", runs / "bert", "-", *out, input=long)
    assert "line 2 of standard input has 20 tokens, and the model reads at most 14: give --truncate" in reported
    assert not (tmp_path / "out.npy").exists()
    printed("embed", runs / "bert", "-", *out, "--truncate", input=long)
    assert len(np.load(tmp_path / "out.npy")) == 1 + 14


@pytest.mark.parametrize("kind", ["bert", "lstm", "gpt2", "transformer"])
def test_empty_lines_are_alike_for_every_model(runs: Path, tmp_path: Path, kind: str) -> None:
    out = tmp_path / "out.npy"
    result = lmlab_("embed", runs / kind, "-", "--pool", "mean", "-o", out, input="a cat\n\n  \nthe dog\n")
    assert result.exit_code == 0, result.exception
    assert "2 of 4 lines are empty; such a line has a vector of zeros" in result.stderr
    assert np.load(out).any(1).tolist() == [True, False, False, True]


# score


def test_the_score_of_a_masked_model_is_called_pseudo(runs: Path) -> None:
    arguments = ("score", runs / "bert", "--text", "the cat sat .")
    shown = printed(*arguments)
    assert "pseudo-bits per byte" in shown
    assert "pseudo-perplexity per token" in shown
    assert "not comparable with left-to-right scores" in shown.replace("\n", " ")
    values = json.loads(printed(*arguments, "--json", "--tokens"))
    expected = lmlab.load(runs / "bert").score("the cat sat .")
    assert values["pseudo"] is True
    assert values["nats"] == pytest.approx(expected.nats, rel=1e-6)
    assert sum(each["bits"] for each in values["surprisals"]) == pytest.approx(expected.nats / math.log(2), rel=1e-5)
    left_to_right = printed("score", runs / "gpt2", "--text", "the cat sat .")
    assert "pseudo" not in left_to_right
    assert "cannot continue plain text" in refused(*arguments, "--mix", runs / "bert")
