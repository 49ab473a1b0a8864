"""The steps of Transformers that read one text: decoders (GPT, LLaMA, Transformer-XL …) and encoders (BERT …)."""

from __future__ import annotations

import math
from typing import Any

from torch import nn

from lmlab.analysis.forward_pass.attention import BlockCall
from lmlab.analysis.forward_pass.block import trace_block
from lmlab.analysis.forward_pass.numbers import Factor, Index, Trace, linear, normed, product
from lmlab.analysis.forward_pass.steps import Facts, Grid, Look, Step, Watched, strip
from lmlab.models.bert import Encoder
from lmlab.models.music_transformer import MusicTransformer
from lmlab.models.transformer_xl import TransformerXL


def tokens_step(trace: Trace, ids: list[int]) -> Step:
    """The first step: the text as tokens."""

    def grids(look: Look) -> list[Facts]:
        first = max(0, look.position - 31)
        shown = range(first, min(len(ids), first + 32))
        return [Facts("tokens", ("position", "token", "number"), tuple((t, trace.tokens[t], ids[t]) for t in shown))]

    says = "The text is cut into tokens of the vocabulary; the model sees only their numbers."
    return Step("tokens", "Tokens", "Tokens", says, "w_1 , w_2 , … , w_t", grids)


def add_embeddings(trace: Trace, watched: Watched, path: str = "embedding") -> str:
    """The rows of the table of embeddings, one for each token."""
    return trace.add("embedding", watched.out(path), "embedding", "E", "token unit")


def trace_decoder(trace: Trace, watched: Watched, network: Any) -> tuple[list[Step], str]:
    """The steps from the embeddings to the vectors that predict the next token, and the name of their array."""
    add_embeddings(trace, watched)
    scaled = isinstance(network, (MusicTransformer, TransformerXL))
    parts = ["embedding"]
    if getattr(network, "positions", None) is not None:
        parts.append(trace.add("positions", watched.out("positions"), "position", "P", "token unit"))
    factor = math.sqrt(network.config.width) if scaled else 1.0
    equation = "x = sqrt{D} E_w" if scaled else " + ".join(["x = E_w", *["P_t"] * (len(parts) - 1)])

    def factors(index: Index) -> list[tuple[Factor, ...]]:
        scale = (Factor(f"√{network.config.width}", factor),) if scaled else ()
        return [(trace.factor(part, *index), *scale) for part in parts]

    trace.add(
        "x", watched.into("blocks.0"), "input of the first layer", "x", "token unit", product(trace, factors, equation)
    )
    where = "" if len(parts) > 1 else _positions_elsewhere(network)

    def grids(look: Look) -> list[Grid]:
        labels = {"embedding": "embedding", "positions": "position", "x": "input of the first layer"}
        return [strip(trace, name, labels[name], look.position) for name in (*parts, "x")]

    says = "Each token number picks a row of a learnt table, its embedding"
    says += ", and each position a row of another; both are added." if len(parts) > 1 else f".{where}"
    steps = [Step("embeddings", "Embeddings", "Embeddings", says, equation, grids)]
    x = "x"
    for number in range(len(network.blocks)):
        call = BlockCall(f"blocks.{number}", 0, str(number), f"Layer {number}")
        steps += trace_block(trace, watched, network, call, x, causal=True)
        x = f"{number}.out"
    if hasattr(network, "norm") and not isinstance(network.norm, nn.Identity):
        steps.append(_last_norm(trace, watched, network, x))
        x = "hidden"
    return steps, x


def _positions_elsewhere(network: Any) -> str:
    if hasattr(network, "position_bias") or isinstance(network, MusicTransformer):
        return " Attention knows how far apart two tokens are, so no positions are added."
    return (
        " Positions come in inside attention."
        if getattr(network, "key_value_heads", 0)
        else " Nothing tells positions."
    )


def _last_norm(trace: Trace, watched: Watched, network: Any, x: str) -> Step:
    origin = normed(trace, x, network.norm)
    trace.add("hidden", watched.out("norm"), "hidden vector", "h", "token unit", origin)
    rms = not isinstance(network.norm, nn.LayerNorm)

    def grids(look: Look) -> list[Grid]:
        return [strip(trace, x, "before", look.position), strip(trace, "hidden", "hidden vector", look.position)]

    equation = "h = frac{x}{r} γ" if rms else "h = frac{x - μ}{σ} γ + β"
    return Step("hidden", "Output", "Last norm", "The vector is brought to a common scale once more.", equation, grids)


def trace_encoder(trace: Trace, watched: Watched, network: Encoder, head: Any) -> tuple[list[Step], str]:
    """The same for an encoder with its masked-token head: the array is that of the head, for the masked position."""
    add_embeddings(trace, watched)
    trace.add("positions", watched.out("positions"), "position", "P", "token unit")
    rows = len(trace.tokens)
    kinds = watched.out("segments") if watched.calls("segments") else network.segments.weight[0].expand(rows, -1)
    trace.add("segments", kinds, "segment", "S", "token unit")
    parts = ("embedding", "positions", "segments")
    origin = product(trace, lambda index: [(trace.factor(part, *index),) for part in parts], "r = E_w + P_t + S")
    trace.add("sum", watched.into("embedding_norm"), "sum of the three", "r", "token unit", origin)
    origin = normed(trace, "sum", network.embedding_norm)
    trace.add("normed", watched.out("embedding_norm"), "after the norm", "x", "token unit", origin)
    x, projection = "normed", getattr(network, "projection", None)
    if projection is not None and not isinstance(projection, nn.Identity):
        wider = linear(trace, "normed", projection, "x = W e + b")
        x = trace.add("x", watched.out("projection"), "input of the first layer", "x", "token unit", wider)

    def grids(look: Look) -> list[Grid]:
        names = dict.fromkeys((*parts, "sum", "normed", x))
        return [strip(trace, name, trace.arrays[name].label, look.position) for name in names]

    says = "Each token, its position and its sentence have a learnt vector; the three are added and normed."
    steps = [Step("embeddings", "Embeddings", "Embeddings", says, "x = LN( E_w + P_t + S )", grids)]
    for layer in range(network.config.layers):
        block = layer * network.distinct_blocks // network.config.layers
        number = layer - next(
            n for n in range(layer + 1) if n * network.distinct_blocks // network.config.layers == block
        )
        call = BlockCall(f"blocks.{block}", number, str(layer), f"Layer {layer}")
        causal = network.config.direction == "left-to-right"
        steps += trace_block(trace, watched, network, call, x, causal=causal)
        x = f"{layer}.out"
    steps.append(_head_step(trace, watched, network, head, x))
    return steps, "hidden"


def _head_step(trace: Trace, watched: Watched, network: Encoder, head: Any, x: str) -> Step:
    """The masked-token head: one more layer, with a norm, at the masked position alone."""
    at = next(name for name, module in network.named_modules() if module is head)
    position = watched.position
    one = linear(trace, "masked", head.transform, "e = W h + b")
    trace.add("masked", trace[x][[position]], "vector of the mask", "h", "masked unit", _copied(trace, x, position))
    trace.add("head.expanded", watched.out(f"{at}.transform"), "before the activation", "e", "masked unit", one)

    def factors(index: Index) -> list[tuple[Factor, ...]]:
        before = trace.factor("head.expanded", *index)
        value = float(trace["head.units"][index])
        return [(Factor(f"GELU({before.label})", value, before.at),)]

    unit = product(trace, factors, "u = GELU(e)")
    trace.add("head.units", watched.into(f"{at}.norm"), "unit", "u", "masked unit", unit)
    origin = normed(trace, "head.units", head.norm)
    trace.add("hidden", watched.out(f"{at}.norm"), "hidden vector", "h", "masked unit", origin)

    def grids(look: Look) -> list[Grid]:
        return [Grid(name, label, _one_row()) for name, label in
                (("masked", "vector of the mask"), ("head.units", "units"), ("hidden", "hidden vector"))]  # fmt: skip

    says = "At the mask, one more layer makes a vector that is compared with the embeddings of all tokens."
    return Step("head", "Output", "Head", says, "h = LN( GELU( W x + b ) )", grids)


def _one_row() -> Any:
    from lmlab.analysis.forward_pass.steps import Row

    return (Row("[MASK]", (0,)),)


def _copied(trace: Trace, x: str, position: int) -> Any:
    return product(trace, lambda index: [(trace.factor(x, position, index[1]),)], "h = x_t")
