"""A captioner as a run: trained, killed and resumed to the bit, evaluated, and used from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import lmlab
from captioned import write_pictures
from killing import kill_while_saving
from lmlab.cli import app
from lmlab.decoding.captioner import PictureCaptioner
from lmlab.metrics.captions import CaptionBleu, ExactCaption
from lmlab.runs import run
from lmlab.runs.storage import read_tensors

SETTINGS = {
    **{"model.convolutions": [8, 16], "model.width": 16, "model.hidden": 32, "model.window": 8},
    **{"train.batch": 16, "train.rate": 1e-2, "train.warmup": 5, "train.evaluation_tokens": 20},
}


@pytest.fixture(scope="module")
def captions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of pictures with two colours, one above the other, each with two captions."""
    pytest.importorskip("PIL.Image")
    home, rows = tmp_path_factory.mktemp("captions"), ["picture\tcaption"]
    for name, upper, lower in write_pictures(home, colours=3):
        rows += [f"{name}\t{upper} above {lower}", f"{name}\t{lower} below {upper}"]
    (home / "captions.tsv").write_text("\n".join(rows) + "\n")
    return home / "captions.tsv"


@pytest.fixture(scope="module")
def trained(captions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    lmlab.train("captioner", captions, output=path, budget="60steps", settings=SETTINGS)
    return path


@pytest.fixture(scope="module")
def captioner(trained: Path) -> PictureCaptioner:
    return lmlab.load(trained).captioner


def call(*arguments: str | Path) -> str:
    done = CliRunner().invoke(app, [str(each) for each in arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_it_learns_captions_and_either_of_two_is_right(trained: Path, captions: Path) -> None:
    found = json.loads(call("evaluate", trained, captions, "--json").splitlines()[-1])
    assert found["split"] == "test"
    assert found["captions"] == 2 * found["pictures"]
    assert found["exact_match"] > 0.5
    low, high = found["intervals"]["exact_match"]
    assert low <= found["exact_match"] <= high
    assert "lmlab caption" in (trained / "README.md").read_text()
    everything = captions.with_name("other.tsv")
    everything.write_text(captions.read_text())
    text = call("evaluate", trained, everything, "--beams", "2", "-o", captions.with_name("said.tsv"))
    assert "of the captions equal a reference" in text
    assert len(captions.with_name("said.tsv").read_text().splitlines()) == 73


def test_beams_are_sorted_and_batches_change_nothing(captioner: PictureCaptioner) -> None:
    pictures = [np.random.default_rng(seed).integers(0, 256, (12, 9, 3)).astype(np.uint8) for seed in range(5)]
    found = captioner.caption(pictures, beams=3)
    assert found == [captioner.caption(picture, beams=3)[0] for picture in pictures] or all(
        one.tokens == other.tokens
        for several, picture in zip(found, pictures, strict=True)
        for one, other in zip(several, captioner.caption(picture, beams=3)[0], strict=True)
    )
    for best in found:
        assert [each.log_probability for each in best] == sorted((each.log_probability for each in best), reverse=True)
    assert captioner.caption(pictures, beams=1, tokens=2)[0][0].tokens == captioner.caption(pictures)[0][0].tokens[:2]
    assert captioner.caption([]) == []
    with pytest.raises(ValueError, match="array of bytes"):
        captioner.caption([pictures[0].astype(float)])


def test_the_attention_of_each_word_is_that_of_the_step_before_it(captioner: PictureCaptioner) -> None:
    picture = np.random.default_rng(0).integers(0, 256, (8, 8, 3)).astype(np.uint8)
    looks = captioner.attention(picture, "red above blue")
    assert [look.word for look in looks] == ["red", "above", "blue"]
    tokens = [*captioner.start, *captioner.tokenizer.encode("red above")]
    _, weights = captioner.model.attend(torch.tensor([tokens]), pixels=captioner.read([picture]))
    for number, look in enumerate(looks):
        assert look.weights.shape == captioner.model.grid
        np.testing.assert_allclose(look.weights.ravel(), weights[0, number].detach().numpy(), atol=1e-6)
    assert captioner.attention(picture, "") == []


def test_the_command_writes_captions_and_a_page(trained: Path, captions: Path, tmp_path: Path) -> None:
    home = captions.parent
    text = call("caption", trained, home / "red-blue-0.png", home / "blue-red-1.png")
    assert [line.split(": ")[0] for line in text.splitlines()] == [
        str(home / "red-blue-0.png"),
        str(home / "blue-red-1.png"),
    ]
    page = tmp_path / "page.html"
    line = call("caption", trained, home / "red-blue-0.png", "--beams", "2", "--json", "--attention", page)
    record = json.loads(line.splitlines()[-1])
    assert len(record["beams"]) == 2
    assert record["caption"] == record["beams"][0]["text"]
    content = page.read_text()
    assert content.count("data:image/png") == 1 + len(record["caption"].split())
    assert "img-src data:" in content
    assert call("caption", trained, home / "red-blue-0.png", "--beams", "2", "--all").count("\n") == 3
    assert CliRunner().invoke(app, ["caption", str(trained), str(home / "x.png"), "--attention", str(page)]).exit_code


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("caption", "{run}", "{home}/nothing.png"), "nothing.png"),
        (("caption", "{run}", "{home}/captions.tsv"), "captions.tsv"),
        (("generate", "{run}", "a"), "is a captioner"),
        (("translate", "{run}", "{home}/captions.tsv"), "lmlab caption"),
        (("evaluate", "{run}", "{home}/plain.tsv"), "--columns caption=NAME"),
    ],
)
def test_mistakes_are_named(trained: Path, captions: Path, arguments: tuple[str, ...], message: str) -> None:
    (captions.parent / "plain.tsv").write_text("picture\tlabel\nred-red-0.png\tred\n")
    filled = [each.format(run=trained, home=captions.parent) for each in arguments]
    done = CliRunner().invoke(app, filled)
    assert done.exit_code != 0
    assert message in str(done.exception) + done.output


def test_a_killed_run_resumes_to_the_bit(captions: Path, tmp_path: Path) -> None:
    settings = {**SETTINGS, "train.save_seconds": 0, "model.dropout": 0.1}
    given = [f"--set={name}={json.dumps(value)}" for name, value in settings.items()]
    command = ("train", "captioner", str(captions), "--budget", "12steps", *given)
    kill_while_saving(*command, "-o", str(tmp_path / "killed"), run="killed", saves=3)
    resumed = run.resume(tmp_path / "killed")
    whole = lmlab.train("captioner", captions, output=tmp_path / "whole", budget="12steps", settings=settings)
    assert resumed.progress.step == whole.progress.step == 12
    one, other = (read_tensors(tmp_path / name / "model.safetensors") for name in ("killed", "whole"))
    assert all(torch.equal(one[key], other[key]) for key in one)


def test_exact_match_and_bleu() -> None:
    said, true = (
        ["a red star", "the  cat sat on the mat", "x"],
        [["a star", "a red star"], ["the cat sat on the mat"], ["y"]],
    )
    assert ExactCaption().score(said, true) == pytest.approx(2 / 3)
    sacrebleu = pytest.importorskip("sacrebleu")
    long = ["a small red star above a blue cross", "the cat sat on the mat today"]
    references = [["a small red star above a green cross"], ["the cat sat on a mat today", "the cat is on the mat"]]
    metric = CaptionBleu()
    expected = sacrebleu.corpus_bleu(long, [[own[0] for own in references], [None, references[1][1]]]).score
    assert metric.score(long, references) == pytest.approx(expected)
    assert float(metric.value(metric.statistics(long, references).sum(0))) == pytest.approx(expected)
    assert "version" in metric.signature
