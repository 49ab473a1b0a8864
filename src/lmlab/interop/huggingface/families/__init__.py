"""One table per family of Hugging Face models, read in both directions by `lmlab.interop.huggingface`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lmlab.config import suggest
from lmlab.interop.huggingface.families.albert import ALBERT
from lmlab.interop.huggingface.families.bart import BART
from lmlab.interop.huggingface.families.bert import BERT
from lmlab.interop.huggingface.families.clip import CLIP
from lmlab.interop.huggingface.families.decision_transformer import DECISION_TRANSFORMER
from lmlab.interop.huggingface.families.electra import ELECTRA
from lmlab.interop.huggingface.families.gpt import GPT
from lmlab.interop.huggingface.families.gpt2 import GPT2
from lmlab.interop.huggingface.families.llama import LLAMA, MISTRAL, QWEN2
from lmlab.interop.huggingface.families.marian import MARIAN
from lmlab.interop.huggingface.families.reformer import REFORMER
from lmlab.interop.huggingface.families.roberta import ROBERTA, XLM_ROBERTA
from lmlab.interop.huggingface.families.transformer_xl import TRANSFORMER_XL
from lmlab.interop.huggingface.families.visualbert import VISUALBERT
from lmlab.interop.huggingface.families.vit import VIT
from lmlab.interop.huggingface.families.whisper import WHISPER
from lmlab.interop.huggingface.families.xlnet import XLNET
from lmlab.interop.huggingface.table import Architecture, Family, TaskHead

FAMILIES: dict[str, Family] = {
    family.model_type: family
    for family in (
        *(GPT, GPT2, TRANSFORMER_XL, REFORMER, LLAMA, MISTRAL, QWEN2),
        *(BERT, XLNET, ROBERTA, XLM_ROBERTA, ALBERT, ELECTRA),
        VISUALBERT,
        *(BART, MARIAN, WHISPER),
        *(VIT, CLIP, DECISION_TRANSFORMER),
    )
}
"""By their name for the model type."""


def family_of_kind(kind: str, values: Mapping[str, Any]) -> Family:
    """The family as which a kind of ours with these settings is written; a ValueError where there is none.

    Of several it is the first that can say all settings, as Qwen2 can say biases.
    """
    fitting = [family for family in FAMILIES.values() if kind == family.kind or kind in family.also]
    able = [family for family in fitting if all(values[name] == value for name, value in family.fixed.items())]
    if fitting:
        return (able or fitting)[0]
    kinds = sorted({name for family in FAMILIES.values() for name in (family.kind, *family.also)})
    raise ValueError(f"transformers has no model like {kind}; these can be written for it: {', '.join(kinds)}")


def family_of_config(config: Mapping[str, Any], *, where: str) -> tuple[Family, Architecture | TaskHead | None]:
    """The family and architecture that a `config.json` of theirs names; a ValueError names the nearest ones."""
    names = config.get("architectures") or []
    name = str(names[0]) if isinstance(names, list) and names else None
    by_architecture = {known.name: family for family in FAMILIES.values() for known in _classes(family)}
    model_type = None if config.get("model_type") is None else str(config["model_type"])
    if model_type is None and name is not None:
        if name not in by_architecture:
            raise ValueError(f"{where}: unknown architecture {name!r}{suggest(name, by_architecture)}")
        model_type = by_architecture[name].model_type
    if model_type not in FAMILIES:
        given = "it names no model_type" if model_type is None else f"unknown model_type {model_type!r}"
        raise ValueError(f"{where}: {given}{suggest(str(model_type), FAMILIES)}")
    family = FAMILIES[model_type]
    if name is None:
        return family, None
    known = {each.name: each for each in _classes(family)}
    if name not in known:
        raise ValueError(
            f"{where}: unknown architecture {name!r} of {model_type}{suggest(name, known)}. Leave its head out "
            f"in transformers with AutoModel.from_pretrained(DIR).save_pretrained(NEW_DIR)"
        )
    return family, known[name]


def _classes(family: Family) -> tuple[Architecture | TaskHead, ...]:
    return (*family.architectures, *family.heads)
