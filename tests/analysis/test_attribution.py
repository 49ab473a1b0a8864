"""Gradient × input against finite differences, and neighbours against loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from lmlab.analysis.attribution import attribute
from lmlab.analysis.neighbours import find_neighbours
from lmlab.language_model import LanguageModel
from lmlab.models import load_class
from lmlab.tasks.predicting import Predictor
from lmlab.tokenizers import train
from standins import TEXT, Table, random_model
from toy_tasks import toy_heads, toy_model, toy_task, toy_tokenizer

pytestmark = pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning")


@pytest.mark.parametrize("kind", ["gpt2", "lstm", "bert", "gpt"])
def test_it_is_the_slope_along_each_vector(kind: str) -> None:
    """d/de log P(target) where the vector of one token is multiplied by 1 + e, at e = 0, by differences."""
    torch.manual_seed(0)
    tokenizer = train("words", [TEXT]).with_specials(["cls", "sep", "mask", "pad"])
    shape = {"width": 12, "layers": 1} | ({"hidden": 12} if kind == "lstm" else {"heads": 2})
    lm = random_model(kind, tokenizer, **shape)
    lm.model.double()
    masked = kind == "bert"
    text = "the cat [MASK] on the mat" if masked else "the cat sat on"
    found = attribute(lm, text, prediction="sat" if masked else "the")
    assert found.target == ("sat" if masked else "the")
    row = lm.frame.row(a=tokenizer.encode(text if not masked else "the cat sat on the mat"))["tokens"]
    place = 3 if masked else len(row) - 1
    if masked:
        row[place] = tokenizer.special("mask")
    (target,) = tokenizer.encode(found.target)

    @torch.no_grad()
    def nats(token: int, change: float) -> float:
        def scale(module: object, inputs: object, output: torch.Tensor) -> torch.Tensor:
            output = output.clone()
            output.view(-1, output.shape[-1])[token] *= 1 + change
            return output

        handle = lm.model.embedding.register_forward_hook(scale)
        hidden = lm.model(torch.tensor([row])).hidden[:, place]
        handle.remove()
        logits = lm.model.output.logits(hidden)
        return float(logits.log_softmax(-1)[0, target])

    expected = [(nats(token, 1e-5) - nats(token, -1e-5)) / 2e-5 for token in range(len(row))]
    assert found.values == pytest.approx(expected, abs=1e-6, rel=1e-4)
    assert found.probability == pytest.approx(np.exp(nats(0, 0.0)))
    assert len(found.tokens) == len(row)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [("bert", {}), ("gpt2", {}), ("lstm", {"pool": "concat", "segment": 3}), ("bert", {"method": "mix"}),
     ("gpt", {"both_orders": True, "pair": True})],
)  # fmt: skip
def test_of_a_classifier_it_is_the_slope_of_the_class(kind: str, settings: dict[str, Any]) -> None:
    tokenizer = toy_tokenizer()
    model = toy_model(kind, tokenizer)
    task = toy_task("classification", load_class(kind), tokenizer=tokenizer, **settings)
    heads = toy_heads(task, model)
    predictor = Predictor(task=task, model=model.double(), heads=heads.double())
    lm = LanguageModel(model=model, tokenizer=tokenizer, own_predictor=predictor)
    texts = ["the cat was good and the dog sat", *["a bad film"] * bool(settings.get("pair"))]
    found = attribute(lm, "\t".join(texts))
    said = predictor.classify(*texts)
    assert (found.target, found.probability) == (said.value, pytest.approx(said.probability, rel=1e-5))

    @torch.no_grad()
    def nats(token: int, change: float) -> float:
        """Where the vector of one token, counted over all rows and calls, is multiplied by 1 + change."""
        places: list[torch.Tensor] = []

        def scale(module: object, inputs: object, output: torch.Tensor) -> torch.Tensor:
            rows, length = output.shape[:2]
            before = sum(each.shape[1] for each in places)
            places.append(output)
            row, column = divmod(token, len(found.tokens) // rows)
            output = output.clone()
            if 0 <= column - before < length:
                output[row, column - before] *= 1 + change
            return output

        handle = model.embedding.register_forward_hook(scale)
        scores, _ = predictor.score_classes(texts)
        handle.remove()
        return float(scores.log_softmax(-1)[task.config.labels.index(found.target)])

    expected = [(nats(token, 1e-5) - nats(token, -1e-5)) / 2e-5 for token in range(len(found.tokens))]
    reached = [place for place, value in enumerate(found.values) if value]
    assert len(reached) > 2
    if "segment" not in settings:
        assert found.values == pytest.approx(expected, abs=1e-6, rel=1e-4)
    other = next(label for label in task.config.labels if label != found.target)
    assert attribute(lm, "\t".join(texts), prediction=other).probability == pytest.approx(1 - found.probability)
    with pytest.raises(ValueError, match="'film': no class of this run; allowed: neg, pos"):
        attribute(lm, "\t".join(texts), prediction="film")


def test_a_tagger_is_refused_in_one_line() -> None:
    tokenizer = toy_tokenizer()
    model = toy_model("bert", tokenizer)
    task = toy_task("tagging", load_class("bert"), tokenizer=tokenizer)
    predictor = Predictor(task=task, model=model, heads=toy_heads(task, model))
    lm = LanguageModel(model=model, tokenizer=tokenizer, own_predictor=predictor)
    with pytest.raises(ValueError, match=r"this run does tagging.*use a classifier, or the run"):
        attribute(lm, "Ada wrote it", prediction="O")


def test_a_target_of_several_tokens_is_refused() -> None:
    lm = random_model("gpt2", train("words", [TEXT]), width=8, heads=2, layers=1)
    with pytest.raises(ValueError, match=r"'cat sat': give one token; these are 2: 'cat', 'sat'"):
        attribute(lm, "the", prediction="cat sat")


def test_the_most_probable_token_is_taken_where_none_is_named() -> None:
    torch.manual_seed(0)
    lm = random_model("gpt2", train("words", [TEXT]), width=8, heads=2, layers=1)
    ((best, probability),) = lm.next("the cat", top=1)
    found = attribute(lm, "the cat")
    assert (found.target, found.probability) == (best, pytest.approx(probability, rel=1e-4))
    assert "gradient" in found._repr_html_()


def test_what_has_no_gradients_is_reported() -> None:
    tokenizer = train("words", [TEXT])
    with pytest.raises(ValueError, match="has no gradients"):
        attribute(LanguageModel(model=Table(tokenizer.vocabulary), tokenizer=tokenizer), "the cat")
    lm = random_model(
        "bert", train("words", [TEXT]).with_specials(["cls", "sep", "mask", "pad"]), width=8, heads=2, layers=1
    )
    with pytest.raises(ValueError, match="2 masks"):
        attribute(lm, "the [MASK] sat [MASK]")


def test_what_is_no_network_is_called_by_its_name_in_the_lineage() -> None:
    tokenizer = train("words", [TEXT])
    ngram: Any = load_class("ngram")
    counts = ngram(ngram.Config(vocabulary=tokenizer.vocabulary))
    lm = LanguageModel(model=counts, tokenizer=tokenizer)
    with pytest.raises(ValueError, match=r"^ngram has no gradients: use a neural model$"):
        attribute(lm, "the cat")
    with pytest.raises(ValueError, match=r"^ngram has no table of token vectors"):
        find_neighbours(lm, "cat")


def test_neighbours_by_a_loop() -> None:
    torch.manual_seed(0)
    tokenizer = train("words", [TEXT])
    lm = random_model("lstm", tokenizer, width=6, hidden=6, layers=1)
    table = lm.model.embedding.weight.detach().double().numpy()
    unit = table / np.linalg.norm(table, axis=1, keepdims=True)
    (cat,), (dog,), (mat,) = (tokenizer.encode(word) for word in ("cat", "dog", "mat"))
    others = [i for i in range(len(unit)) if i not in (cat, tokenizer.unknown, tokenizer.boundary)]
    expected = sorted(((unit[i] @ unit[cat], i) for i in others), reverse=True)[:4]
    found = find_neighbours(lm, "cat", top=4)
    assert [each.word for each in found.neighbours] == [tokenizer.show(i) for _, i in expected]
    assert [each.cosine for each in found.neighbours] == pytest.approx([cosine for cosine, _ in expected], rel=1e-4)
    wanted = unit[dog] - unit[cat] + unit[mat]
    best = max((unit[i] @ wanted, i) for i in others if i not in (dog, mat))[1]
    assert find_neighbours(lm, ["cat", "dog", "mat"]).neighbours[0].word == tokenizer.show(best)
    everything = find_neighbours(lm, "cat", top=1000).neighbours
    assert not {"<unk>", "<eos>"} & {each.word for each in everything}, "they are no words"
    assert len(everything) == len(others)
    with pytest.raises(ValueError, match=r"'dogg' is not in the vocabulary of this run; did you mean 'dog'\?"):
        find_neighbours(lm, "dogg")
    with pytest.raises(ValueError, match="2 words: give one, or three"):
        find_neighbours(lm, ["cat", "dog"])
