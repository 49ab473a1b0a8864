"""Convert a Hugging Face `config.json` to settings and back."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from lmlab.interop.huggingface.table import NEEDED, Family, Only, Setting

TIED = Only("tie_word_embeddings", (True,))
COMMON = (
    Only("is_decoder", (False,)),
    Only("add_cross_attention", (False,)),
    Only("pruned_heads", ({}, None)),
    Only("quantization_config", (None,)),
    Only("auto_map", (None,)),
)
"""Options that any Hugging Face model may have and that change its results; they are not written."""


def read_settings(family: Family, config: Mapping[str, Any], *, where: str) -> dict[str, Any]:
    """The lmlab settings that a configuration gives."""
    values: dict[str, Any] = {**family.assumed, **family.fixed}
    for setting in family.settings:
        value = config.get(setting.theirs, setting.default)
        if value is NEEDED:
            raise ValueError(f"{where} lacks {setting.theirs}, which a {family.model_type} needs")
        value = setting.none if value is None else value
        _compare(setting, config, value, where=where)
        if setting.words is not None:
            if not isinstance(value, (str, bool)) or value not in setting.words:
                raise ValueError(f"{where}: {_refuse(setting.theirs, value, setting.words)}")
            value = setting.words[value]
        if setting.read is not None:
            value = setting.read(value)
        if setting.factor != 1 and isinstance(value, int):
            value *= setting.factor
        more = values[setting.plus] if isinstance(setting.plus, str) else setting.plus
        values[setting.ours] = value - more if isinstance(value, int) and isinstance(more, int) and more else value
    return values


def flatten(family: Family, config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration with the settings of its tables at the top, named by both: `text_config.hidden_size`."""
    tables = {name: config[name] for name in family.nested if isinstance(config.get(name), Mapping)}
    flat = {f"{table}.{name}": value for table, values in tables.items() for name, value in values.items()}
    return {**{name: value for name, value in config.items() if name not in family.nested}, **flat}


def nest(family: Family, config: Mapping[str, Any]) -> dict[str, Any]:
    """The nested configuration that `flatten` turns into this one."""
    nested: dict[str, Any] = {name: {} for name in family.nested}
    for name, value in config.items():
        table, _, own = name.partition(".")
        if table in family.nested and own:
            nested[table][own] = value
        else:
            nested[name] = value
    return nested


def check_options(family: Family, config: Mapping[str, Any], *, where: str) -> None:
    """Raise a ValueError that names each unsupported option with its allowed values."""
    problems = []
    for option in (*family.options, *_others(family, TIED, *COMMON)):
        value = config.get(option.theirs, option.default)
        choices = option.choices(config)
        if value is NEEDED or value in choices:
            continue
        if option.training:
            message = f"{option.theirs} = {value!r} is left out, which matters only for training"
            warnings.warn(f"{where}: {message} (lmlab has {choices[0]!r})", stacklevel=2)
        else:
            problems.append(_refuse(option.theirs, value, choices))
    if problems:
        raise ValueError(f"{where}: {'; '.join(problems)}")


def write_settings(family: Family, values: Mapping[str, Any]) -> dict[str, Any]:
    """The Hugging Face configuration for lmlab settings; a ValueError names what it cannot express."""
    for name, value in family.fixed.items():
        if values[name] != value:
            raise ValueError(_unsayable(family, name, values[name], value))
    config: dict[str, Any] = {"model_type": family.model_type, **family.constants}
    for setting in family.settings:
        value = values[setting.ours] if setting.written is None else setting.written(values)
        if setting.words is not None:
            value = _word(setting, value, family)
        if value is None:
            continue
        more = values[setting.plus] if isinstance(setting.plus, str) else setting.plus
        value = value + more if more else value
        if setting.factor != 1 and value % setting.factor:
            raise ValueError(
                f"{setting.ours} = {value} cannot be written for transformers: give a multiple of {setting.factor}"
            )
        value = value // setting.factor if setting.factor != 1 else value
        config |= dict.fromkeys((setting.theirs, *setting.also), value)
    for option in (*family.options, *_others(family, TIED)):
        config[option.theirs] = option.choices(config)[0]
    return config


def _others(family: Family, *options: Only) -> list[Only]:
    """The options of all families that this family does not define itself, as a setting or as an option."""
    own = {setting.theirs for setting in family.settings} | {option.theirs for option in family.options}
    return [option for option in options if option.theirs not in own]


def _compare(setting: Setting, config: Mapping[str, Any], value: Any, *, where: str) -> None:
    others = {name: config[name] for name in setting.also if config.get(name, value) != value}
    if others:
        given = ", ".join(f"{name} = {other!r}" for name, other in others.items())
        warnings.warn(
            f"{where}: {given} and {setting.theirs} = {value!r}: lmlab has one setting for them, "
            f"{setting.ours}, and uses the last one (it matters only for training)",
            stacklevel=2,
        )


def _word(setting: Setting, value: Any, family: Family) -> Any:
    assert setting.words is not None
    for theirs, ours in setting.words.items():
        if ours == value:
            return theirs
    raise ValueError(_unsayable(family, setting.ours, value, *dict.fromkeys(setting.words.values())))


def _unsayable(family: Family, name: str, value: Any, *allowed: Any) -> str:
    has = " or ".join(repr(choice) for choice in allowed)
    message = f"{name} = {value!r} cannot be written for transformers: its {family.model_type} has only {name} = {has}"
    if not isinstance(allowed[0], str):
        return message
    advice = f", {family.advice[name]}" if name in family.advice else ""
    return f"{message}; train with --set model.{name}={allowed[0]}{advice}"


def _refuse(name: str, value: Any, allowed: Iterable[Any]) -> str:
    return f"{name} = {value!r} is not supported (allowed: {' or '.join(repr(choice) for choice in allowed)})"
