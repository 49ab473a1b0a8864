"""Read special and added tokens from the small files of a Hugging Face folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers as hf

from lmlab.runs.storage import read_json

ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def read_token_settings(folder: Path) -> dict[str, Any]:
    """Token settings from the small files of a folder; `bos_token_id` and `eos_token_id` are lists of numbers.

    If there is a `tokenizer.json`, `add_bos_token` is ignored and its post-processor decides, as in `transformers`.
    """
    settings: dict[str, Any] = {}
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        settings |= _read_table(folder / name)
    if (folder / "tokenizer.json").is_file():
        settings.pop("add_bos_token", None)
    numbers = {**_read_table(folder / "config.json"), **_read_table(folder / "generation_config.json")}
    for name in ("bos_token_id", "eos_token_id"):
        found = numbers.get(name)
        settings[name] = [each for each in (found if isinstance(found, list) else [found]) if _is_id(each)]
    return settings


def _is_id(given: Any) -> bool:
    return type(given) is int and 0 <= given < 2**32


def _read_table(path: Path) -> dict[str, Any]:
    content = read_json(path) if path.is_file() else {}
    return content if isinstance(content, dict) else {}


def token_name(given: Any) -> str:
    """The text of a token entry: a string, or a table with `content`; "" for anything else."""
    name = given.get("content") if isinstance(given, dict) else given
    return name if isinstance(name, str) else ""


def add_tokens(engine: hf.Tokenizer, folder: Path, settings: Mapping[str, Any]) -> None:
    """Add the tokens that other files than `tokenizer.json` name: `added_tokens_decoder`, or `added_tokens.json`.

    They are added in the order of their ids, each only if it then gets the id of its file.
    """
    decoder, special = settings.get("added_tokens_decoder"), set(special_texts(settings))
    found: dict[int, Any] = {}
    if isinstance(decoder, dict):
        found = {int(number): token for number, token in decoder.items() if number.isdecimal()}
    else:
        table = _read_table(folder / "added_tokens.json")
        found = {number: name for name, number in table.items() if _is_id(number)}
    for number, token in sorted(found.items()):
        name, flags = token_name(token), token if isinstance(token, dict) else {}
        if not name or engine.token_to_id(name) not in (None, number):
            continue
        if engine.token_to_id(name) is None and engine.get_vocab_size() != number:
            continue
        known = {flag: bool(flags[flag]) for flag in ("lstrip", "rstrip", "single_word") if flag in flags}
        own = bool(flags.get("special", name in special))
        added = hf.AddedToken(name, **known, normalized=bool(flags.get("normalized", not own)), special=own)
        (engine.add_special_tokens if own else engine.add_tokens)([added])


def special_texts(settings: Mapping[str, Any]) -> list[str]:
    """The special tokens listed in the small files, with and without a role."""
    more = [settings.get(name) for name in ("additional_special_tokens", "extra_special_tokens")]
    lists = [list(found.values()) if isinstance(found, dict) else found for found in more]
    several = [each for found in lists if isinstance(found, list) for each in found]
    return [name for name in map(token_name, (*map(settings.get, ROLES), *several)) if name]
