"""XLNet (`xlnet`): matrices with an axis for heads there, and plain ones here."""

from __future__ import annotations

from lmlab.interop.huggingface.families.bert import GELU
from lmlab.interop.huggingface.table import (
    SENTENCES,
    Architecture,
    Family,
    Only,
    OptionalPart,
    Setting,
    TaskHead,
    Weight,
    linear,
)
from lmlab.interop.huggingface.transforms import PerHead, Squeezed

LAYER = "transformer.layer.{}.rel_attn."
ATTENTION = "blocks.{}.attention."
SUMMARY = (Only("summary_type", ("last",)), Only("summary_use_proj", (True,)))


def _summary_head(name: str, tasks: tuple[str, ...]) -> TaskHead:
    """A dense tanh layer over the vector of the last token, <cls>, and one more."""
    rows = (*linear("label.dense", "sequence_summary.summary"), *linear("label.out", "logits_proj"))
    return TaskHead(name, tasks, rows, pool="last", activation="tanh", dropout="summary_last_dropout", options=SUMMARY)


XLNET = Family(
    kind="xlnet",
    model_type="xlnet",
    prefix="transformer.",
    architectures=(
        Architecture("XLNetLMHeadModel", {"head": True}),
        Architecture("XLNetModel", {"head": False}, prefixed=False),
    ),
    settings=(
        Setting("vocabulary", "vocab_size"),
        Setting("width", "d_model"),
        Setting("heads", "n_head"),
        Setting("layers", "n_layer"),
        Setting("inner", "d_inner"),
        Setting("memory", "mem_len", default=0, none=0),
        Setting("dropout", "dropout", default=0.1),
        Setting("epsilon", "layer_norm_eps", default=1e-12),
        Setting("activation", "ff_activation", default="gelu", words={**GELU, "relu": "relu"}),
    ),
    options=(
        Only("d_head", lambda config: (config["d_model"] // config["n_head"], None)),
        Only("attn_type", ("bi",)),
        Only("bi_data", (False, True)),  # how it was trained; a text that is read forwards is read the same
        Only("clamp_len", (-1, 0)),
        Only("same_length", (False,)),
        Only("reuse_len", (None, 0)),
        Only("untie_r", (True,)),
    ),
    weights=(
        Weight("embedding.weight", "transformer.word_embedding.weight"),
        Weight("query", "transformer.mask_emb", Squeezed(0, axes=2)),
        Weight(
            (
                f"{ATTENTION}content_bias",
                *(f"{ATTENTION}{name}.weight" for name in ("query", "key_value", "distance", "projection")),
            ),
            (f"{LAYER}r_w_bias", *(f"{LAYER}{name}" for name in "qkvro")),
            PerHead(),
        ),
        Weight(f"{ATTENTION}position_bias", f"{LAYER}r_r_bias"),
        Weight(f"{ATTENTION}segment_bias", f"{LAYER}r_s_bias"),
        Weight(f"{ATTENTION}segments", f"{LAYER}seg_embed"),
        *linear("blocks.{}.attention_norm", f"{LAYER}layer_norm"),
        *linear("blocks.{}.feed_forward.expand", "transformer.layer.{}.ff.layer_1"),
        *linear("blocks.{}.feed_forward.contract", "transformer.layer.{}.ff.layer_2"),
        *linear("blocks.{}.feed_forward_norm", "transformer.layer.{}.ff.layer_norm"),
        Weight("output.bias", "lm_loss.bias"),
    ),
    parts=(OptionalPart("head", ("lm_loss.bias", "lm_loss.weight")),),
    copies={"lm_loss.weight": "transformer.word_embedding.weight"},
    assumed={"attention_dropout": None, "initial": "published"},
    boundary="<eod>",  # <s> and </s> are in the vocabulary, but no text that it was trained on has them
    specials=("<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"),
    template=("$A sep cls:2", "$A sep $B:1 sep:1 cls:2"),
    sentencepiece={"lowercase": False, "strip_accents": True, "quotes": True},
    pads="left",
    heads=(
        _summary_head("XLNetForSequenceClassification", SENTENCES),
        _summary_head("XLNetForMultipleChoice", ("choice",)),
        TaskHead("XLNetForTokenClassification", ("tagging",), linear("label.out", "classifier"), dropout=None),
        TaskHead("XLNetForQuestionAnsweringSimple", ("spans",), linear("label.out", "qa_outputs"), dropout=None),
    ),
    bare={"head": False},
)
