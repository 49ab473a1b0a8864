"""The tagger of words and letters, and TagLM: against packed torch LSTMs, brute force, and its own runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lmlab.analysis.layer_mix import describe_mix
from lmlab.data.readers.examples import Example
from lmlab.language_model import load
from lmlab.layers.characters import CharacterWordCNN, CharacterWordLSTM
from lmlab.models import create
from lmlab.runs.averaging import average
from lmlab.runs.model_files import load_model, read_mix
from lmlab.runs.recipe import Recipe, make_recipe
from lmlab.runs.run import resume, start
from lmlab.runs.storage import digest, read_json, read_tensors, write_json, write_tensors
from lmlab.tasks.lm_embeddings import FrozenLM, LanguageStates
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.spellings import spell_rows, spell_word
from lmlab.transfer.finetune import finetune
from lmlab.transfer.from_scratch import (
    fold,
    folding_engine,
    format_coverage,
    is_architecture,
    make_vocabulary,
    plan_from_scratch,
    words_of,
)
from lmlab.transfer.task_data import open_data
from tolerances import rounding
from toy_tasks import write_reviews, write_tagged

pytestmark = pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning")
TRAIN = {"budget": "30steps", "evaluations": 1}
MODEL = {"width": 12, "hidden": 10, "filters": 8, "character_width": 6}


# Letters


def test_a_spelling_is_its_bytes_between_marks() -> None:
    assert spell_word("aé", longest=25) == [1, 3 + 97, 3 + 0xC3, 3 + 0xA9, 2]
    assert spell_word("abcdef", longest=5) == [1, 100, 101, 102, 2]
    rows = spell_rows([["a", "bcd"], ["e"]], longest=25)
    assert rows.shape == (2, 2, 5)
    assert rows[0, 0].tolist() == [1, 100, 2, 0, 0]
    assert not rows[1, 1].any()


def test_the_cnn_is_the_largest_value_of_each_filter() -> None:
    torch.manual_seed(0)
    layer = CharacterWordCNN(300, width=5, filters=7, window=3).double()
    word = spell_word("cats", longest=25)
    found = layer(spell_rows([["cats", "a"], ["hippopotamus"]], longest=25))
    E, W, b = layer.embedding.weight, layer.convolution.weight, layer.convolution.bias
    padded = torch.cat([torch.zeros(1, 5), E[word], torch.zeros(1, 5)]).double()
    scores = torch.stack([(W * padded[i : i + 3].T).sum((1, 2)) + b for i in range(len(word))])
    torch.testing.assert_close(found[0, 0], scores.max(0).values, rtol=1e-10, atol=1e-12)
    assert not found[1, 1].any(), "padding is zero"


def test_the_lstm_ends_where_a_word_ends() -> None:
    torch.manual_seed(0)
    layer = CharacterWordLSTM(300, width=5, hidden=4).double()
    found = layer(spell_rows([["cats", "hippopotamus"], ["a"]], longest=25))
    _, (h, _) = layer.recurrent(layer.embedding(torch.tensor([spell_word("cats", longest=25)])))
    torch.testing.assert_close(found[0, 0], torch.cat([h[0, 0], h[1, 0]]), rtol=1e-10, atol=1e-12)
    assert not found[1, 1].any()


# The network


def make(**changes: Any) -> Any:
    torch.manual_seed(0)
    return create("tagger", {"vocabulary": 30, **MODEL, "layers": 2, **changes}, size="tiny").double().eval()


def bilstm(encoder: Any, number: int) -> nn.LSTM:
    """One layer of an encoder as torch's own bidirectional LSTM."""
    ahead, back = encoder.ahead[number].fused, encoder.back[number].fused
    lstm = nn.LSTM(ahead.input_size, ahead.hidden_size, batch_first=True, bidirectional=True).double()
    for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"):
        getattr(lstm, name).data.copy_(getattr(ahead, name))
        getattr(lstm, f"{name}_reverse").data.copy_(getattr(back, name))
    return lstm


@pytest.mark.parametrize("place", ["between", "bottom", "both"])
def test_the_states_stand_where_the_papers_put_them(place: str) -> None:
    """h_{k,2} = biLSTM([→h; ←h; h^LM]) in TagLM; [x; h^LM], and [h; h^LM] at the top, for ELMo."""
    model = make(states=3, state_position=place)
    words, spellings = torch.randint(0, 30, (1, 5)), spell_rows([["a", "bc", "def", "g", "hi"]], longest=9)
    states = torch.randn(1, 5, 3, dtype=torch.float64)
    x = [model.embedding(words), model.characters(spellings)]
    h, _ = bilstm(model.lower, 0)(torch.cat([*x, *([states] if place != "between" else [])], -1))
    h, _ = bilstm(model.upper, 0)(torch.cat([h, states], -1) if place == "between" else h)
    expected = torch.cat([h, states], -1) if place == "both" else h
    found = model(words, spellings=spellings, states=states).hidden
    torch.testing.assert_close(found, expected, rtol=0, atol=rounding(terms=30, depth=24, dtype=torch.float64))
    assert torch.equal(model.layers(tokens=words, spellings=spellings, states=states)[-1], found)


def test_vectors_without_what_comes_with_words_are_refused() -> None:
    words = torch.zeros(1, 2, dtype=torch.long)
    with pytest.raises(ValueError, match=r"reads words with their spellings and states, which only its task gives"):
        make(states=3).layers(tokens=words)
    assert make(characters="none").layers(tokens=words)[-1].shape[:2] == (1, 2)


def test_layers_of_states_are_mixed() -> None:
    model = make(states=3, state_layers=4)
    with torch.no_grad():
        model.mix.scores.copy_(torch.tensor([0.0, 1.0, 2.0, -1.0]))
        model.mix.gamma.fill_(1.5)
    states = torch.randn(2, 5, 4, 3, dtype=torch.float64)
    mixed = 1.5 * (model.mix.scores.softmax(0)[:, None] * states).sum(2)
    found = model._states(states.flatten(2), torch.zeros(2, 5))
    torch.testing.assert_close(found, mixed)


@pytest.mark.parametrize("characters", ["cnn", "lstm", "none"])
def test_padding_changes_nothing(characters: str) -> None:
    model = make(characters=characters)
    rows, lengths = [["a", "bc", "def"], ["ghi"]], torch.tensor([3, 1])
    words = torch.tensor([[3, 4, 5], [6, 9, 9]])
    together = model(words, spellings=spell_rows(rows, longest=9), lengths=lengths).hidden
    alone = model(words[1:, :1], spellings=spell_rows(rows[1:], longest=9)).hidden
    torch.testing.assert_close(together[1, :1], alone[0], rtol=1e-9, atol=1e-11)
    assert len(model.depths()) == 4
    assert {p for depth in model.depths() for p in depth} == set(model.parameters())


def test_states_between_one_layer_are_refused() -> None:
    with pytest.raises(ValueError, match=r"model\.layers=2"):
        make(states=3, layers=1)


# From a file to a run


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tagger")
    write_tagged(root / "names.conll")
    text = " ".join(np.random.default_rng(0).choice(["Ann", "Bob", "sleeps", "in", "Rome", "."], 2000))
    (root / "text.txt").write_text(text)
    for name, objective in (("ahead", {}), ("back", {"backwards": True})):
        recipe = make_recipe(
            {
                "data": {"text": str(root / "text.txt")},
                "tokenizer": {"spec": "bpe:280"},
                "model": {"kind": "lstm", "size": "tiny", "width": 8, "hidden": 8},
                "objective": objective,
                "train": {"budget": "3steps", "evaluations": 1},
            }
        )
        start(recipe, root / name)
    return root


def learn(place: Path, output: Path, **changes: Any) -> Any:
    options = {"controls": False, "train": TRAIN, "model": MODEL, **changes}
    return finetune("tagger", place / "names.conll", output=output, **options)


def test_the_vocabulary_folds_words(place: Path) -> None:
    data = open_data(place / "names.conll")
    vocabulary = make_vocabulary(data.labelled)
    vocabulary.write()
    tokenizer = Tokenizer.load(vocabulary.path)
    words = [fold(word) for example in data.labelled.train for word in example.a]
    known = tokenizer.engine.get_vocab()
    assert all((word in known) == (words.count(word) >= 2) for word in words)
    assert fold("Boeing-747") == "boeing-000"
    for odd in ("ΟΔΟΣ", "İzmir", "STRASSE", "ẞ"):  # the engine lowers letter by letter: no ς at the end of a word
        assert folding_engine([fold(odd)]).encode(odd).ids == [folding_engine([fold(odd)]).token_to_id(fold(odd))]
    some = next(word for word in words if word in known)
    assert tokenizer.engine.encode(some.upper(), add_special_tokens=False).ids == [known[some]]


def test_it_learns_from_scratch_and_is_loaded(place: Path, tmp_path: Path) -> None:
    done = learn(place, tmp_path / "ner", train={**TRAIN, "budget": "80steps", "rate": 0.01})
    task = read_json(done.path / "task.json")
    assert task["crf"] is True
    (result,) = done.study.results
    assert (result.name, result.method) == ("tagger", "full")
    lines = [line for line in (done.path / "metrics.jsonl").read_text().splitlines() if '"loss"' in line]
    losses = [float(line.split('"loss": ')[1].split(",")[0]) for line in lines if '"loss": ' in line]
    assert losses[-1] < 0.5 * losses[0]
    lm = load(done.path)
    words = ("Ann", "met", "Zyx-9", "in", "Rome")
    assert len(lm.predictor.predict([Example(words)])[0].value) == 5
    with pytest.raises(ValueError, match="cannot continue plain text"):
        lm.generate("a")


def test_letters_tell_unknown_words_apart(place: Path, tmp_path: Path) -> None:
    predictor = load(learn(place, tmp_path / "ner").path).predictor
    items = predictor.task.items([Example(("Qqq", "x")), Example(("Zzz", "x"))])
    assert items[0].parts["a"][0] == items[1].parts["a"][0], "both are unknown words"
    batch = predictor.task.batch(items)
    scores = predictor.task.scores(predictor.model, predictor.heads, batch)
    assert not torch.allclose(scores[0, 0], scores[1, 0])


def test_other_tasks_and_runs_get_one_line(place: Path, tmp_path: Path) -> None:
    reviews = write_reviews(tmp_path / "reviews.tsv")
    with pytest.raises(ValueError, match="gives each word a tag"):
        finetune("tagger", reviews, output=tmp_path / "x")
    with pytest.raises(ValueError, match="is learnt from the examples; leave it out"):
        learn(place, tmp_path / "x", how="frozen")
    with pytest.raises(ValueError, match="not a language model: it learns a task"):
        make_recipe({"data": {"text": str(place / "text.txt")}, "model": {"kind": "tagger"}})
    assert not (tmp_path / "x").exists()
    assert is_architecture(Path("tagger"))
    assert not is_architecture(place / "ahead")


def test_word_vectors_are_begun_with(place: Path, tmp_path: Path) -> None:
    data = open_data(place / "names.conll")
    words = sorted({fold(word) for word in words_of(data.labelled)})[:6]
    lines = [f"{word} {' '.join(str(n + i) for i in range(5))}" for n, word in enumerate(words)]
    (tmp_path / "glove.txt").write_text("\n".join([*lines, "elsewhere 1 2 3 4 5"]) + "\n")
    recipe, vocabulary = plan_from_scratch(
        Path("tagger"), data.labelled, data.config, task={"vectors": tmp_path / "glove.txt"}
    )
    assert not vocabulary.path.exists(), "planning writes nothing"
    vocabulary.write()
    assert recipe.model["width"] == 5
    model = {name: value for name, value in MODEL.items() if name != "width"}
    done = learn(place, tmp_path / "ner", model=model, settings={"vectors": str(tmp_path / "glove.txt")}, train=TRAIN)
    known = load(done.path).text_tokenizer.engine.get_vocab()
    assert all(word in known for word in words), "a word with a vector needs to be seen only once"
    assert "elsewhere" not in known
    with pytest.raises(ValueError, match=r"model\.width = 7"):
        plan_from_scratch(
            Path("tagger"), data.labelled, data.config, task={"vectors": tmp_path / "glove.txt"}, model={"width": 7}
        )
    (tmp_path / "glove.txt").write_text(lines[0] + "\nshort 1 2\n")
    with pytest.raises(ValueError, match="line 2: 2 numbers after a word"):
        plan_from_scratch(Path("tagger"), data.labelled, data.config, task={"vectors": tmp_path / "glove.txt"})
    (tmp_path / "other.txt").write_text("σπίτι 1 2 3\n")
    with pytest.raises(ValueError, match=r"none of the .* words of the examples has a vector"):
        plan_from_scratch(Path("tagger"), data.labelled, data.config, task={"vectors": tmp_path / "other.txt"})


def test_how_many_words_have_a_vector_is_reported(place: Path, tmp_path: Path) -> None:
    data = open_data(place / "names.conll")
    running = [fold(word) for example in data.labelled.train for word in example.a]
    known = sorted(set(running))[:2]
    (tmp_path / "some.txt").write_text("".join(f"{word} 1 2\n" for word in known))
    fraction = sum(word in known for word in running) / len(running)
    reported = format_coverage(data.labelled, tmp_path / "some.txt")
    assert reported == f"word vectors: for 2 of {len(set(running))} training words ({fraction:.0%} of running words)"


# TagLM


def test_a_word_is_its_last_piece_ahead_and_its_first_backwards(place: Path) -> None:
    for name, last in (("ahead", True), ("back", False)):
        reader = FrozenLM.load(place / name, layers="last")
        words = ["Ann", "unbelievable", "Rome"]
        text = " ".join(words)
        ids = reader.tokenizer.encode(text)
        read = ids if last else ids[::-1]
        hidden = reader.model(torch.tensor([[reader.tokenizer.boundary, *read]])).hidden[0, 1:].detach()
        hidden = hidden if last else hidden.flip(0)
        (found,) = reader.read([words])
        ends = np.cumsum([len(reader.tokenizer.encode(word if n == 0 else f" {word}")) for n, word in enumerate(words)])
        letters = [bool(reader.tokenizer.decode([piece]).strip()) for piece in ids]  # a space may be a piece of its own
        firsts = [next(at for at in range(begin, len(ids)) if letters[at]) for begin in (0, *ends[:-1])]
        places = ends - 1 if last else np.array(firsts)
        assert len(ids) > len(words), "some word has several pieces"
        np.testing.assert_allclose(found[:, 0], hidden[places].numpy(), rtol=1e-5, atol=1e-6)


def test_a_word_that_was_cut_is_its_last_piece_that_was_read(place: Path) -> None:
    for name, expected in (("ahead", {0: 2}), ("back", {0: 1})):
        reader = FrozenLM.load(place / name, layers="last")
        assert reader._positions_of_words([0, 0, 0, 1], {0: 1, 1: 2}) == expected, "the second word has no place: zeros"


def test_batching_does_not_change_states(place: Path) -> None:
    states = LanguageStates([str(place / "ahead"), str(place / "back")])
    sentences = [["Ann"], ["Bob", "sleeps", "in", "Rome", "."], [], ["Rome", "sleeps"]]
    together = states.read(sentences)
    assert states.shape == (1, 16)
    assert [each.shape for each in together] == [(1, 16), (5, 16), (0, 16), (2, 16)]
    for sentence, found in zip(sentences, together, strict=True):
        if sentence:
            np.testing.assert_allclose(states.read([sentence])[0], found, rtol=1e-4, atol=1e-6)
    mixed = LanguageStates([str(place / "ahead")], layers="mix")
    layers, width = mixed.shape
    assert (layers, width) == (2, 8)
    np.testing.assert_allclose(mixed.read([["Ann"]])[0][:, 8:], together[0][:, :8], rtol=1e-4, atol=1e-6)


def test_flops_include_frozen_language_models(place: Path, tmp_path: Path) -> None:
    """Their one pass over the examples counts, whether the states were computed or found in the cache."""
    settings = {"states": [str(place / "ahead")], "state_layers": "last"}
    data = open_data(place / "names.conll")
    more = {**MODEL, "layers": 2}
    done = [learn(place, tmp_path / name, settings=settings, model=more) for name in ("a", "b")]
    first, second = (each.study.results[0].flops for each in done)
    assert first == second
    language = LanguageStates([str(place / "ahead")])
    parts = [[example.a for example in part] for part in (data.labelled.train, data.labelled.valid) if part]
    lines = [json.loads(line) for line in (done[0].path / "metrics.jsonl").read_text().splitlines()]
    (one, two), states = lines[:2], sum(language.flops(part) for part in parts)
    per_step = (two["flops"] - one["flops"]) / (two["step"] - one["step"])
    assert one["flops"] - per_step * one["step"] == pytest.approx(states)


def test_taglm_keeps_its_language_models_and_needs_nothing_else(place: Path, tmp_path: Path) -> None:
    import shutil

    for name in ("ahead", "back"):
        shutil.copytree(place / name, tmp_path / name)
    done = learn(place, tmp_path / "ner", settings={"states": [str(tmp_path / name) for name in ("ahead", "back")]})
    assert read_json(done.path / "config.json")["model"]["states"] == 16
    assert sorted(each.name for each in (done.path / "states").iterdir()) == ["0", "1"]
    example = Example(("Ann", "sleeps", "in", "Rome"))
    before = load(done.path).predictor.predict([example])
    for name in ("ahead", "back"):
        shutil.rmtree(tmp_path / name)
    shutil.move(done.path, tmp_path / "moved")
    assert load(tmp_path / "moved").predictor.predict([example]) == before


def test_cached_states_are_those_that_are_computed(place: Path, tmp_path: Path) -> None:
    done = learn(place, tmp_path / "ner", settings={"states": [str(place / "ahead")]})
    task = load(done.path).predictor.task
    data = open_data(place / "names.conll")
    items = task.items(data.labelled.train[:7])
    cached = task.precompute(items, run=done.path)
    assert all(item.states is not None for item in cached)
    a, b = (task.batch(each).inputs["states"] for each in (items, list(cached)))
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def plan_taglm(place: Path, task: Mapping[str, Any] | None = None, *, train: Mapping[str, Any]) -> Recipe:
    """A tagger with the states of a language model."""
    data = open_data(place / "names.conll")
    settings = {"states": [str(place / "ahead")], **(task or {})}
    recipe, vocabulary = plan_from_scratch(
        Path("tagger"), data.labelled, data.config, task=settings, train=train, model=MODEL
    )
    vocabulary.write()
    return recipe


def test_an_interrupted_taglm_resumes_to_the_bit(place: Path, tmp_path: Path) -> None:
    recipe = plan_taglm(place, train=TRAIN)
    start(recipe, tmp_path / "whole")
    polls = iter(range(10_000))
    start(recipe, tmp_path / "cut", interrupted=lambda: next(polls) >= 12)
    assert read_json(tmp_path / "cut" / "last" / "progress.json")["step"] < 30
    resume(tmp_path / "cut")
    for name in ("model.safetensors", "head.safetensors", "last/training.safetensors"):
        whole, cut = read_tensors(tmp_path / "whole" / name), read_tensors(tmp_path / "cut" / name)
        assert all(torch.equal(whole[each], cut[each]) for each in whole)


def test_a_mix_that_was_saved_under_its_old_names_resumes_to_the_bit(place: Path, tmp_path: Path) -> None:
    """Weights and what the optimizer remembers of them; the mean of files with old and new names, too."""
    recipe = plan_taglm(place, {"state_layers": "mix"}, train={"budget": "8steps", "evaluations": 2, "keep": 2})
    start(recipe, tmp_path / "whole")
    polls = iter(range(10_000))
    start(recipe, tmp_path / "cut", interrupted=lambda: next(polls) >= 3)
    cut, whole, mean = tmp_path / "cut", tmp_path / "whole", tmp_path / "mean"
    for name in ("last/model.safetensors", "last/training.safetensors"):
        _write_old_names(cut / name)
    resume(cut)
    for name in ("last/model.safetensors", "last/training.safetensors", "model.safetensors"):
        expected, found = read_tensors(whole / name), read_tensors(cut / name)
        assert expected.keys() == found.keys()
        assert not [each for each in expected if not torch.equal(expected[each], found[each])], name
    _write_old_names(next((whole / "checkpoints").glob("step-*.safetensors")))
    average(whole, last=2, output=mean)
    assert "mix.scores" in read_tensors(mean / "model.safetensors")


def _write_old_names(path: Path) -> None:
    tensors = read_tensors(path)
    old = {name.replace("mix.scores", "mix").replace("mix.gamma", "gamma"): each for name, each in tensors.items()}
    assert old.keys() != tensors.keys()
    write_tensors(path, old)
    if (manifest := path.with_name("manifest.json")).is_file():
        write_json(manifest, {**read_json(manifest), path.name: [digest(path)]})


def test_elmo_enters_at_the_bottom_with_a_mix_of_its_layers(place: Path, tmp_path: Path) -> None:
    recipe = make_recipe(
        {
            "data": {"text": str(place / "text.txt")},
            "model": {"kind": "elmo", "size": "tiny"},
            "train": {"budget": "1steps", "evaluations": 1, "batch": 2, "window": 8},
        }
    )
    start(recipe, tmp_path / "elmo")
    done = learn(
        place,
        tmp_path / "ner",
        settings={"states": [str(tmp_path / "elmo")], "state_layers": "mix"},
        model={**MODEL, "state_position": "bottom"},
    )
    (result,) = done.study.results
    assert result.mix is not None
    assert len(result.mix) == read_json(done.path / "config.json")["model"]["state_layers"] == 3
    assert sum(result.mix) == pytest.approx(1)
    assert result.mix != pytest.approx([1 / 3] * 3, abs=1e-7), "it has learnt"
    assert result.gamma != 1
    drawn = describe_mix("ner", *read_mix(done.path))
    assert drawn.task == "tagging"
    assert [*drawn.weights, drawn.gamma] == pytest.approx([*result.mix, result.gamma])
    tensors = read_tensors(done.path / "model.safetensors")
    old = {"mix.scores": "mix", "mix.gamma": "gamma"}
    write_tensors(done.path / "model.safetensors", {old.get(name, name): each for name, each in tensors.items()})
    (done.path / "manifest.json").unlink()
    assert describe_mix("ner", *read_mix(done.path)) == drawn, "as it was named before"
    again, _ = load_model(done.path)
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in again.state_dict().items())


def test_a_run_without_heads_yet_is_called_by_its_name(tmp_path: Path) -> None:
    write_json(tmp_path / "task.json", {"kind": "tagging"})
    with pytest.raises(ValueError, match=r"^ner has no head\.safetensors: .* or has not been evaluated yet$"):
        read_mix(tmp_path, name="ner")


def test_a_folder_that_is_no_run_gets_one_line(place: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a run directory, and its states are needed"):
        learn(place, tmp_path / "ner", settings={"states": [str(tmp_path / "nothing")]})
    assert not (tmp_path / "ner").exists()


def test_states_that_are_not_there_or_of_no_language_model_are_refused(place: Path, tmp_path: Path) -> None:
    for options in ({"settings": {"state_layers": "mix"}}, {"model": {**MODEL, "state_position": "bottom"}}):
        with pytest.raises(ValueError, match="is for states of a language model: give --states RUN, too"):
            learn(place, tmp_path / "ner", **options)
    for kind in ("tagger", "word2vec"):
        (tmp_path / kind).mkdir()
        write_json(tmp_path / kind / "config.json", {"kind": kind})
        with pytest.raises(ValueError, match=f"it is a {kind}, no language model"):
            learn(place, tmp_path / "ner", settings={"states": [str(tmp_path / kind)]})
    assert not (tmp_path / "ner").exists()


@pytest.mark.parametrize(
    ("options", "named"),
    [({"states": ["x"]}, "--states"), ({"vectors": "y"}, "--vectors"), ({"model": {"width": 8}}, "--set model.width")],
)
def test_options_of_the_tagger_are_refused_of_runs(
    place: Path, tmp_path: Path, options: dict[str, Any], named: str
) -> None:
    with pytest.raises(ValueError, match=f"^{named} is for the tagger, and .* is a run"):
        finetune(place / "ahead", place / "names.conll", output=tmp_path / "x", **options)
    assert not (tmp_path / "x").exists()


def test_it_reads_the_real_sentences(shared_data: Callable[[str], Path]) -> None:
    data = open_data(shared_data("conll2003") / "eng.testa")
    recipe, vocabulary = plan_from_scratch(Path("tagger"), data.labelled, data.config)
    vocabulary.write()
    assert recipe.objective["labels"][0] == "O"
    assert len(recipe.objective["labels"]) == 9
    known: dict[str, Tensor] = Tokenizer.load(str(recipe.tokenizer.spec)).engine.get_vocab()
    assert 2000 < len(known) < 6000
