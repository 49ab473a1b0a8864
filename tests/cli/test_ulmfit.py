"""ULMFiT: long texts in segments, the three stages as commands and as one, both directions and their mean."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lmlab.cli.finetune import _stop
from lmlab.data.readers.examples import Example
from lmlab.language_model import load, load_ensemble
from lmlab.models import create
from lmlab.runs.recipe import make_recipe
from lmlab.runs.recipe_record import read_record
from lmlab.runs.run import start
from lmlab.runs.storage import digest_weights, read_json, read_tensors
from lmlab.tasks.long_texts import LEARNT, read_in_segments
from lmlab.tasks.predicting import Ensemble, average
from lmlab.tasks.records import Prediction
from lmlab.transfer.finetune import finetune
from lmlab.transfer.recipe import plan_finetuning
from lmlab.transfer.task_data import open_data
from lmlab.transfer.trials import Trial, plan_trial, run_trials
from lmlab.transfer.ulmfit import plan_tuning, tune
from tolerances import rounding
from toy_tasks import write_reviews, write_tagged, write_toy_run

pytestmark = pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning")
QUICK = {"budget": "4steps", "evaluations": 1}
TINY = {"kind": "awd-lstm", "size": "tiny", "width": 12, "hidden": 16}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A general language model, forwards and backwards, and reviews."""
    root = tmp_path_factory.mktemp("ulmfit")
    words = np.random.default_rng(0).choice(["a", "good", "bad", "film", "is", "the", "not", "."], 3000)
    (root / "general.txt").write_text(" ".join(words))
    write_reviews(root / "reviews.tsv")
    for name, objective in (("forwards", {}), ("backwards", {"backwards": True})):
        recipe = make_recipe(
            {
                "data": {"text": str(root / "general.txt")},
                "tokenizer": {"spec": "bpe:300"},
                "model": TINY,
                "objective": objective,
                "train": {**QUICK, "batch": 4},
            }
        )
        start(recipe, root / name)
    return root


# Long texts


def make_model() -> Any:
    torch.manual_seed(0)
    return (
        create("awd-lstm", {"vocabulary": 20, "width": 6, "hidden": 8, "reset_probability": 0.0}, size="tiny")
        .double()
        .eval()
    )


def test_segments_give_the_vectors_of_the_whole() -> None:
    model, tokens = make_model(), torch.randint(0, 20, (3, 47))
    whole = model(tokens).hidden
    found = read_in_segments(model, tokens, segment=10)
    torch.testing.assert_close(found, whole, rtol=0, atol=rounding(terms=8, depth=94, dtype=torch.float64))


def test_gradients_stay_within_a_segment() -> None:
    """Of the last vector only the tokens of its own segment learn; of the mean, all do."""
    model, tokens = make_model(), torch.arange(20)[None]
    read_in_segments(model, tokens, segment=8)[0, -1].sum().backward()
    learns = model.embedding.weight.grad.any(1)
    assert learns.tolist() == [False] * 16 + [True] * 4
    model.zero_grad()
    read_in_segments(model, tokens, segment=8).mean().backward()
    assert model.embedding.weight.grad.any(1).all()


def test_the_first_segments_of_very_long_texts_are_read_without_gradients() -> None:
    model = make_model()
    tokens = torch.cat([torch.zeros(1, 6, dtype=torch.long), torch.ones(1, 2 * LEARNT, dtype=torch.long)], dim=1)
    read_in_segments(model, tokens, segment=2).mean().backward()
    assert not model.embedding.weight.grad[0].any()
    assert model.embedding.weight.grad[1].any()


# The stages


def test_beginning_with_a_run_has_ulmfits_rates(place: Path) -> None:
    values = {"data": {"text": str(place / "general.txt")}, "model": {"kind": "awd-lstm"}}
    begun = make_recipe({**values, "origin": str(place / "forwards")})
    assert (begun.train.schedule, begun.train.layer_decay) == ("slanted", pytest.approx(1 / 2.6))
    assert make_recipe(values).train.layer_decay == 1
    assert begun.tokenizer.spec == str(place / "forwards" / "tokenizer.json"), "the tokenizer travels with the run"
    own = make_recipe({**values, "origin": str(place / "forwards"), "train": {"schedule": "cosine"}})
    assert own.train.schedule == "cosine"


def test_the_classifier_is_that_of_ulmfit(place: Path) -> None:
    data = open_data(place / "reviews.tsv")
    recipe = plan_finetuning(place / "forwards", data.labelled, data.config, method="gradual")
    objective = recipe.objective
    assert (objective["pool"], objective["activation"], objective["hidden"]) == ("concat", "relu", 50)
    assert (objective["segment"], recipe.model["reset_probability"]) == (70, 0.0)
    assert recipe.train.layer_decay == pytest.approx(1 / 2.6)
    assert recipe.train.unfreeze is not None
    other = plan_finetuning(write_toy_run(place / "toy-lstm", "lstm"), data.labelled, data.config, method="gradual")
    assert other.objective["segment"] is None
    assert "reset_probability" not in other.model or other.model["reset_probability"] != 0.0


def test_ulmfit_tunes_the_language_model_on_training_texts_alone(place: Path, tmp_path: Path) -> None:
    done = finetune(
        place / "forwards",
        place / "reviews.tsv",
        output=tmp_path / "stars",
        how="ulmfit",
        controls=False,
        train=QUICK,
        language={**QUICK, "batch": 2, "window": 8},
    )
    tuned = tmp_path / "stars-lm"
    record = read_record(tuned)
    assert (record.recipe.origin, record.recipe.objective["kind"]) == (str(place / "forwards"), "causal")
    (text,) = record.recipe.data.paths()
    data = open_data(place / "reviews.tsv")
    content = Path(text).read_text()
    assert all(str(example.a) in content for example in data.labelled.train)
    held_out = [*(data.labelled.valid or ()), *(data.labelled.test or ())]
    assert not any(f"\n{example.a}\n" in content for example in held_out)
    final = read_record(tmp_path / "stars")
    assert final.recipe.origin == str(tuned)
    assert final.origin_sha256 == digest_weights(tuned) != digest_weights(place / "forwards")
    (result,) = done.study.results
    assert (result.method, result.run, result.name) == ("ulmfit", str(place / "forwards"), "forwards")
    assert "tuning its language model" in result.note
    assert load(tmp_path / "stars").classify("a good film").value in done.study.labels


def test_a_curve_tunes_once(place: Path, tmp_path: Path) -> None:
    data = open_data(place / "reviews.tsv")
    language = {**QUICK, "batch": 2, "window": 8}
    trials = [
        Trial(origin=place / "forwards", method="ulmfit", limit=take, train=QUICK, language=language)
        for take in (6, None)
    ]
    results = [result for _, result in run_trials([plan_trial(each, data) for each in trials], tmp_path)]
    assert [result.examples for result in results] == [6, len(data.labelled.train)]
    folders = [entry.name for entry in tmp_path.iterdir() if entry.is_dir()]
    assert folders.count("forwards-seed-0-lm") == 1
    assert len(folders) == 3
    assert (tmp_path / "forwards-seed-0-lm" / "model.safetensors").is_file()


def test_what_is_tuned_is_taken_again_and_nothing_else_is(place: Path, tmp_path: Path) -> None:
    data = open_data(place / "reviews.tsv")
    settings = {**QUICK, "batch": 2, "window": 8}
    recipe, texts = plan_tuning(place / "forwards", data.labelled.train, seed=0, train=settings)
    texts.write()
    polls = iter(range(1000))
    assert tune(recipe, tmp_path / "lm", interrupted=lambda: next(polls) >= 2) is None
    first = tune(recipe, tmp_path / "lm")
    assert first is not None
    assert first.trained
    again = tune(recipe, tmp_path / "lm")
    assert again is not None
    assert not again.trained
    other, _ = plan_tuning(place / "forwards", data.labelled.train, seed=1, train=settings)
    with pytest.raises(ValueError, match="holds another run"):
        tune(other, tmp_path / "lm")


def test_texts_are_written_once_each(place: Path) -> None:
    _, texts = plan_tuning(place / "forwards", [Example("one"), Example("two", "three"), Example("one")], seed=0)
    assert not texts.path.exists(), "planning writes nothing"
    texts.write()
    assert texts.path.read_text() == "one\n<|endoftext|>\ntwo\nthree"
    assert plan_tuning(place / "forwards", [Example("one"), Example("two", "three")], seed=0)[1].path == texts.path


# Both directions


def test_a_backward_model_predicts_each_token_from_those_after_it(place: Path) -> None:
    model = load(place / "backwards")
    assert model.frame.backwards == ("tokens",)
    text = "the film is not good ."
    score = model.score(text)
    ids = model.text_tokenizer.encode(text)
    row = torch.tensor([[model.text_tokenizer.boundary, *ids[::-1]]])
    with torch.no_grad():
        nats, _ = model.model.score(row[:, :-1], row[:, 1:], model.model.start(1))
    np.testing.assert_allclose(score.token_nats[0], nats[0].numpy()[::-1], rtol=1e-5)
    assert score.token_ids[0].tolist() == list(ids)
    (vectors,) = model.embed([text])
    with torch.no_grad():
        hidden = model.model(row).hidden[0]
    np.testing.assert_allclose(vectors.vectors, hidden[1:].flip(0).numpy(), rtol=1e-5, atol=1e-6)
    for use in (lambda: model.generate("the"), lambda: model.next("the")):
        with pytest.raises(ValueError, match="reads backwards"):
            use()


def test_what_begins_with_a_backward_model_reads_backwards(place: Path, tmp_path: Path) -> None:
    values = {"data": {"text": str(place / "general.txt")}, "model": {"kind": "awd-lstm"}}
    assert make_recipe({**values, "origin": str(place / "backwards")}).objective["backwards"] is True
    done = finetune(place / "backwards", place / "reviews.tsv", output=tmp_path / "stars", controls=False, train=QUICK)
    assert read_json(done.path / "task.json")["backwards"] is True
    predictor = load(done.path).predictor
    (item,) = predictor.task.items([Example("good film")])
    tokens = predictor.task.batch([item]).inputs["tokens"][0].tolist()
    assert tokens[1:-1] == list(item.parts["a"])[::-1]


def test_counting_backwards_is_refused(place: Path, tmp_path: Path) -> None:
    recipe = make_recipe(
        {
            "data": {"text": str(place / "general.txt")},
            "tokenizer": {"spec": "bytes"},
            "model": {"kind": "ngram"},
            "objective": {"backwards": True},
        }
    )
    with pytest.raises(ValueError, match="counts from left to right"):
        start(recipe, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_ensemble_averages_probabilities() -> None:
    one = Prediction("bad", 0.6, {"bad": 0.6, "good": 0.4})
    two = Prediction("good", 0.9, {"bad": 0.1, "good": 0.9})
    found = average([one, two])
    assert found.value == "good"
    assert found.scores == pytest.approx({"bad": 0.35, "good": 0.65})
    assert average([Prediction(1.0), Prediction(4.0)]).value == 2.5


def test_both_directions_together(place: Path, tmp_path: Path, run_command: Callable[..., Any]) -> None:
    paths = [
        finetune(place / name, place / "reviews.tsv", output=tmp_path / name, controls=False, train=QUICK).path
        for name in ("forwards", "backwards")
    ]
    ensemble = load_ensemble(paths)
    assert isinstance(ensemble, Ensemble)
    examples = [Example("a good film"), Example("not good")]
    alone = [load(path).predictor.predict(examples) for path in paths]
    for found, *each in zip(ensemble.predict(examples), *alone, strict=True):
        for label, share in found.scores.items():
            assert share == pytest.approx(sum(one.scores[label] for one in each) / 2)
    said = run_command("predict", str(paths[0]), "a good film", "--mix", str(paths[1]), "--json")
    assert said.code == 0, said.err
    assert json.loads(said.out)["scores"] == pytest.approx(ensemble.predict(examples)[0].scores, rel=1e-4)
    said = run_command("evaluate", str(paths[0]), str(place / "reviews.tsv"), "--mix", str(paths[1]), "--json")
    assert said.code == 0, said.err


def test_runs_of_other_tasks_are_no_ensemble(place: Path, tmp_path: Path) -> None:
    stars = finetune(place / "forwards", place / "reviews.tsv", output=tmp_path / "stars", controls=False, train=QUICK)
    tags = finetune(
        place / "forwards", write_tagged(tmp_path / "x.conll"), output=tmp_path / "tags", controls=False, train=QUICK
    )
    with pytest.raises(ValueError, match="different tasks"):
        load_ensemble([stars.path, tags.path])
    with pytest.raises(ValueError, match="tagging, whose predictions cannot be averaged"):
        load_ensemble([tags.path, tags.path])


def test_further_settings_of_the_language_model_need_ulmfit(place: Path, run_command: Callable[..., Any]) -> None:
    said = run_command(
        "finetune", str(place / "forwards"), str(place / "reviews.tsv"), "-o", "x", "--set", "language.budget=1steps"
    )
    assert said.code != 0
    assert "add --how ulmfit" in said.err


def test_long_reviews_are_learnt_alike_twice(place: Path, tmp_path: Path) -> None:
    long = tmp_path / "long.tsv"
    lines = ["text\tlabel", *(f"{'good ' if n % 2 else 'bad '}{n} {'film is the ' * 40}\t{n % 2}" for n in range(30))]
    long.write_text("\n".join(lines))
    weights = []
    for name in ("one", "two"):
        finetune(place / "forwards", long, output=tmp_path / name, how="gradual", controls=False, train=QUICK)
        weights.append(read_tensors(tmp_path / name / "model.safetensors"))
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_an_interrupted_tuning_says_where_the_language_model_is(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for language, words in ((place / "forwards", "tuned language model is saved in"), (None, "nothing was written")):
        with pytest.raises(SystemExit):
            _stop(place / "absent", language=language)
        assert words in capsys.readouterr().out
