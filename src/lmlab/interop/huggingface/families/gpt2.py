"""GPT-2 (`gpt2`)."""

from __future__ import annotations

from lmlab.interop.huggingface.families.gpt import SETTINGS, last_head
from lmlab.interop.huggingface.table import Architecture, Family, Only, Weight, linear, placed_heads
from lmlab.interop.huggingface.transforms import Transposed

GPT2 = Family(
    kind="gpt2",
    model_type="gpt2",
    prefix="transformer.",
    architectures=(Architecture("GPT2LMHeadModel"), Architecture("GPT2Model")),
    settings=SETTINGS,
    options=(
        Only("activation_function", ("gelu_new", "gelu_pytorch_tanh")),
        Only("n_inner", lambda config: (None, 4 * config["n_embd"])),
        Only("layer_norm_epsilon", (1e-5,)),
        Only("scale_attn_weights", (True,)),
        Only("scale_attn_by_inverse_layer_idx", (False,)),
        Only("add_cross_attention", (False,)),
    ),
    weights=(
        Weight("embedding.weight", "transformer.wte.weight"),
        Weight("positions.weight", "transformer.wpe.weight"),
        *linear("blocks.{}.attention_norm", "transformer.h.{}.ln_1"),
        *linear("blocks.{}.attention.query_key_value", "transformer.h.{}.attn.c_attn", Transposed()),
        *linear("blocks.{}.attention.projection", "transformer.h.{}.attn.c_proj", Transposed()),
        *linear("blocks.{}.feed_forward_norm", "transformer.h.{}.ln_2"),
        *linear("blocks.{}.feed_forward.expand", "transformer.h.{}.mlp.c_fc", Transposed()),
        *linear("blocks.{}.feed_forward.contract", "transformer.h.{}.mlp.c_proj", Transposed()),
        *linear("norm", "transformer.ln_f"),
    ),
    copies={"lm_head.weight": "transformer.wte.weight"},
    ignored=(r"transformer\.h\.\d+\.attn\.(bias|masked_bias)",),
    specials=("<|endoftext|>",),
    heads=(last_head("GPT2", absorbs="norm.bias"), *placed_heads("GPT2")),
)
