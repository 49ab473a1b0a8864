"""The Transformer of 2017 as Marian (`marian`), which has it with sinusoidal positions and the norm after each sum."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lmlab.interop.huggingface.families.bart import BIAS, COPIES, STACK_OPTIONS, STACK_SETTINGS, stack
from lmlab.interop.huggingface.table import Adapted, Architecture, Family, Only, Weight
from lmlab.interop.huggingface.transforms import Squeezed

if TYPE_CHECKING:
    from torch import Tensor

ACROSS = (
    (r"embedding\.weight|.*\.(query|key_value|query_key_value|expand)\.weight", 1),
    (r".*\.(projection|contract)\.(weight|bias)|.*_norm\.(weight|bias)", 0),
)
"""The tensors that read or write the vectors that blocks pass on, and which side of them does."""


class WavesInHalves:
    """Sines and cosines that alternate, as in the paper, become all sines before all cosines, as in Marian.

    Positions are added to the vectors that the blocks pass on, so the dimensions of these change places, in every
    tensor that reads or writes them. The network is the same.
    """

    def write(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor], *, pad: int | None) -> Adapted:
        if values["position_order"] == "halves":
            return Adapted(values, tensors, None)
        width = values["width"]
        order = [*range(0, width, 2), *range(1, width, 2)]
        return Adapted(
            {**values, "position_order": "halves"},
            _reorder(tensors, order),
            {"position_order": values["position_order"]},
        )

    def read(self, adapted: Adapted) -> tuple[dict[str, Any], dict[str, Tensor]]:
        values, tensors, undo = adapted
        assert undo is not None
        width = values["width"]
        order = [*range(0, width, 2), *range(1, width, 2)]
        back = sorted(range(width), key=order.__getitem__)
        return {**values, **undo}, _reorder(tensors, back)


def _reorder(tensors: Mapping[str, Tensor], order: list[int]) -> dict[str, Tensor]:
    result = dict(tensors)
    for name, tensor in tensors.items():
        for pattern, side in ACROSS:
            if re.fullmatch(pattern, name):
                result[name] = tensor.index_select(side, tensor.new_tensor(order).long())
    return result


MARIAN = Family(
    kind="transformer",
    model_type="marian",
    prefix="model.",
    architectures=(Architecture("MarianMTModel"), Architecture("MarianModel")),
    settings=STACK_SETTINGS,
    options=(
        *STACK_OPTIONS,
        Only("share_encoder_decoder_embeddings", (True,)),
        Only("decoder_vocab_size", lambda config: (config["vocab_size"], None)),
        Only("normalize_before", (False,)),
        Only("normalize_embedding", (False,)),
        Only("static_position_embeddings", (True,)),
        Only("add_final_layer_norm", (False,)),
    ),
    weights=(
        Weight("embedding.weight", "model.shared.weight"),
        *stack("encoder"),
        *stack("decoder"),
        Weight("output.bias", "final_logits_bias", Squeezed(0)),
    ),
    parts=(BIAS,),
    copies=COPIES,
    ignored=("final_logits_bias", r"model\.(encoder|decoder)\.embed_positions\.weight"),
    fixed={"norm": "post", "source_vocabulary": None, "position_order": "halves"},
    constants={"max_position_embeddings": 1024},
    specials=("<pad>", "</s>", "<unk>"),
    template=("$A boundary", "$A $B boundary"),
    adaptation=WavesInHalves(),
)
