"""The first GPT (`openai-gpt`): what they call `gelu` there is the approximation by tanh.

Its vocabulary has no token between documents; the end of a paragraph, which its normalizer lets no text have, will do.
"""

from __future__ import annotations

from lmlab.interop.huggingface.table import SENTENCES, Architecture, Family, Only, Setting, TaskHead, Weight, linear
from lmlab.interop.huggingface.transforms import Transposed

SETTINGS = (
    Setting("vocabulary", "vocab_size"),
    Setting("width", "n_embd"),
    Setting("heads", "n_head"),
    Setting("layers", "n_layer"),
    Setting("window", "n_positions"),
    Setting("dropout", "resid_pdrop", also=("embd_pdrop", "attn_pdrop"), default=0.1),
)
"""GPT-2 has the same, under the same names."""


def last_head(prefix: str, *, absorbs: str | None) -> TaskHead:
    """One layer without a bias over the vector of the last token."""
    rows = (Weight("label.out.weight", "score.weight"),)
    return TaskHead(f"{prefix}ForSequenceClassification", SENTENCES, rows, pool="last", dropout=None, absorbs=absorbs)


GPT = Family(
    kind="gpt",
    model_type="openai-gpt",
    prefix="transformer.",
    architectures=(Architecture("OpenAIGPTLMHeadModel"), Architecture("OpenAIGPTModel")),
    settings=SETTINGS,
    options=(
        Only("afn", ("gelu",)),
        Only("layer_norm_epsilon", (1e-5,)),
    ),
    weights=(
        Weight("embedding.weight", "transformer.tokens_embed.weight"),
        Weight("positions.weight", "transformer.positions_embed.weight"),
        *linear("blocks.{}.attention.query_key_value", "transformer.h.{}.attn.c_attn", Transposed()),
        *linear("blocks.{}.attention.projection", "transformer.h.{}.attn.c_proj", Transposed()),
        *linear("blocks.{}.attention_norm", "transformer.h.{}.ln_1"),
        *linear("blocks.{}.feed_forward.expand", "transformer.h.{}.mlp.c_fc", Transposed()),
        *linear("blocks.{}.feed_forward.contract", "transformer.h.{}.mlp.c_proj", Transposed()),
        *linear("blocks.{}.feed_forward_norm", "transformer.h.{}.ln_2"),
    ),
    copies={"lm_head.weight": "transformer.tokens_embed.weight"},
    ignored=(r"transformer\.h\.\d+\.attn\.bias", r"transformer\.position_ids"),
    specials=("<unk>",),
    boundary="\n</w>",
    heads=(last_head("OpenAIGPT", absorbs="blocks.{}.feed_forward_norm.bias"),),
)
