"""What stands around the texts of a task: our template, and the post-processor of their tokenizer.

Their tokenizer is told it twice, for one text and for two; in "cls $A sep" and "cls $A sep $B:1 sep:1" the words are
our names for special tokens, and the numbers are segments. Ours says both at once: "cls:0 a:0 sep:0 [b:1 sep:1]".
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from itertools import takewhile
from typing import Any

from lmlab.interop.hf_special_tokens import token_name
from lmlab.models import System
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.frames import NEXT_TOKEN, NO_BOUNDARY, Frame, make_frame, parse_template

Steps = tuple[str, ...]


def split_template(template: str, *, segments: bool = True) -> tuple[str, str]:
    """How their tokenizer is told a template of ours: around one text, and around two."""
    slots = parse_template(template)
    letters = {slot.name for slot in slots if slot.is_part}
    if not letters <= {"a", "b"}:
        raise ValueError(
            f"the frame {template!r} has the parts {', '.join(sorted(letters))}; transformers has a and b only"
        )

    def tell(parts: str) -> str:
        steps = []
        for slot in slots:
            if slot.owner in ("", *parts):
                name = f"${slot.name.upper()}" if slot.is_part else slot.name
                steps.append(f"{name}:{slot.segment}" if segments and slot.segment else name)
        return " ".join(steps)

    return tell("a"), tell("ab")


def read_template(tokenizer: Tokenizer) -> tuple[str, str] | None:
    """What their tokenizer puts around one text and two, in our names; None where it puts nothing there."""
    names = {tokenizer.boundary: "boundary"}
    names |= {tokenizer.special(role): role for role in ("cls", "sep") if tokenizer.has_special(role)}
    for each in _processors(tokenizer):
        if each["type"] == "TemplateProcessing":
            return _tell(each["single"], tokenizer, names), _tell(each["pair"], tokenizer, names)
        if each["type"] == "BertProcessing":
            return "cls $A sep", "cls $A sep $B:1 sep:1"
        if each["type"] == "RobertaProcessing":
            return "cls $A sep", "cls $A sep sep $B sep"
    return None


def _processors(tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """The steps of the post-processor, as the file has them."""
    processor: dict[str, Any] = json.loads(tokenizer.engine.to_str())["post_processor"] or {"processors": []}
    steps: list[dict[str, Any]] = processor.get("processors", [processor])
    return steps


def find_frame(tokenizer: Tokenizer, system: System) -> dict[str, str]:
    """The frame of a task for which a folder of theirs was trained: what its tokenizer puts around a text.

    Where the tokenizer says nothing, as in old folders, it is the system's default; but one that reads
    from left to right is given nothing but the text, as `transformers` does.
    """
    found, own = read_template(tokenizer), dict(system.task.frame)
    if "source" in own:
        return shift_frame(join_template(*found) if found is not None else own["source"])
    if found is not None:
        return {"tokens": join_template(*found)}
    return own if "cls" in " ".join(own.values()) else {"tokens": "a b"}


def import_frame(tokenizer: Tokenizer, system: System, config: Any, settings: Mapping[str, Any]) -> Frame | None:
    """What stands around the texts of an imported model, as its tokenizer's files say; None where the default is right.

    `settings` are those of `read_token_settings`. A model that predicts the next token reads what its tokenizer puts
    before a text: a boundary, or nothing. An encoder-decoder reads a source as its tokenizer frames one text.
    """
    if dict(system.frame) == dict(NEXT_TOKEN):
        before = _puts_before(tokenizer)
        opening = before if before is not None else _find_opening(tokenizer, config.vocabulary, settings)
        puts = before is not None or (settings.get("add_bos_token") is True and opening is not None)
        specials = {} if opening is None else {"boundary": opening}
        return Frame(templates=dict(NEXT_TOKEN if puts else NO_BOUNDARY), specials={"tokens": specials})
    if "source" in system.frame and (found := read_template(tokenizer)) is not None:
        source = " ".join(map(_word, found[0].split()))
        own, frame = (
            make_frame({**system.frame, **more}, tokenizer, start=getattr(config, "start", None))
            for more in ({}, {"source": source})
        )
        return None if own.row(a=[0])["source"] == frame.row(a=[0])["source"] else frame
    return None


def _puts_before(tokenizer: Tokenizer) -> int | None:
    """The token that their tokenizer puts before a text; None where it puts nothing there."""
    before: list[int] = []
    for each in _processors(tokenizer):
        if each["type"] in ("BertProcessing", "RobertaProcessing"):
            before = [each["cls"][1]]
        elif each["type"] == "TemplateProcessing":
            names = takewhile(lambda step: "Sequence" not in step, each["single"])
            before = [token for step in names for token in each["special_tokens"][step["SpecialToken"]["id"]]["ids"]]
    if len(before) > 1:
        shown = ", ".join(map(tokenizer.show, before))
        warnings.warn(f"the tokenizer puts {shown} before a text; lmlab puts only the first there", stacklevel=4)
    return before[0] if before else None


def _find_opening(tokenizer: Tokenizer, rows: int, settings: Mapping[str, Any]) -> int | None:
    """The token with which an empty text begins: one that the model was trained with, never a new one."""
    named = tokenizer.engine.token_to_id(token_name(settings.get("bos_token")))
    numbers = settings.get("bos_token_id", ())
    added = tokenizer.engine.get_added_tokens_decoder()
    special = [number for number in numbers if number in added and added[number].special]
    ends = [] if tokenizer.has_new_boundary else [tokenizer.boundary]
    return next((token for token in (named, *special, *ends, *numbers) if token is not None and token < rows), None)


def shift_frame(source: str) -> dict[str, str]:
    """The frame of an encoder-decoder whose decoder is given the source as well, each token one place later."""
    both = split_template(source)
    if any(text.split()[-1].startswith("$") for text in both):
        raise ValueError(f"{source!r} needs a special token at its end, from whose place a decoder is read")
    single, pair = (f"start {text.rpartition(' ')[0]}" for text in both)
    return {"source": source, "tokens": join_template(single, pair)}


def same_frame(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether two frames put the same around one text and around two."""
    return one.keys() == other.keys() and all(split_template(one[key]) == split_template(other[key]) for key in one)


def _tell(steps: list[dict[str, Any]], tokenizer: Tokenizer, names: Mapping[int, str]) -> str:
    told = []
    for step in steps:
        ((what, content),) = step.items()
        name = f"${content['id']}"
        if what == "SpecialToken":
            token = tokenizer.engine.token_to_id(content["id"])
            if token is None or token not in names:
                raise ValueError(f"the tokenizer puts {content['id']} around a text: lmlab has cls, sep and boundary")
            name = names[token]
        told.append(f"{name}:{content['type_id']}" if content["type_id"] else name)
    return " ".join(told)


def join_template(single: str, pair: str) -> str:
    """Our template of what stands around one text and around two; a ValueError where it cannot say both."""
    alone, both = tuple(single.split()), tuple(pair.split())
    first, second = _place(both, "$A"), _place(both, "$B")
    before, after = alone[: _place(alone, "$A")], alone[_place(alone, "$A") + 1 :]
    middle, end = both[first + 1 : second], both[second + 1 :]
    steps: Steps
    if both[:first] != before or first > second:
        raise ValueError(f"{single!r} and {pair!r} begin differently, which a frame of lmlab cannot say")
    for near in range(len(after), -1, -1):  # what follows one text may stand after the first of two, or after both
        rest = len(end) - (len(after) - near)
        if middle[:near] == after[:near] and rest >= 0 and end[rest:] == after[near:]:
            inner = ("[", *middle[near:], both[second], *end[:rest], "]")
            steps = (*before, both[first], *after[:near], *inner, *after[near:])
            break
    else:
        raise ValueError(f"{single!r} does not end as {pair!r} does, which a frame of lmlab cannot say")
    told_apart = any(":" in step for step in steps)
    words = [
        step if step in "[]" else _word(step) + (f":{step.partition(':')[2] or 0}" if told_apart else "")
        for step in steps
    ]
    return " ".join(words).replace("[ ", "[").replace(" ]", "]")


def _place(steps: Steps, part: str) -> int:
    found = [place for place, step in enumerate(steps) if step.partition(":")[0] == part]
    if len(found) != 1:
        raise ValueError(f"{' '.join(steps)!r} needs {part} once")
    return found[0]


def _word(step: str) -> str:
    name = step.partition(":")[0]
    return name[1:].lower() if name.startswith("$") else name
