"""Decision Transformer (`decision-transformer`): `DecisionTransformerModel`, whose actions are used.

Theirs has unused parts: a table of tokens, one of positions, whose first row is added to every vector, and heads that
predict states and returns. They are written as zeros.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lmlab.interop.huggingface.table import Architecture, Family, Only, Setting, Weight, linear
from lmlab.interop.huggingface.transforms import Transposed
from lmlab.parsing import load_json
from lmlab.tokenizers.processors import FILE, load_processor
from lmlab.tokenizers.processors.episode_scaling import EpisodeProcessor

LAYER = "encoder.h.{}."
POSITIONS = 1024


class NormWithPosition:
    """Their norm of the inputs, to whose bias the first row of the positions is added after it."""

    def read(self, theirs: Sequence[Tensor]) -> list[Tensor]:
        bias, positions, _ = theirs
        return [bias + positions[0]]

    def write(self, ours: Sequence[Tensor]) -> list[Tensor]:
        (bias,) = ours
        return [bias, bias.new_zeros(POSITIONS, len(bias)), bias.new_zeros(1, len(bias))]


class WithUnusedHead:
    """A linear map of the inputs, and the head that predicts them, which nothing uses."""

    def read(self, theirs: Sequence[Tensor]) -> list[Tensor]:
        return list(theirs[:2])

    def write(self, ours: Sequence[Tensor]) -> list[Tensor]:
        weight, bias = ours
        return [weight, bias, torch.zeros_like(weight.mT).contiguous(), weight.new_zeros(weight.shape[1])]


class EpisodeScales:
    """The scales of states, actions and returns: beside a folder that lmlab wrote, as `processor.json`."""

    def read_settings(self, folder: Path, config: Mapping[str, Any]) -> Mapping[str, Any]:
        return {}

    def read_frame(self, folder: Path, tokenizer: Any, config: Any) -> None:
        return None

    def read_processor(self, folder: Path, config: Any) -> EpisodeProcessor:
        found = load_processor(folder) if (folder / FILE).is_file() and _is_ours(folder / FILE) else None
        if isinstance(found, EpisodeProcessor):
            return found
        warnings.warn(
            f"{folder} has no {FILE} with the scales of its episodes: states and returns are read as they are, and "
            "actions go from -1 to 1; set state_mean, state_std and return_scale in the processor.json of the run",
            stacklevel=4,
        )
        return EpisodeProcessor(
            state_mean=[0.0] * config.states,
            state_std=[1.0] * config.states,
            actions=config.actions,
            discrete=config.discrete,
            action_low=[] if config.discrete else [-1.0] * config.actions,
            action_high=[] if config.discrete else [1.0] * config.actions,
            return_scale=1.0,
            longest=config.longest,
            best=0.0,
            mean=0.0,
        )

    def write(self, folder: Path, config: Any, tokenizer: Any, frame: Any, processor: Any) -> None:
        processor.save(folder / FILE)


def _is_ours(path: Path) -> bool:
    """Whether a `processor.json` is that of episodes: theirs have the same name."""
    try:
        values = load_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(values, dict) and values.get("kind") == EpisodeProcessor.kind


DECISION_TRANSFORMER = Family(
    kind="decision-transformer",
    model_type="decision_transformer",
    prefix="",
    architectures=(Architecture("DecisionTransformerModel"),),
    settings=(
        Setting("states", "state_dim"),
        Setting("actions", "act_dim"),
        Setting("discrete", "action_tanh", words={False: True, True: False}, default=True),
        Setting("longest", "max_ep_len", default=4096),
        Setting("width", "hidden_size"),
        Setting("heads", "n_head", default=1),
        Setting("layers", "n_layer", default=3),
        Setting("dropout", "resid_pdrop", also=("embd_pdrop", "attn_pdrop"), default=0.1),
    ),
    options=(
        Only("activation_function", ("relu",)),
        Only("n_inner", lambda config: (None, 4 * config["hidden_size"])),
        Only("layer_norm_epsilon", (1e-5,)),
        Only("scale_attn_weights", (True,)),
        Only("scale_attn_by_inverse_layer_idx", (False,)),
        Only("add_cross_attention", (False,)),
    ),
    weights=(
        *linear("embed_return", "embed_return"),
        Weight(
            ("embed_state.weight", "embed_state.bias"),
            ("embed_state.weight", "embed_state.bias", "predict_state.weight", "predict_state.bias"),
            WithUnusedHead(),
        ),
        *linear("embed_action", "embed_action"),
        Weight("embed_time.weight", "embed_timestep.weight"),
        Weight("entry_norm.weight", "embed_ln.weight"),
        Weight("entry_norm.bias", ("embed_ln.bias", "encoder.wpe.weight", "encoder.wte.weight"), NormWithPosition()),
        *linear("blocks.{}.attention_norm", f"{LAYER}ln_1"),
        *linear("blocks.{}.attention.query_key_value", f"{LAYER}attn.c_attn", Transposed()),
        *linear("blocks.{}.attention.projection", f"{LAYER}attn.c_proj", Transposed()),
        *linear("blocks.{}.feed_forward_norm", f"{LAYER}ln_2"),
        *linear("blocks.{}.feed_forward.expand", f"{LAYER}mlp.c_fc", Transposed()),
        *linear("blocks.{}.feed_forward.contract", f"{LAYER}mlp.c_proj", Transposed()),
        *linear("norm", "encoder.ln_f"),
        *linear("output", "predict_action.0"),
    ),
    ignored=(r"encoder\.h\.\d+\.attn\.(bias|masked_bias)", r"predict_return\.(weight|bias)"),
    fixed={"returns": True},
    assumed={"window": 20},
    constants={"vocab_size": 1, "n_positions": POSITIONS, "bos_token_id": 0, "eos_token_id": 0},
    tokenized=False,
    files=EpisodeScales(),
)
