"""The tokenizer in a Hugging Face folder, and one that `AutoTokenizer` opens."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tokenizers as hf
from tokenizers import models, normalizers, processors

from lmlab.interop.hf_frames import read_template
from lmlab.interop.hf_table import Family
from lmlab.storage import read_json, write_json
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.engines import BOUNDARY
from lmlab.tokenizers.sentencepiece import load_sentencepiece

ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
SENTENCEPIECE = ("spiece.model", "sentencepiece.bpe.model", "tokenizer.model", "source.spm")


def read_tokenizer(folder: Path, family: Family) -> Tokenizer:
    """The tokenizer of a checkpoint: its `tokenizer.json`, or the vocabulary files of older ones."""
    if (folder / "tokenizer.json").is_file():
        return _with_boundary(Tokenizer.load(folder / "tokenizer.json"), family)
    old = (("vocab.txt",), ("vocab.json", "merges.txt"))
    if not any(all((folder / name).is_file() for name in names) for names in old):
        pieces = [name for name in SENTENCEPIECE if (folder / name).is_file()]
        if pieces and family.sentencepiece is not None:
            return _read_sentencepiece(folder, pieces[0], family)
        if pieces:
            raise ValueError(
                f"{folder} has its tokenizer only as {pieces[0]}: write a tokenizer.json beside it with "
                f"AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR) in transformers"
            )
        raise ValueError(
            f"{folder} has no tokenizer (looked for tokenizer.json, vocab.txt, and vocab.json with merges.txt): "
            f"say where it is with --tokenizer"
        )
    settings, engine = _settings(folder), Tokenizer.load(folder).engine
    if (folder / "vocab.txt").is_file() and "do_lower_case" in settings:
        engine.normalizer = normalizers.BertNormalizer(
            lowercase=bool(settings["do_lower_case"]),
            strip_accents=settings.get("strip_accents"),
            handle_chinese_chars=bool(settings.get("tokenize_chinese_chars", True)),
        )
    engine.add_special_tokens(_specials(settings, engine, family))
    return _with_boundary(Tokenizer(engine), family)


def _read_sentencepiece(folder: Path, name: str, family: Family) -> Tokenizer:
    """The tokenizer of a folder that has a SentencePiece model only, with what stands around its texts."""
    settings, usual = _settings(folder), family.sentencepiece or {}
    engine = load_sentencepiece(
        folder / name,
        lowercase=bool(settings.get("do_lower_case", usual.get("lowercase", False))),
        strip_accents=not settings.get("keep_accents", not usual.get("strip_accents", False)),
        quotes=usual.get("quotes", False),
    )
    engine.add_special_tokens(_specials(settings, engine, family))
    tokenizer = Tokenizer(engine)
    if template := _template(tokenizer, family.template):
        return undo_changes(tokenizer, {"post_processor": template})
    if settings.get("add_bos_token", not family.template) and engine.token_to_id("<s>") is not None:
        engine.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", engine.token_to_id("<s>"))]
        )
        return Tokenizer(engine)
    return tokenizer


def _with_boundary(tokenizer: Tokenizer, family: Family) -> Tokenizer:
    """The tokenizer with the family's token as its boundary, in place of one that had to be added."""
    content = json.loads(tokenizer.engine.to_str())
    vocabulary = content["model"]["vocab"]
    if not isinstance(vocabulary, dict) or family.boundary not in vocabulary or BOUNDARY in vocabulary:
        return tokenizer
    for token in content["added_tokens"]:
        if token["content"] == BOUNDARY:
            token["id"] = vocabulary[BOUNDARY] = vocabulary.pop(family.boundary)
    return Tokenizer(hf.Tokenizer.from_str(json.dumps(content)))


def write_tokenizer(
    tokenizer: Tokenizer, folder: Path, family: Family, *, window: int | None, frame: tuple[str, str] | None = None
) -> dict[str, Any]:
    """Write the files that `AutoTokenizer` reads; give what was changed in `tokenizer.json`, to undo it.

    Only tokens that are special in the file are named, because `transformers` makes special what is named. A `frame`
    goes before what the family, or the tokenizer itself, puts around a text.
    """
    content = json.loads(tokenizer.engine.to_str())
    undo: dict[str, Any] = {}
    other = content["post_processor"] is None if frame is None else read_template(tokenizer) != frame
    if other and (template := _template(tokenizer, frame or family.template)):
        undo = {"post_processor": content["post_processor"]}
        content["post_processor"] = template
    write_json(folder / "tokenizer.json", content)
    names = special_names(tokenizer, family)
    kinds = ["token_type_ids"] if ":1" in " ".join(frame or family.template) else []
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": ["input_ids", *kinds, "attention_mask"],
        "clean_up_tokenization_spaces": False,
        **names,
    }
    if family.pads != "right":
        settings["padding_side"] = family.pads
    if window is not None:
        settings["model_max_length"] = window
    write_json(folder / "tokenizer_config.json", settings)
    write_json(folder / "special_tokens_map.json", names)
    return undo


def undo_changes(tokenizer: Tokenizer, undo: dict[str, Any]) -> Tokenizer:
    """The tokenizer as it was before `write_tokenizer`."""
    content = json.loads(tokenizer.engine.to_str())
    return Tokenizer(hf.Tokenizer.from_str(json.dumps({**content, **undo})))


def special_names(tokenizer: Tokenizer, family: Family) -> dict[str, str]:
    """The special tokens of a tokenizer by the names that `transformers` has for their roles."""
    special = {token["id"] for token in json.loads(tokenizer.engine.to_str())["added_tokens"] if token["special"]}
    ids: dict[str, Any] = {"unk_token": tokenizer.unknown}
    ids |= {f"{role}_token": find_role(tokenizer, role) for role in ("pad", "mask")}
    if "cls" in " ".join(family.template):
        ids |= {f"{role}_token": find_role(tokenizer, role) for role in ("cls", "sep")}
    else:
        ids |= dict.fromkeys(("bos_token", "eos_token"), tokenizer.boundary)
    names = {role: str(tokenizer.engine.id_to_token(token)) for role, token in ids.items() if token in special}
    return {role: names[role] for role in ROLES if role in names}


def find_role(tokenizer: Tokenizer, name: str) -> int | None:
    """The token of a role, or None."""
    if name == "boundary":
        return tokenizer.boundary
    try:
        return tokenizer.role(name)
    except ValueError:
        return None


def _template(tokenizer: Tokenizer, template: tuple[str, ...]) -> dict[str, Any] | None:
    """What `transformers` puts around a text, as a model was trained; None where tokens are missing."""
    roles = {step.partition(":")[0] for text in template for step in text.split() if step[0] != "$"}
    ids: dict[str, Any] = {role: find_role(tokenizer, role) for role in sorted(roles)}
    if not roles or None in ids.values():
        return None
    names = {role: str(tokenizer.engine.id_to_token(token)) for role, token in ids.items()}
    single, pair = ([re.sub("[a-z]+", lambda role: names[role[0]], step) for step in text.split()] for text in template)
    engine = hf.Tokenizer(models.WordLevel({}, unk_token=""))
    engine.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[(names[role], ids[role]) for role in ids]
    )
    processor: dict[str, Any] = json.loads(engine.to_str())["post_processor"]
    return processor


def _settings(folder: Path) -> dict[str, Any]:
    """What the small files beside a vocabulary say."""
    settings: dict[str, Any] = {}
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        if (folder / name).is_file():
            content = read_json(folder / name)
            settings |= content if isinstance(content, dict) else {}
    return settings


def _specials(settings: dict[str, Any], engine: hf.Tokenizer, family: Family) -> list[hf.AddedToken]:
    """The special tokens of vocabulary files: as they are named there, and as this family always names them."""
    named: Iterable[Any] = [settings[role] for role in ROLES if settings.get(role)]
    texts = {token["content"] if isinstance(token, dict) else str(token) for token in named} | set(family.specials)
    vocabulary = engine.get_vocab()
    spaced = {"<mask>"}  # the space before RoBERTa's blank belongs to it
    return [
        hf.AddedToken(text, lstrip=text in spaced, special=True, normalized=False)
        for text in sorted(texts, key=lambda text: vocabulary.get(text, 0))
        if text in vocabulary
    ]
