"""The methods of a LanguageModel for pictures, recordings, music and episodes, and the guidance around them."""

from __future__ import annotations

import json
import wave
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import lmlab
import speech_runs
from lmlab.analysis.pictures.matching import UnknownWordWarning
from lmlab.cli.application import app
from lmlab.data.readers.cart_pole import CartPole, move
from lmlab.data.readers.media import BUILT_IN, Sound
from lmlab.data.readers.pictures.files import BUILTIN_PICTURES
from lmlab.language_model import LanguageModel
from lmlab.models import LINEAGE
from lmlab.pages.figures.pictures import encode_png

SETTINGS = {"train.batch": 8, "train.evaluations": 1}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of small pictures with captions."""
    pytest.importorskip("PIL.Image")
    home, numbers = tmp_path_factory.mktemp("home"), np.random.default_rng(0)
    rows = ["picture\tcaption"]
    (home / "pictures").mkdir()
    for number in range(30):
        (home / "pictures" / f"{number}.png").write_bytes(
            encode_png(numbers.integers(0, 255, (8, 8, 3)).astype(np.uint8))
        )
        rows.append(f"pictures/{number}.png\ta square number {number % 3}")
    (home / "captions.tsv").write_text("\n".join(rows))
    return home


def run_command(*arguments: object) -> str:
    done = CliRunner().invoke(app, [str(each) for each in arguments])
    return done.output if done.exit_code == 0 else str(done.exception)


def test_captions_of_one_and_several_pictures(home: Path) -> None:
    run = home / "captioner"
    lmlab.train("captioner", home / "captions.tsv", output=run, size="tiny", budget="2steps", settings=SETTINGS)
    lm = lmlab.load(run)
    one = lm.caption(home / "pictures" / "0.png", beams=2)
    assert isinstance(one, str)
    assert lm.caption([home / "pictures" / "0.png", home / "pictures" / "1.png"], beams=2)[0] == one
    with pytest.raises(ValueError, match=r"captioner and has learnt no task: lmlab caption .* PICTURE"):
        _ = lm.predictor
    with pytest.raises(ValueError, match="reads pictures, not text: lmlab caption"):
        lm.translate("a text")
    with pytest.raises(ValueError, match=r"use it with lmlab caption, lmlab evaluate, or train ngram"):
        lm.score("a text")
    with pytest.raises(TypeError, match=r"pictures = 3: give a path \(str or Path\) or a list of paths, not int"):
        lm.caption(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"pictures\[1\] = None: give a path"):
        lm.caption(["a.png", None])  # type: ignore[list-item]
    found = json.loads(run_command("evaluate", run, "--limit", 1, "--json"))
    assert (found["pictures"], found["split"]) == (1, "test")
    said = run_command("predict", run, home / "pictures" / "0.png")
    assert "lmlab caption" in said
    assert "translate" not in said


def test_transcripts_are_those_of_the_transcriber(tmp_path: Path) -> None:
    lm = lmlab.load(speech_runs.write_run(tmp_path / "run", multilingual=False))
    samples = np.round(speech_runs.SOUND.samples * 32767).astype("<i2")
    with wave.open(str(tmp_path / "sound.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(speech_runs.SOUND.rate)
        file.writeframes(samples.tobytes())
    sound = Sound((samples / 32768).astype(np.float32), speech_runs.SOUND.rate)
    text = lm.transcribe(tmp_path / "sound.wav")
    assert text == lm.transcriber.transcribe(sound).text
    assert lm.transcribe([tmp_path / "sound.wav"]) == [text]
    with pytest.raises(TypeError, match="recordings = 5: give a path"):
        lm.transcribe(5)  # type: ignore[arg-type]


def test_music_and_pixels(tmp_path: Path, home: Path) -> None:
    lmlab.train("lstm", "builtin:tunes", output=tmp_path / "tunes", size="tiny", budget="1steps", settings=SETTINGS)
    lm = lmlab.load(tmp_path / "tunes")
    made = lm.compose(tokens=12, seed=1)
    assert made.ids == lm.compose(tokens=12, seed=1).ids
    assert len(made.ids) <= 12
    settings = {**SETTINGS, "data.size": 4}
    lmlab.train(
        "lstm", home / "pictures", output=tmp_path / "pixels", tokenizer="pixels:2", budget="1steps", settings=settings
    )
    drawn = lmlab.load(tmp_path / "pixels").draw(home / "pictures" / "0.png", rows=1, count=2)
    assert [each.shape for each in drawn] == [(4, 4, 3)] * 2
    assert np.array_equal(drawn[0][0], drawn[1][0])
    with pytest.raises(TypeError, match="did you mean 'temperature'"):
        lm.compose(temprature=1)


def test_it_acts_in_the_built_in_environment(tmp_path: Path) -> None:
    run = tmp_path / "pole"
    lmlab.train(
        "decision-transformer", "builtin:cart-pole", output=run, size="tiny", budget="2steps", settings=SETTINGS
    )
    lm = lmlab.load(run)
    found = lm.act("builtin:cart-pole", returns=[20, 50], episodes=2)
    assert [row.asked for row in found.rows] == [20, 50]
    assert found.rows == lm.act("builtin:cart-pole", returns=[20, 50], episodes=2).rows
    with pytest.raises(TypeError, match=r"act\(… 500\): give this by name: returns=, episodes=, seed="):
        lm.act("builtin:cart-pole", 500)  # type: ignore[misc]
    with pytest.raises(TypeError, match=r"act\(\) needs env"):
        lm.act()  # type: ignore[call-arg]
    assert "actions in 3 episodes" in " ".join(run_command("evaluate", run, "--limit", 3).split())
    film = tmp_path / "film.gif"
    said = run_command("act", run, "--env", "builtin:cart-pole", "--episodes", 1, "--video", film)
    assert "builtin:cart-pole" in said or "reaches" in said
    assert film.stat().st_size > 100
    assert "is not built in: builtin:cart-pole" in run_command("act", run, "--env", "builtin:pole")
    assert "a policy and has learnt no task: lmlab act" in run_command("predict", run, "a")


def test_the_built_in_environment_equals_gymnasium() -> None:
    gymnasium = pytest.importorskip("gymnasium")
    theirs, ours = gymnasium.make("CartPole-v1").unwrapped, CartPole()
    state, _ = ours.reset(seed=3)
    theirs.reset(seed=0)
    theirs.state = tuple(state)
    for action in [0, 1, 1, 0, 1, 0, 0, 1] * 20:
        observed, reward, ended, _, _ = theirs.step(action)
        state, own_reward, own_ended, _, _ = ours.step(action)
        np.testing.assert_allclose(state, observed, rtol=1e-5)
        assert (own_reward, own_ended) == (reward, ended)
        if ended:
            break
    else:
        pytest.fail("the pole should fall")
    assert ours.render().shape == (120, 180, 3)
    assert move(np.zeros(4), 1)[1] > 0


def test_unknown_words_are_a_warning(home: Path, tmp_path: Path) -> None:
    run = tmp_path / "clip"
    lmlab.train("clip", home / "captions.tsv", output=run, tokenizer="words", budget="1steps", settings=SETTINGS)
    lm = lmlab.load(run)
    with pytest.warns(UnknownWordWarning, match="'dog'"):
        lm.zero_shot(home / "pictures" / "0.png", ["square", "dog"])
    with pytest.warns(UnknownWordWarning, match="'bird'"):
        lm.find("a bird", home / "pictures", top=1)
    assert lm.matcher.unknown_words(["a square", "number"]) == []


def test_every_built_in_data_set_is_listed_with_its_systems() -> None:
    names = {f"builtin:{name}" for name in BUILTIN_PICTURES}
    assert names < BUILT_IN.keys()
    assert all(system in LINEAGE for each in BUILT_IN.values() for system in each.systems)
    assert {system for each in BUILT_IN.values() for system in each.systems} >= {
        name for name, row in LINEAGE.items() if "text" not in row.reads
    }
    said = run_command("list", "data")
    assert all(name in said for name in BUILT_IN)
    said = run_command("list")
    assert all(name in said for name in LINEAGE)


@pytest.mark.parametrize(
    ("system", "data", "fits"),
    [("vqa", "builtin:scenes", "builtin:scene-questions"), ("vit", "builtin:scenes", "builtin:signs")],
)
def test_built_in_data_that_do_not_fit(system: str, data: str, fits: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"{system} learns from {fits}"):
        lmlab.train(system, data, output=tmp_path / "run", budget="1steps")


def test_all_systems_have_a_tiny_size() -> None:
    assert [name for name, row in LINEAGE.items() if "tiny" not in row.sizes] == []


def test_methods_are_found_by_completion() -> None:
    assert {"caption", "transcribe", "compose", "draw", "act", "find", "zero_shot"} <= set(dir(LanguageModel))
