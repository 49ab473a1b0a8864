"""One model of several kinds of data: trained, resumed exactly, scored by kind, and used for each kind."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lmlab
from commands import lmlab_command
from killing import kill_while_saving
from lmlab.analysis.kind_scores import measure_kinds
from lmlab.data import make_config, prepare
from lmlab.data.corpora.mixture import MixtureConfig, MixtureSplit
from lmlab.decoding.kind_view import KindView
from lmlab.decoding.sampling import Sampling
from lmlab.runs import run
from lmlab.runs.held_out import find_held_out, find_held_out_split, reopen_corpus
from lmlab.runs.jobs import Silent
from lmlab.runs.model_files import load_model
from lmlab.runs.recipe import make_recipe
from lmlab.runs.recipe_record import RecipeRecord, find_changes, read_record
from lmlab.runs.storage import read_tensors
from lmlab.tokenizers.processors import load_processor
from lmlab.tokenizers.processors.joined import JoinedTokenizer
from tolerances import of_blocks

Image = pytest.importorskip("PIL.Image")
COLOURS = {"red": (220, 30, 30), "blue": (30, 30, 220)}
SPEC = "text=bpe:300,captions=pixels:4,notes=grid:2,episodes=steps:8"


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Small data of each kind: sentences, pictures of one colour, scales, episodes that act by the sign of a state."""
    home = tmp_path_factory.mktemp("parts")
    numbers = np.random.default_rng(0)
    names = ("the cat", "a dog", "the bird")
    lines = [f"{names[k % 3]} sees {names[(k // 3) % 3]} number {k}." for k in range(400)]
    (home / "book.txt").write_text("\n".join(lines))
    rows = ["picture\tcaption"]
    for number in range(60):
        name = list(COLOURS)[number % 2]
        pixels = np.full((4, 4, 3), COLOURS[name], np.uint8)
        pixels[number % 4, number // 4 % 4] = 255
        Image.fromarray(pixels).save(home / f"{number}.png")
        rows.append(f"{number}.png\ta square in {name}")
    (home / "pictures.tsv").write_text("\n".join(rows) + "\n")
    pieces = [[[60 + (start + step) % 12, 48] for step in range(24)] for start in range(24)]
    (home / "scales.json").write_text(json.dumps(pieces))
    with (home / "episodes.jsonl").open("w") as file:
        for _ in range(240):
            states = numbers.normal(size=(12, 1)).round(3)
            episode = {"states": states.tolist(), "actions": (states[:, 0] > 0).astype(int).tolist()}
            file.write(json.dumps({**episode, "rewards": [1.0] * 12}) + "\n")
    files = {"text": "book.txt", "captions": "pictures.tsv", "notes": "scales.json", "episodes": "episodes.jsonl"}
    return {kind: str(home / name) for kind, name in files.items()}


def recipe(parts: dict[str, str], system: str = "gpt2", budget: str = "60steps", **data: Any) -> Any:
    named = [f"{kind}={path}" for kind, path in parts.items()]
    train = {"budget": budget, "batch": 8, "evaluations": 2, "save_seconds": 0}
    model = {"kind": system, "size": "tiny"}
    if system in ("gpt2", "llama"):
        model |= {"width": 32, "window": 48}
    own = {"spec": ",".join(each for each in SPEC.split(",") if each.partition("=")[0] in parts)}
    return make_recipe({"data": {"text": named, **data}, "tokenizer": own, "model": model, "train": train})


@pytest.fixture(scope="module")
def trained(parts: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mixture") / "run"
    run.start(recipe(parts, budget="240steps"), path)
    return path


def test_ids_do_not_overlap_and_captions_share_those_of_the_text(trained: Path) -> None:
    joined = load_processor(trained)
    assert isinstance(joined, JoinedTokenizer)
    assert list(joined.parts) == ["text", "captions", "notes", "episodes"]
    words = joined.parts["text"].vocabulary
    assert np.array_equal(joined.ids["captions"][:words], joined.ids["text"])
    own = [joined.ids["text"], joined.ids["captions"][words:], joined.ids["notes"], joined.ids["episodes"]]
    assert sorted(np.concatenate(own).tolist()) == list(range(joined.vocabulary))
    assert len(set(joined.boundaries)) == 4, "each kind has a boundary of its own"
    assert load_model(trained)[0].vocabulary == joined.vocabulary


def test_batches_have_one_kind_each_as_often_as_the_weights_say(parts: dict[str, str]) -> None:
    config = recipe(parts, weights={"text": 2.0}).data
    corpus = prepare(config, processor=SPEC)
    joined, train = corpus.processor, corpus.train
    assert isinstance(joined, JoinedTokenizer)
    assert isinstance(train, MixtureSplit)
    from lmlab.objectives.causal import Causal

    objective = Causal(None, joined)
    loader = train.loader(lambda part: objective.loader(part, batch=2, window=8, seed=0, streams=False), seed=0)
    counts = dict.fromkeys(joined.parts, 0)
    for step in range(256):
        tokens = set(loader.batch(step).flatten().tolist())
        kinds = [name for name in joined.parts if tokens <= set(joined.ids[name].tolist())]
        if set(kinds) == {"text", "captions"}:  # words of a caption alone
            kinds = ["text"]
        assert kinds, "a batch has one kind"
        counts[kinds[0]] += 1
    assert abs(counts["text"] / 256 - 0.4) < 0.06
    assert abs(counts["notes"] / 256 - 0.2) < 0.01


def test_the_model_is_better_than_guessing_in_each_kind(trained: Path, parts: dict[str, str]) -> None:
    model, _ = load_model(trained)
    found = find_held_out_split(trained)
    scores = measure_kinds(model.eval(), load_processor(trained), found.split, run="run", name=found.name)
    value = {(row.kind, row.score): row.value for row in scores.rows}
    assert value["text", "bits per byte"] < 2.5
    assert value["captions", "bits per dimension"] < 1.2, "two bits without any learning"
    assert value["notes", "nats per note"] < 1.5, "129 pitches and rests"
    assert value["episodes", "nats per action"] < 0.6, "ln 2 = 0.69 for a coin"
    assert all(row.items > 0 for row in scores.rows)


def test_scores_are_those_of_the_joined_model_itself(trained: Path) -> None:
    """The surprisal of each token by one forward pass over boundary and item, in joined ids."""
    model, _ = load_model(trained)
    model.eval()
    joined, split = load_processor(trained), find_held_out_split(trained).split
    assert isinstance(split, MixtureSplit)
    for kind, part in split.kinds.items():
        item = next(part.items())[:40]
        own = joined.ids[kind]
        row = torch.from_numpy(np.concatenate([[own[joined.parts[kind].boundary]], own[item]]))[None]
        with torch.no_grad():
            logits = model.logits(model(tokens=row[:, :-1]).hidden[0])
        expected = -logits.double().log_softmax(-1).gather(1, row[0, 1:, None]).squeeze(1)
        view = KindView(model, own)
        boundary = joined.parts[kind].boundary
        nats, _ = view.score(
            torch.from_numpy(np.concatenate([[boundary], item[:-1]]))[None], torch.from_numpy(item)[None], view.start(1)
        )
        torch.testing.assert_close(nats[0].double(), expected, atol=of_blocks(2, width=32, growth=8), rtol=1e-4)


def test_a_view_reads_step_by_step_and_writes_its_own_kind(trained: Path) -> None:
    model, _ = load_model(trained)
    joined = load_processor(trained)
    view = KindView(model.eval(), joined.ids["notes"])
    tokens = torch.tensor([[joined.parts["notes"].boundary, 60, 48, 61]])
    with torch.inference_mode():
        at_once, _ = view.step(tokens, view.start(1))
        state: Any = view.start(1)
        for t in range(4):
            logits, state = view.step(tokens[:, t : t + 1], state)
    assert logits.shape == (1, joined.parts["notes"].vocabulary)
    torch.testing.assert_close(logits, at_once, atol=of_blocks(2, width=32, growth=8), rtol=0)


def test_later_tokens_change_nothing_before_them(trained: Path) -> None:
    model, _ = load_model(trained)
    tokens = torch.randint(0, model.vocabulary, (2, 20), generator=torch.Generator().manual_seed(0))
    other = tokens.clone()
    other[:, 12:] = (other[:, 12:] + 1) % model.vocabulary
    with torch.no_grad():
        one, two = (model.eval()(tokens=each).hidden[:, :12] for each in (tokens, other))
    assert torch.equal(one, two)


def test_each_kind_can_be_generated(trained: Path) -> None:
    lm = lmlab.load(trained)
    assert isinstance(lm.generate("the cat", tokens=10, seed=1), str)
    assert lm.score("the cat sees a dog number 3.").bits_per_byte < 4
    made = lm.composer.compose(tokens=16, sampling=Sampling(seed=1))
    assert len(made.ids) <= 16
    assert len(made.performance.pitches)
    texts = ["a square in red", "a square in blue"]
    red, blue = lm.painter.draw_captions(texts, sampling=Sampling(temperature=0.0))
    assert [red.caption, blue.caption] == texts
    assert red.picture[0, 0, 0] > red.picture[0, 0, 2], "a red square has more red than blue"
    assert blue.picture[0, 0, 2] > blue.picture[0, 0, 0]
    written = lm.painter.draw_captions(None, count=2, sampling=Sampling(seed=1))
    assert all(each.picture.shape == (4, 4, 3) for each in written)
    assert np.array_equal(lm.draw(caption=texts[0], temperature=0.0)[0], red.picture)
    assert np.array_equal(lm.draw(count=2, seed=1)[1], written[1].picture)
    with pytest.raises(ValueError, match="draws from captions, not from parts of pictures"):
        lm.painter.draw(red.picture)
    actor = lm.actor
    with torch.inference_mode():
        for sign in (-1.0, 1.0):
            history = actor.model.start(1)
            scores, history = actor.model.step(torch.tensor([[sign]]), history, returns=torch.ones(1))
            taken = torch.nn.functional.one_hot(scores.argmax(1), 2).float()
            again, _ = actor.model.step(torch.tensor([[sign]]), history, returns=torch.ones(1), actions=taken)
            assert scores.shape == again.shape == (1, 2)
            assert int(again.argmax()) == (sign > 0)


@pytest.mark.parametrize("system", ["lstm", "llama"])
def test_other_systems_learn_a_mixture(system: str, parts: dict[str, str], tmp_path: Path) -> None:
    outcome = run.start(
        recipe({kind: parts[kind] for kind in ("notes", "episodes")}, system, "5steps"), tmp_path / "run"
    )
    assert "notes" in outcome.quality
    assert "episodes" in outcome.quality


def test_a_mixture_resumes_to_the_bit_after_kill_9(parts: dict[str, str], tmp_path: Path) -> None:
    named = [f"{kind}={path}" for kind, path in parts.items()]
    words = ["train", "gpt2", *named, "--tokenizer", SPEC, "--size", "tiny", "--budget", "10steps"]
    words += ["--set", "model.width=32", "--set", "model.window=48", "--set", "train.batch=8"]
    words += ["--set", "train.save_seconds=0", "--set", "train.evaluations=2"]
    kill_while_saving(*words, "-o", str(tmp_path / "cut"), run="cut", saves=1)
    assert not run.resume(tmp_path / "cut").interrupted
    run.start(recipe(parts, budget="10steps"), tmp_path / "whole")
    one, other = (read_tensors(tmp_path / name / "model.safetensors") for name in ("whole", "cut"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_run_goes_on_from_another_with_its_ids(trained: Path, parts: dict[str, str], tmp_path: Path) -> None:
    """The new data have fewer notes and another text, and yet the ids stay."""
    named = {"text": [f"{kind}={path}" for kind, path in parts.items()]}
    values = {
        "data": named,
        "model": {"kind": "gpt2"},
        "train": {"budget": "2steps", "batch": 8},
        "origin": str(trained),
    }
    run.start(make_recipe(values), tmp_path / "more")
    assert load_processor(tmp_path / "more") == load_processor(trained)


def test_episodes_and_captions_alone(parts: dict[str, str], tmp_path: Path) -> None:
    """A specialist is a mixture of one kind; episodes need no name."""
    run.start(recipe({"captions": parts["captions"]}, budget="3steps"), tmp_path / "captions")
    assert lmlab.load(tmp_path / "captions").painter.captioned is not None
    values = {"data": {"episodes": parts["episodes"]}, "model": {"kind": "gpt2", "size": "tiny"}}
    outcome = run.start(make_recipe({**values, "train": {"budget": "3steps", "batch": 8}}), tmp_path / "episodes")
    assert "nats per token" in outcome.quality
    assert lmlab.load(tmp_path / "episodes").actor.processor.actions == 2


def test_a_mixture_whose_files_were_moved_resumes(parts: dict[str, str], tmp_path: Path) -> None:
    """Each kind may be named at its new place; its other settings stay."""
    chosen = {kind: parts[kind] for kind in ("text", "notes", "episodes")}
    old, path = tmp_path / "old.txt", tmp_path / "run"
    shutil.copy(chosen["text"], old)
    run.start(recipe({**chosen, "text": str(old)}, budget="2steps"), path)
    old.rename(tmp_path / "new.txt")
    with pytest.raises(ValueError, match=rf"lmlab train --resume {path} text=NEW$"):
        run.resume(path, settings={"budget": "3steps"})
    with pytest.raises(ValueError, match="say where each is now, as in text=FILES notes=FILES episodes=FILES"):
        run.resume(path, texts={"text": ["images=x"]})
    moved = {"text": [f"text={tmp_path / 'new.txt'}"]}
    assert not run.resume(path, settings={"budget": "3steps"}, texts=moved).interrupted
    assert read_record(path).recipe.data.paths()[0] == str(tmp_path / "new.txt")


def test_the_same_files_named_from_another_folder_are_the_same_settings(
    parts: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = {kind: parts[kind] for kind in ("text", "notes")}
    path = tmp_path / "run"
    run.start(recipe(chosen, budget="2steps"), path)
    monkeypatch.chdir(Path(parts["text"]).parent)
    near = recipe({kind: Path(each).name for kind, each in chosen.items()}, budget="2steps")
    assert find_changes(read_record(path), near) == []
    other = recipe({**chosen, "notes": "other.json"}, budget="2steps")
    assert find_changes(read_record(path), other) == ["data.parts"]


def test_the_recipe_has_the_split_of_each_kind(parts: dict[str, str]) -> None:
    usual, given = recipe(parts).data, recipe(parts, split=[0.7, 0.2, 0.1]).data
    assert usual.split == []
    assert usual.parts["captions"].split == [0.8, 0.1, 0.1]
    assert usual.parts["notes"].split == [0.9, 0.05, 0.05]
    assert all(each.split == [0.7, 0.2, 0.1] for each in (given, *given.parts.values()))


def test_text_from_standard_input_cannot_be_read_again(parts: dict[str, str], tmp_path: Path) -> None:
    record = RecipeRecord(recipe({"text": "-", "notes": parts["notes"]}), None, None)
    with pytest.raises(ValueError, match="trained on standard input"):
        reopen_corpus(record, tmp_path, Silent())


def test_a_text_without_tokens_is_not_scored(tmp_path: Path) -> None:
    """Words have no token for a line of spaces alone."""
    lines = [f"one two {'three' if number % 2 else 'four'}" if number % 3 else "   " for number in range(90)]
    (tmp_path / "lines.txt").write_text("\n".join(lines))
    part = {"text": str(tmp_path / "lines.txt"), "documents": "lines", "split": [0.4, 0.3, 0.3]}
    values = {"data": {"parts": {"text": part}}, "tokenizer": {"spec": "words"}}
    train = {"budget": "1steps", "batch": 2}
    run.start(make_recipe({**values, "model": {"kind": "gpt2", "size": "tiny"}, "train": train}), tmp_path / "run")
    found, tokenizer = find_held_out_split(tmp_path / "run"), load_processor(tmp_path / "run")
    assert any(not text.strip() for text in found.split.parts()["text"].texts())
    scores = measure_kinds(load_model(tmp_path / "run")[0].eval(), tokenizer, found.split, run="run", name="test")
    assert scores.rows[0].items > 0


def test_held_out_pictures_of_a_mixture_without_captions(
    parts: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, path = tmp_path / "pictures", tmp_path / "run"
    folder.mkdir()
    for picture in Path(parts["text"]).parent.glob("*.png"):
        shutil.copy(picture, folder)
    data = {"parts": {"images": str(folder), "notes": parts["notes"]}}
    train = {"budget": "1steps", "batch": 2}
    values = {"data": data, "tokenizer": {"spec": "images=pixels:4"}, "train": train}
    run.start(make_recipe({**values, "model": {"kind": "gpt2", "size": "tiny"}}), path)
    words = ("--held-out", "--limit", 2, "-n", 1, "-o", tmp_path / "drawn.png")
    assert lmlab_command(monkeypatch, "draw", path, *words) == 0
    assert "2 pictures completed at 4 × 4 pixels" in capsys.readouterr().out
    assert lmlab_command(monkeypatch, "draw", path, "--caption", "red", "-o", tmp_path / "x.png") != 0
    assert "has learnt pictures without captions" in " ".join(capsys.readouterr().err.split())
    with pytest.raises(ValueError, match="was not trained on text"):
        find_held_out(path)


def test_commands(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lmlab_command(monkeypatch, "evaluate", trained, "--json") == 0
    kinds = {row["kind"] for row in json.loads(capsys.readouterr().out)["rows"]}
    assert kinds == {"text", "captions", "notes", "episodes"}
    assert lmlab_command(monkeypatch, "generate", trained, "the cat", "--tokens", 5) == 0
    picture, held_out = tmp_path / "one.png", tmp_path / "held-out.png"
    assert lmlab_command(monkeypatch, "draw", trained, "--caption", "a square in red", "-n", 2, "-o", picture) == 0
    assert "2 pictures: a square in red" in capsys.readouterr().out
    assert lmlab_command(monkeypatch, "draw", trained, "--held-out", "--limit", 2, "-n", 2, "-o", held_out) == 0
    assert picture.is_file()
    assert held_out.is_file()
    assert lmlab_command(monkeypatch, "score", trained, "--held-out") == 0
    card = (trained / "README.md").read_text()
    assert "nats per token: text" in card
    for command in (["report", trained, "-o", tmp_path / "page.html"], ["next", trained, "the"]):
        assert lmlab_command(monkeypatch, *command) == 0, command


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"text": ["text=book.txt", "other.txt"]}, r"other.txt has no kind, and other data do \(text\); name the kind"),
        (
            {"text": ["text=book.txt", "tekst=other.txt"]},
            "unknown kind of data 'tekst' in tekst=other.txt; did you mean 'text'",
        ),
        ({"parts": {"music": "tunes"}}, "unknown kind of data 'music'"),
        ({"parts": {}}, "parts"),
        ({"parts": {"text": "a.txt"}, "weights": {"notes": 1.0}}, "no data of the kind 'notes'"),
        ({"parts": {"text": "a.txt"}, "weights": {"text": 0.0}}, "give numbers above 0"),
        ({"parts": {"notes": {"notes": "a", "files": "b"}}}, "unknown setting data.parts.notes.files"),
        ({"parts": {"text": "a.txt"}, "documents": "lines"}, "documents belongs to"),
        ({"parts": {"text": "a.txt"}, "bad": "skip"}, "bad is a setting of files, and text have none"),
    ],
)
def test_wrong_settings_are_one_clear_line(data: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        make_config(data)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("text=bpe:300,text=bytes", "give one for each kind"),
        ("captions=grid", "does not encode pictures"),
        ("notes=pixels:4", "does not encode music"),
        ("episodes=bpe:300", "does not encode episodes"),
        ("episodes=steps:1", "give 2 to 1024 bins"),
        ("images=pixels:4", "a tokenizer is given for images"),
    ],
)
def test_wrong_tokenizers_are_one_clear_line(spec: str, message: str, parts: dict[str, str]) -> None:
    config = make_config({"parts": parts})
    assert isinstance(config, MixtureConfig)
    with pytest.raises(ValueError, match=message):
        prepare(config, processor=spec)


def test_bad_files_of_all_parts_are_skipped(parts: dict[str, str]) -> None:
    config = make_config({"parts": {"text": parts["text"], "captions": parts["captions"]}, "bad": "skip"})
    assert isinstance(config, MixtureConfig)
    assert config.parts["captions"].model_dump()["bad"] == "skip"
    assert make_config(config.model_dump()) == config


def test_what_a_mixture_cannot_do_is_said_in_one_line(
    trained: Path,
    parts: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    named = [f"{kind}={parts[kind]}" for kind in ("text", "notes")]
    picture = Path(parts["captions"]).with_name("0.png")
    commands: list[tuple[list[str | Path], str]] = [
        (["train", "bert", *named, "-o", tmp_path / "bert"], "bert learns from one kind of data"),
        (["train", "ngram", *named, "-o", tmp_path / "ngram"], "ngram counts plain text"),
        (["draw", trained, "--given", picture, "-o", tmp_path / "x.png"], "draws from captions"),
        (["embed", trained, parts["text"], "-o", tmp_path / "x.npy"], "has learnt several kinds of data, and gives no"),
        (["convert", trained, tmp_path / "hf", "--to", "huggingface"], "has no tokenizer.json"),
        (["draw", trained, "--caption", "", "-o", tmp_path / "x.png"], "the caption is empty"),
        (["fill", trained, "a [MASK]", "--picture", picture], "gpt2"),
        (["compare", *named, "-o", tmp_path / "compared"], "systems are compared on one kind of data"),
    ]
    for command, message in commands:
        capsys.readouterr()
        assert lmlab_command(monkeypatch, *command) != 0, command
        error = " ".join(capsys.readouterr().err.split())
        assert "Traceback" not in error, (command, error)
        assert message in error, (command, error)


def test_a_damaged_processor_is_refused(trained: Path, tmp_path: Path) -> None:
    copied = tmp_path / "run"
    shutil.copytree(trained, copied)
    for damaged in ('{"kind": "joined"}', '{"kind": "joined", "parts": {"text": {"kind": "text"}}}', "[]", "{"):
        (copied / "processor.json").write_text(damaged)
        with pytest.raises(ValueError, match="damaged"):
            lmlab.load(copied)
