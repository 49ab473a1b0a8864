"""VisualBERT (`visual_bert`): BERT's table, and three rows for regions.

Their `visual_embeds` are our regions; where a model of ours adds the place and size of a region to its vector, these
are the last five numbers of theirs.
"""

from __future__ import annotations

from lmlab.interop.huggingface.families.bert import ABSOLUTE, ENCODER_SETTINGS, GELU, OLD_NAMES, TEMPLATE, encoder
from lmlab.interop.huggingface.table import Architecture, Family, Only, OptionalPart, Setting, Weight, linear
from lmlab.layers.regions import LOCATION

VISUALBERT = Family(
    kind="visualbert",
    model_type="visual_bert",
    prefix="visual_bert.",
    architectures=(
        Architecture("VisualBertForPreTraining", {"head": True, "pairs": True, "pooler": True}),
        Architecture("VisualBertModel", {"head": False, "pairs": False}, prefixed=False),
    ),
    settings=(
        *ENCODER_SETTINGS,
        Setting("window", "max_position_embeddings"),
        Setting("gelu", "hidden_act", words=GELU, default="gelu"),
        Setting(
            "region_width",
            "visual_embedding_dim",
            default=512,
            written=lambda ours: ours["region_width"] + (LOCATION if ours["locations"] else 0),
        ),
    ),
    options=(ABSOLUTE, Only("bypass_transformer", (False,))),
    weights=(
        *encoder("", "visual_bert."),
        *linear("region_projection", "visual_bert.embeddings.visual_projection"),
        Weight("region_positions.weight", "visual_bert.embeddings.visual_position_embeddings.weight"),
        Weight("region_segments.weight", "visual_bert.embeddings.visual_token_type_embeddings.weight"),
        *linear("pooler", "visual_bert.pooler.dense"),
        *linear("pair", "cls.seq_relationship"),
        *linear("output.transform", "cls.predictions.transform.dense"),
        *linear("output.norm", "cls.predictions.transform.LayerNorm"),
        Weight("output.softmax.bias", "cls.predictions.bias"),
    ),
    parts=(
        OptionalPart("pooler", "visual_bert.pooler.dense.weight"),
        OptionalPart("pairs", "cls.seq_relationship.weight"),
        OptionalPart("head", "cls.predictions.transform.dense.weight"),
    ),
    copies={
        "cls.predictions.decoder.weight": "visual_bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    ignored=(r"visual_bert\.embeddings\.position_ids", r"visual_bert\.embeddings\.token_type_ids"),
    renamed=OLD_NAMES,
    fixed={"direction": "both"},
    assumed={"locations": False},
    specials=("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    template=TEMPLATE,
    bare={"head": False, "pairs": False, "pooler": False},
)
