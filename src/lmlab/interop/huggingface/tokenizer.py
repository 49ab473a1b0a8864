"""Read the tokenizer of a Hugging Face folder, and write one for `AutoTokenizer`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tokenizers as hf
from tokenizers import models, normalizers, processors

from lmlab.interop.huggingface.frames import read_template
from lmlab.interop.huggingface.special_tokens import ROLES, add_tokens, read_token_settings, special_texts, token_name
from lmlab.interop.huggingface.table import Family
from lmlab.runs.storage import write_json
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.engines import BOUNDARY
from lmlab.tokenizers.files import check_options, read_engine
from lmlab.tokenizers.sentencepiece import load_sentencepiece
from lmlab.tokenizers.tokenizer import BOUNDARIES

SENTENCEPIECE = ("spiece.model", "sentencepiece.bpe.model", "tokenizer.model", "source.spm")


def read_tokenizer(folder: Path, family: Family) -> Tokenizer:
    """Read the tokenizer of a checkpoint from its `tokenizer.json`, or from older vocabulary files."""
    settings = read_token_settings(folder)
    if (folder / "tokenizer.json").is_file():
        engine = read_engine(folder / "tokenizer.json")
        add_tokens(engine, folder, settings)
        engine.add_special_tokens(_specials(settings, engine, ()))
        return _with_boundary(engine, settings, family)
    old = (("vocab.txt",), ("vocab.json", "merges.txt"))
    if not any(all((folder / name).is_file() for name in names) for names in old):
        pieces = [name for name in SENTENCEPIECE if (folder / name).is_file()]
        if pieces and family.sentencepiece is not None:
            return _read_sentencepiece(folder, pieces[0], family)
        if pieces:
            raise ValueError(
                f"{folder} has its tokenizer only as {pieces[0]}: write a tokenizer.json with "
                f"AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR) in transformers"
            )
        raise ValueError(
            f"{folder} has no tokenizer (looked for tokenizer.json, vocab.txt, and vocab.json with merges.txt): "
            f"say where it is with --tokenizer"
        )
    engine = Tokenizer.load(folder).engine
    if (folder / "vocab.txt").is_file() and "do_lower_case" in settings:
        engine.normalizer = normalizers.BertNormalizer(
            lowercase=bool(settings["do_lower_case"]),
            strip_accents=settings.get("strip_accents"),
            handle_chinese_chars=bool(settings.get("tokenize_chinese_chars", True)),
        )
    engine.add_special_tokens(_specials(settings, engine, family.specials))
    add_tokens(engine, folder, settings)
    return _with_boundary(engine, settings, family)


def _read_sentencepiece(folder: Path, name: str, family: Family) -> Tokenizer:
    """The tokenizer of a folder with only a SentencePiece model, with the special tokens around texts."""
    settings, usual = read_token_settings(folder), family.sentencepiece or {}
    engine = load_sentencepiece(
        folder / name,
        lowercase=bool(settings.get("do_lower_case", usual.get("lowercase", False))),
        strip_accents=not settings.get("keep_accents", not usual.get("strip_accents", False)),
        quotes=usual.get("quotes", False),
    )
    engine.add_special_tokens(_specials(settings, engine, family.specials))
    add_tokens(engine, folder, settings)
    tokenizer = _with_boundary(engine, settings, family)
    if template := _template(tokenizer, family.template):
        return undo_changes(tokenizer, {"post_processor": template})
    if settings.get("add_bos_token", not family.template) and engine.token_to_id("<s>") is not None:
        engine.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", engine.token_to_id("<s>"))]
        )
        return tokenizer.changed(engine.to_str())
    return tokenizer


def _with_boundary(engine: hf.Tokenizer, settings: Mapping[str, Any], family: Family) -> Tokenizer:
    """The tokenizer as `transformers` uses it: with special tokens, and with the end of text that its files define.

    The boundary is, in this order: that of the family; the token with which the model ends a text, if special; the
    eos_token; one of the usual names; any other that the files name. GPT's is not special, and gets lmlab's name.
    """
    content, vocabulary = json.loads(engine.to_str()), engine.get_vocab()
    own = content["model"]["vocab"]
    special = {token["content"] for token in content["added_tokens"] if token["special"]}
    if isinstance(own, dict) and family.boundary in own.keys() - special and BOUNDARY not in own:
        return _rename_boundary(engine, str(family.boundary))
    ends, begins = ([engine.id_to_token(i) for i in settings[f"{role}_token_id"]] for role in ("eos", "bos"))
    named = [token_name(settings.get(f"{role}_token")) for role in ("eos", "bos")]
    first = [name for name in (family.boundary, *ends) if name in special]
    wanted = (*first, named[0], *BOUNDARIES, *ends, *begins, named[1])
    found = next((name for name in wanted if name in vocabulary), None)
    usual = next((name for name in BOUNDARIES if name in vocabulary), None)
    return Tokenizer(engine, boundary=None if found == usual else found, split_special_tokens=False)


def _rename_boundary(engine: hf.Tokenizer, name: str) -> Tokenizer:
    """The tokenizer with a token of the vocabulary renamed to lmlab's boundary."""
    engine.add_special_tokens([BOUNDARY])
    content = json.loads(engine.to_str())
    for token in content["added_tokens"]:
        if token["content"] == BOUNDARY:
            token["id"] = content["model"]["vocab"][BOUNDARY] = content["model"]["vocab"].pop(name)
    return Tokenizer(hf.Tokenizer.from_str(json.dumps(content)), split_special_tokens=False)


def write_tokenizer(
    tokenizer: Tokenizer,
    folder: Path,
    family: Family,
    *,
    window: int | None,
    frame: tuple[str, str] | None = None,
    opening: int | None = None,
) -> dict[str, Any]:
    """Write the files that `AutoTokenizer` reads; return the changes to `tokenizer.json`, to undo them.

    Only tokens that are special in the file are named, because `transformers` makes every named token special. A
    `frame` overrides the special tokens of the family or the tokenizer. `opening` begins texts, if it is not the
    boundary.
    """
    content = json.loads(tokenizer.engine.to_str())
    undo: dict[str, Any] = {}
    other = content["post_processor"] is None if frame is None else read_template(tokenizer) != frame
    if other and (template := _template(tokenizer, frame or family.template)):
        undo = {"post_processor": content["post_processor"]}
        content["post_processor"] = template
    write_json(folder / "tokenizer.json", content)
    names = special_names(tokenizer, family, opening)
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


def recall_tokenizer(tokenizer: Tokenizer, ours: Mapping[str, Any]) -> Tokenizer:
    """Restore the tokenizer of an exported run from its folder and `lmlab.json`."""
    content = {**json.loads(tokenizer.engine.to_str()), **ours.get("tokenizer", {})}
    options = check_options(ours.get("tokenizer_options", {}), where="tokenizer_options in lmlab.json")
    return Tokenizer(hf.Tokenizer.from_str(json.dumps(content)), **options)


def undo_changes(tokenizer: Tokenizer, undo: dict[str, Any]) -> Tokenizer:
    """The tokenizer as it was before `write_tokenizer`."""
    return tokenizer.changed(json.dumps({**json.loads(tokenizer.engine.to_str()), **undo}))


def special_names(tokenizer: Tokenizer, family: Family, opening: int | None = None) -> dict[str, str]:
    """The special tokens of a tokenizer by the names of `transformers` for their roles; texts begin with `opening`."""
    special = {token["id"] for token in json.loads(tokenizer.engine.to_str())["added_tokens"] if token["special"]}
    ids: dict[str, Any] = {"unk_token": tokenizer.unknown}
    ids |= {f"{role}_token": find_role(tokenizer, role) for role in ("pad", "mask")}
    if "cls" in " ".join(family.template):
        ids |= {f"{role}_token": find_role(tokenizer, role) for role in ("cls", "sep")}
    else:
        ids |= {"bos_token": tokenizer.boundary if opening is None else opening, "eos_token": tokenizer.boundary}
    names = {role: str(tokenizer.engine.id_to_token(token)) for role, token in ids.items() if token in special}
    return {role: names[role] for role in ROLES if role in names}


def find_role(tokenizer: Tokenizer, name: str) -> int | None:
    """The token of a role, or None."""
    if name == "boundary":
        return tokenizer.boundary
    try:
        return tokenizer.special(name)
    except ValueError:
        return None


def _template(tokenizer: Tokenizer, template: tuple[str, ...]) -> dict[str, Any] | None:
    """The post-processor with which the model was trained; None if tokens are missing."""
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


def _specials(settings: Mapping[str, Any], engine: hf.Tokenizer, usual: Iterable[str]) -> list[hf.AddedToken]:
    """The special tokens of a vocabulary that are not marked yet: those named in files, and the usual ones."""
    marked = {token.content for token in engine.get_added_tokens_decoder().values() if token.special}
    texts = {*special_texts(settings), *usual} - marked
    vocabulary = engine.get_vocab()
    spaced = {"<mask>"}  # RoBERTa's mask includes the space before it
    return [
        hf.AddedToken(text, lstrip=text in spaced, special=True, normalized=False)
        for text in sorted(texts, key=lambda text: vocabulary.get(text, 0))
        if text in vocabulary
    ]
