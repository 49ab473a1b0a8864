"""Import and export the chat template of a Hugging Face folder, with the names of its special tokens.

Templates are copied unchanged, and never run here.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from lmlab.interop.huggingface.special_tokens import ROLES, read_token_settings, token_name
from lmlab.runs.storage import DamagedError, read_json, write_json
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.chat_template import FILE, ChatTemplate

SETTINGS, NAMES = "tokenizer_config.json", "special_tokens_map.json"


def import_chat(folder: Path, run: Path) -> None:
    """Copy the chat template of a folder, if any, into a run: from its own file or `tokenizer_config.json`."""
    if text := _find_template(folder):
        settings = read_token_settings(folder)
        names = {role: name for role in ROLES if (name := token_name(settings.get(role)))}
        ChatTemplate(text=text, special_tokens=names).save(run)


def _find_template(folder: Path) -> str | None:
    own = folder / "chat_template.jinja"
    if own.is_file():
        try:
            return own.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise DamagedError(f"{own} is damaged: {error}") from None
    for name in (SETTINGS, "chat_template.json"):
        given = _read_table(folder / name).get("chat_template")
        if isinstance(given, list):
            given = {each.get("name"): each.get("template") for each in given if isinstance(each, dict)}
        if isinstance(given, dict):
            given = _choose_default(given, where=folder / name)
        if isinstance(given, str):
            return given
        if given is not None:
            raise DamagedError(f"{folder / name} is damaged: chat_template is neither a text nor several by name")
    return None


def _choose_default(templates: dict[Any, Any], *, where: Path) -> Any:
    """The template named `default`; other templates (for tools) are skipped with a warning."""
    others = ", ".join(str(name) for name in templates if name != "default")
    if others:
        warnings.warn(f"{where}: the chat templates {others} are left out; only default is kept", stacklevel=5)
    return templates.get("default")


def export_chat(run: Path, folder: Path, tokenizer: Tokenizer) -> None:
    """Write the chat template of a run, with its begin and end tokens, into a folder for `transformers`."""
    if not (run / FILE).is_file():
        return
    chat = ChatTemplate.load(run)
    settings = {name: value for name, value in _read_table(folder / SETTINGS).items() if name not in ROLES}
    write_json(folder / SETTINGS, {**settings, **chat.special_tokens, "chat_template": chat.text})
    write_json(folder / NAMES, dict(chat.special_tokens))
    config = _read_table(folder / "config.json")
    ids = {name: config[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id") if name in config}
    end = tokenizer.engine.token_to_id(chat.special_tokens.get("eos_token", ""))
    if end is not None:
        ids["eos_token_id"] = sorted({end, tokenizer.boundary})
    write_json(folder / "generation_config.json", ids)


def _read_table(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    content = read_json(path)
    if not isinstance(content, dict):
        raise DamagedError(f"{path} is damaged: it is not a table of settings")
    return content
