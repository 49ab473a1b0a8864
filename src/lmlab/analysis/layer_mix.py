"""The layers of a model as vectors, whatever its family, and the mixes of them that serve as features.

Layer 0 is what enters the first block (the embeddings, with positions), layers 1 to L are what leaves each block, and
layer L is what the model predicts from: in GPT-2 it is after the last norm. BERT's authors compare such mixes as
features (Devlin et al. 2019, table 7); ELMo learns one (Peters et al. 2018, equation 1).
Shapes: B texts, T tokens, D width, L layers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor, nn

from lmlab.layers.recurrent import Layer, Stack
from lmlab.layers.recurrent_encoder import RecurrentEncoder
from lmlab.models.model import EncoderDecoder, EncoderModel, Model

SEGMENT = 256
"""Tokens that a model without a window reads at once, carrying its state: as in scoring."""
LAYERS = (
    "last, first, second-to-last, mix, a number such as 3 or -2, or sum:, mean: or concat: with all, -4:, 1:3 or 0,2"
)


class Selection(NamedTuple):
    """Which layers are taken, and how they become one vector."""

    how: Literal["sum", "mean", "concat"]
    which: slice | tuple[int, ...]

    @property
    def only_last(self) -> bool:
        return self.which == (-1,)

    def of(self, layers: Sequence[Tensor]) -> Tensor:
        """The chosen mix of layers [..., D] -> [..., D], or [..., n·D] where they stand side by side."""
        last = len(layers) - 1
        if isinstance(self.which, slice):
            chosen = list(layers[self.which])
            if not chosen:
                raise ValueError(f"no layer is in that range: this model has the layers 0 (embeddings) to {last}")
        else:
            wrong = [number for number in self.which if not -last - 1 <= number <= last]
            if wrong:
                raise ValueError(f"there is no layer {wrong[0]}: this model has the layers 0 (embeddings) to {last}")
            chosen = [layers[number] for number in self.which]
        if self.how == "concat" or len(chosen) == 1:
            return torch.cat(chosen, dim=-1)
        widths = [layer.shape[-1] for layer in chosen]
        if len(set(widths)) > 1:
            raise ValueError(
                f"layers of widths {', '.join(map(str, widths))} cannot be added; take layers of one width (sum:all "
                f"leaves out the embeddings), or put them side by side with concat"
            )
        total = torch.stack(chosen).sum(0)
        return total / len(chosen) if self.how == "mean" else total


def select_layers(given: str | int) -> Selection:
    """Read a choice of layers.

    `all` is every block's output, the twelve layers of BERT base; `mix` is ELMo's mix before it has learnt anything:
    the mean of the embeddings and all layers. Other ranges are Python's, over the layers from 0 (the embeddings) on.
    """
    named = {"last": -1, "first": 0, "second-to-last": -2}
    text = str(given).strip()
    if text in named:
        return Selection("sum", (named[text],))
    if text == "mix":
        return Selection("mean", slice(None))
    if re.fullmatch(r"-?\d+", text):
        return Selection("sum", (int(text),))
    how, _, which = text.partition(":")
    if how in ("sum", "mean", "concat"):
        mode = cast(Literal["sum", "mean", "concat"], how)
        if which == "all":
            return Selection(mode, slice(1, None))
        if re.fullmatch(r"-?\d+(,-?\d+)*", which):
            return Selection(mode, tuple(int(number) for number in which.split(",")))
        if found := re.fullmatch(r"(-?\d+)?:(-?\d+)?", which):
            return Selection(mode, slice(*(None if end is None else int(end) for end in found.groups())))
    raise ValueError(f"layers {given!r} is not understood; allowed: {LAYERS}")


# The layers of each family


def read_layers(model: Model, tokens: Tensor, lengths: Tensor, selection: Selection) -> Tensor:
    """tokens [B, T], row i of lengths[i] tokens -> the selected mix of layers [B, T, D]; padding holds anything.

    Of ELECTRA the part that is used, of an encoder-decoder the encoder. A model without a window reads a long text in
    segments, carrying its state.
    """
    if isinstance(model, EncoderModel):
        if selection.only_last:
            return cast(Tensor, model(tokens, lengths=lengths).hidden)
        encoder: Any = getattr(model, "main", model)
        return selection.of(list(encoder.layers(tokens, lengths=lengths)))
    if isinstance(model, EncoderDecoder):
        read = getattr(model, "read", model.encode)
        return _watch(model.get_submodule("encoder"), lambda: read(tokens, lengths), selection)
    if model.window is not None:
        return _watch(model, lambda: model(tokens).hidden, selection)
    parts, state = [], cast(Any, model).start(len(tokens))
    for segment in torch.split(tokens, SEGMENT, dim=1):

        def read_on(segment: Tensor = segment) -> Tensor:
            nonlocal state
            hidden, state = model(segment, state=state)
            return cast(Tensor, hidden)

        parts.append(_watch(model, read_on, selection))
    return torch.cat(parts, dim=1)


def _watch(network: nn.Module, read: Callable[[], Any], selection: Selection) -> Tensor:
    """Run a network that gives its last layer, with hooks where the others can be seen, and mix them."""
    children = dict(network.named_children())
    if "blocks" in children and selection.only_last:
        return cast(Tensor, read())
    seen: list[Tensor] = []
    stack, width = _recurrent(network)
    with ExitStack() as hooks:

        def show_input(module: nn.Module) -> None:
            hook = module.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
            hooks.callback(hook.remove)

        def show_output(module: nn.Module) -> None:
            hook = module.register_forward_hook(
                lambda module, inputs, output: seen.append(output[0] if isinstance(output, tuple) else output)
            )
            hooks.callback(hook.remove)

        if "blocks" in children:
            for block in children["blocks"].children():
                show_input(block)
        elif stack is not None:
            show_input(stack)
            show_input(stack.get_submodule("dropout"))
            show_output(stack)
        else:
            show_output(children["embedding"])
        last = read()
    if stack is not None:
        return selection.of([seen[0], *(layer[..., -width:] for layer in seen[1:])])
    return selection.of([*(layer[:, -last.shape[1] :] for layer in seen), last])


def _recurrent(network: nn.Module) -> tuple[nn.Module | None, int]:
    """The recurrent stack of a network, and the width of its layers.

    Between layers its dropout is called with what goes up: in a dense stack with all below, of which the newest is
    last. The stack's own output is the last layer, before any projection to the softmax.
    """
    if isinstance(network, RecurrentEncoder):
        return network, network.width
    stack = getattr(network, "recurrent", None)
    if isinstance(stack, Stack):
        return stack, cast(Layer, stack.layers[0]).fused.hidden_size
    return None, 0
