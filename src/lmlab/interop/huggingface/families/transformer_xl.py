"""Transformer-XL (`transfo-xl`) as `transformers` wrote it before version 5, which has it no more.

With the full softmax only, and biases u and v that all layers share, as in the paper's equations.
"""

from __future__ import annotations

from lmlab.interop.huggingface.table import Architecture, Family, Only, Setting, Weight, linear
from lmlab.interop.huggingface.transforms import Divided, SineCosineOrder

TRANSFORMER_XL = Family(
    kind="transformer-xl",
    model_type="transfo-xl",
    prefix="transformer.",
    architectures=(Architecture("TransfoXLLMHeadModel"),),
    settings=(
        Setting("vocabulary", "vocab_size"),
        Setting("width", "d_model"),
        Setting("heads", "n_head"),
        Setting("layers", "n_layer"),
        Setting("inner", "d_inner"),
        Setting("memory", "mem_len"),
        Setting("dropout", "dropout", default=0.1),
        Setting("attention_dropout", "dropatt", default=0.0),
    ),
    options=(
        Only("d_embed", lambda config: (config["d_model"],)),
        Only("d_head", lambda config: (config["d_model"] // config["n_head"],)),
        Only("cutoffs", ([],), default=[20000, 40000, 200000]),
        Only("div_val", (1,), default=4),
        Only("adaptive", (True,)),
        Only("attn_type", (0,)),
        Only("untie_r", (False,), default=True),
        Only("same_length", (False,), default=True),
        Only("pre_lnorm", (False,)),
        Only("clamp_len", (-1, 0), default=1000),
        Only("layer_norm_epsilon", (1e-5,)),
        Only("tie_weight", (True,)),
    ),
    weights=(
        Weight("embedding.weight", "transformer.word_emb.emb_layers.0.weight"),
        Weight("content_bias", "transformer.r_w_bias"),
        Weight("position_bias", "transformer.r_r_bias"),
        Weight(
            ("blocks.{}.attention.query.weight", "blocks.{}.attention.key_value.weight"),
            "transformer.layers.{}.dec_attn.qkv_net.weight",
            Divided(1, 2),
        ),
        Weight("blocks.{}.attention.distance.weight", "transformer.layers.{}.dec_attn.r_net.weight", SineCosineOrder()),
        Weight("blocks.{}.attention.projection.weight", "transformer.layers.{}.dec_attn.o_net.weight"),
        *linear("blocks.{}.attention_norm", "transformer.layers.{}.dec_attn.layer_norm"),
        *linear("blocks.{}.feed_forward.expand", "transformer.layers.{}.pos_ff.CoreNet.0"),
        *linear("blocks.{}.feed_forward.contract", "transformer.layers.{}.pos_ff.CoreNet.3"),
        *linear("blocks.{}.feed_forward_norm", "transformer.layers.{}.pos_ff.layer_norm"),
        Weight("output.bias", "crit.out_layers.0.bias"),
    ),
    copies={
        "crit.out_layers.0.weight": "transformer.word_emb.emb_layers.0.weight",
        "transformer.layers.{}.dec_attn.r_w_bias": "transformer.r_w_bias",
        "transformer.layers.{}.dec_attn.r_r_bias": "transformer.r_r_bias",
    },
    ignored=(r"transformer\.pos_emb\.inv_freq",),
    fixed={"softmax": "full"},
    specials=("<eos>", "<unk>"),
)
