"""What every system shows of itself: its layers, its parameters by depth, and what can be done with it."""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import Any

import pytest
import torch
from lineage_models import NETWORKS, PREDICT_NEXT, SMALL, VOCABULARY, make, tokens
from torch import Tensor

from lmlab.layers.watching import watching_layers
from lmlab.models import LINEAGE, load_class
from lmlab.models.abilities import ABILITIES, ability
from lmlab.models.model import EncoderDecoder, EncoderModel
from lmlab.training.schedule import by_layer

LENGTHS = torch.tensor([9, 4, 1])
UNEVEN = {"width": 8, "hidden": 16, "tied": True}


def inputs_of(model: Any) -> dict[str, Tensor]:
    return {model.main_input: tokens(3, 9), "lengths": LENGTHS}


@pytest.fixture(params=NETWORKS)
def model(request: pytest.FixtureRequest) -> Any:
    return make(request.param)


def test_layers_are_rows_of_vectors(model: Any) -> None:
    """The embeddings and what leaves each layer; the padding of other rows changes no row."""
    layers = model.layers(**inputs_of(model))
    shallow = {"NPLM": 2, "BagOfWords": 2, "Word2Vec": 1}
    assert len(layers) == shallow.get(type(model).__name__, SMALL["layers"] + 1)
    assert all(layer.shape[:2] == (3, 9) for layer in layers)
    name = model.main_input
    for row, length in enumerate(LENGTHS.tolist()):
        alone = model.layers(**{name: inputs_of(model)[name][row : row + 1, :length]})
        for layer, other in zip(layers, alone, strict=True):
            torch.testing.assert_close(layer[row, :length], other[0], atol=1e-5, rtol=1e-5)


def test_the_last_layer_is_what_is_predicted_from(model: Any) -> None:
    inputs = inputs_of(model)
    last = model.layers(**inputs)[-1]
    if isinstance(model, EncoderDecoder):
        quiet = model(tokens(3, 5, seed=2), **inputs).hidden
        with watching_layers() as collected:
            assert torch.equal(model(tokens(3, 5, seed=2), **inputs).hidden, quiet)
        assert torch.equal(collected[-1], last)
    else:
        assert torch.equal(last, model(**inputs).hidden)


def test_watching_layers_turns_the_shortcut_off(model: Any) -> None:
    if not isinstance(model, EncoderModel):
        pytest.skip("only encoders are asked at places")
    at = torch.tensor([[0, 8], [3, 0], [0, 0]])
    with watching_layers() as seen:
        hidden = model(**inputs_of(model), at=at).hidden
    assert seen[-1].shape[:2] == (3, 9)
    assert torch.equal(hidden, seen[-1][torch.arange(3)[:, None], at])
    torch.testing.assert_close(hidden, model(**inputs_of(model), at=at).hidden, atol=1e-5, rtol=1e-5)


def test_gradients_flow_from_the_layers_to_the_embeddings(model: Any) -> None:
    for layer in range(len(model.layers(**inputs_of(model)))):
        model.zero_grad()
        model.layers(**inputs_of(model))[layer].square().sum().backward()
        assert any(parameter.grad is not None and parameter.grad.any() for parameter in model.depths()[0])


def test_depths_have_every_parameter_once(model: Any) -> None:
    depths = model.depths()
    flat = [parameter for depth in depths for parameter in depth]
    assert len(flat) == len(set(flat))
    assert set(flat) == set(model.parameters())
    part = getattr(model, "main", model)
    assert any(parameter is next(part.embedding.parameters()) for parameter in depths[0]), (
        "a tied one is at its lowest place"
    )
    assert all(depths[:-1]), "only a head may have nothing of its own"
    decoder = SMALL["layers"] if isinstance(model, EncoderDecoder) else 0
    layers = {"NPLM": 1, "BagOfWords": 1, "Albert": 1, "Word2Vec": 0}.get(type(model).__name__, SMALL["layers"])
    assert len(depths) == 1 + layers + decoder + 1


def test_in_a_task_every_layer_that_a_strategy_knows_learns(model: Any) -> None:
    """What only predicts tokens is no layer of its own: one that never learns would count in rates and unfreezing."""
    model.zero_grad()
    head = torch.nn.Linear(model.layers(**inputs_of(model))[-1].shape[-1], 2)
    inputs = {**inputs_of(model), **({"tokens": tokens(3, 9)} if model.main_input == "tokens" else {})}
    head(model.vectors(**inputs)).square().sum().backward()
    layers = by_layer(model, head.parameters())
    assert all(any(each.grad is not None and bool(each.grad.any()) for each in layer) for layer in layers)
    assert head.weight in set(layers[-1])
    assert {each for layer in layers for each in layer} == {*model.parameters(), *head.parameters()}


def test_without_a_task_a_tied_embedding_is_on_top() -> None:
    """There it is the output layer, too, and has to follow the text (as the authors of ULMFiT had it)."""
    model = make("awd-lstm")
    embeddings, *blocks, top = model.depths()
    assert by_layer(model, []) == [*blocks, [*top, *embeddings]]
    model = make("lstm", tied=False)
    assert by_layer(model, []) == model.depths()


@pytest.mark.parametrize(("name", "changes"), [("reformer", {"attends": "chunk", "chunk": 4}), ("lstm", UNEVEN)])
def test_the_contract_holds_for_other_settings(name: str, changes: dict[str, Any]) -> None:
    model = make(name, **changes)
    test_layers_are_rows_of_vectors(model)
    test_the_last_layer_is_what_is_predicted_from(model)


def test_a_layer_depends_on_the_depths_below_it(model: Any) -> None:
    """What the first of two blocks gives is a function of the embeddings and that block alone."""
    if len(model.layers(**inputs_of(model))) < 3:
        pytest.skip("it has one layer")
    model.layers(**inputs_of(model))[1].square().sum().backward()
    reached = [any(p.grad is not None and bool(p.grad.any()) for p in depth) for depth in model.depths()]
    assert reached[:2] == [True, True]
    assert not any(reached[2:])


@pytest.mark.parametrize("name", LINEAGE)
def test_the_lineage_says_what_each_can_do(name: str) -> None:
    model = make(name)
    offered = {each.name for each in ABILITIES.values() if ability(model, each.kind) is not None}
    assert offered == set(LINEAGE[name].does)
    assert (name in PREDICT_NEXT) == ("next token" in offered)


@pytest.mark.parametrize("name", LINEAGE)
def test_no_method_exists_only_to_refuse(name: str) -> None:
    """Who asks for an ability looks for names, so a name must mean that it can be done."""
    cls = load_class(name)
    for attribute in dir(cls):
        found = inspect.getattr_static(cls, attribute)
        function = found.fget if isinstance(found, property) else found
        if not inspect.isfunction(function) or not function.__module__.startswith("lmlab."):
            continue
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
        assert isinstance(tree, ast.FunctionDef)
        body = [each for each in tree.body if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))]
        assert not (body and isinstance(body[0], ast.Raise)), f"{cls.__name__}.{attribute} only raises"


@pytest.mark.parametrize("name", NETWORKS)
def test_lengths_are_accepted_by_every_forward(name: str) -> None:
    model = make(name)
    extra = {"source": tokens(3, 9)} if isinstance(model, EncoderDecoder) else {}
    hidden = model(tokens(3, 9), **extra, lengths=LENGTHS).hidden
    assert hidden.shape[:2] == (3, 9)
    assert model.vocabulary == VOCABULARY


@pytest.mark.parametrize("name", ["gpt2", "bert", "electra", "bart"])
def test_a_compiled_forward_is_one_graph(name: str) -> None:
    """Lengths, and whether somebody watches, must not be looked at inside it."""
    model = make(name)
    extra = {"source": tokens(3, 9), "target_lengths": LENGTHS} if isinstance(model, EncoderDecoder) else {}
    found = torch.compile(model, fullgraph=True, backend="eager")(tokens(3, 9), **extra, lengths=LENGTHS).hidden
    real = torch.arange(9) < LENGTHS[:, None]
    expected = model(tokens(3, 9), **extra, lengths=LENGTHS).hidden
    torch.testing.assert_close(found[real], expected[real], atol=1e-5, rtol=1e-5)
