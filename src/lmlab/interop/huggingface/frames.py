"""Convert frames (the special tokens around texts) to and from the post-processor of a Hugging Face tokenizer.

The post-processor has one template for one text and another for two. In "cls $A sep" and "cls $A sep $B:1 sep:1" the
words are lmlab's names for special tokens, and the numbers are segments. One frame describes both:
"cls:0 a:0 sep:0 [b:1 sep:1]".
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from itertools import takewhile
from typing import Any

from lmlab.interop.huggingface.special_tokens import token_name
from lmlab.models import System
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.frames import NEXT_TOKEN, NO_BOUNDARY, Frame, make_frame, parse_template

Steps = tuple[str, ...]


def split_template(template: str, *, segments: bool = True) -> tuple[str, str]:
    """Convert a frame to templates of the post-processor: for one text, and for two."""
    slots = parse_template(template)
    letters = {slot.name for slot in slots if slot.is_part}
    if not letters <= {"a", "b"}:
        raise ValueError(
            f"the frame {template!r} has the parts {', '.join(sorted(letters))}; transformers has a and b only"
        )

    def template_for(parts: str) -> str:
        steps = []
        for slot in slots:
            if slot.owner in ("", *parts):
                name = f"${slot.name.upper()}" if slot.is_part else slot.name
                steps.append(f"{name}:{slot.segment}" if segments and slot.segment else name)
        return " ".join(steps)

    return template_for("a"), template_for("ab")


def read_template(tokenizer: Tokenizer) -> tuple[str, str] | None:
    """The templates of the post-processor for one text and two, in lmlab's names; None if there is none."""
    names = {tokenizer.boundary: "boundary"}
    names |= {tokenizer.special(role): role for role in ("cls", "sep") if tokenizer.has_special(role)}
    for each in _processors(tokenizer):
        if each["type"] == "TemplateProcessing":
            return _format(each["single"], tokenizer, names), _format(each["pair"], tokenizer, names)
        if each["type"] == "BertProcessing":
            return "cls $A sep", "cls $A sep $B:1 sep:1"
        if each["type"] == "RobertaProcessing":
            return "cls $A sep", "cls $A sep sep $B sep"
    return None


def _processors(tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """The steps of the post-processor, as in the file."""
    processor: dict[str, Any] = json.loads(tokenizer.engine.to_str())["post_processor"] or {"processors": []}
    steps: list[dict[str, Any]] = processor.get("processors", [processor])
    return steps


def find_frame(tokenizer: Tokenizer, system: System) -> dict[str, str]:
    """The frame of a task of an imported model: the special tokens that its tokenizer adds to a text.

    If the tokenizer has no post-processor, as in old folders, it is the model's default; but models that read from left
    to right get only the text, as in `transformers`.
    """
    found, own = read_template(tokenizer), dict(system.task.frame)
    if "source" in own:
        return shift_frame(join_template(*found) if found is not None else own["source"])
    if found is not None:
        return {"tokens": join_template(*found)}
    return own if "cls" in " ".join(own.values()) else {"tokens": "a b"}


def import_frame(tokenizer: Tokenizer, system: System, config: Any, settings: Mapping[str, Any]) -> Frame | None:
    """The frame of an imported model, from its tokenizer's files; None if the default is right.

    `settings` are those of `read_token_settings`. A model that predicts the next token reads the token that its
    tokenizer adds before a text, if any. An encoder-decoder reads a source as its tokenizer frames one text.
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
    """The token that the tokenizer adds before a text; None if it adds none."""
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
    """The first token of an empty text: one that the model was trained with, never a new one."""
    named = tokenizer.engine.token_to_id(token_name(settings.get("bos_token")))
    numbers = settings.get("bos_token_id", ())
    added = tokenizer.engine.get_added_tokens_decoder()
    special = [number for number in numbers if number in added and added[number].special]
    ends = [] if tokenizer.has_new_boundary else [tokenizer.boundary]
    return next((token for token in (named, *special, *ends, *numbers) if token is not None and token < rows), None)


def shift_frame(source: str) -> dict[str, str]:
    """The frame of an encoder-decoder whose decoder reads the source too, shifted by one position."""
    both = split_template(source)
    if any(text.split()[-1].startswith("$") for text in both):
        raise ValueError(f"{source!r} needs a special token at its end, where the decoder's vector is read")
    single, pair = (f"start {text.rpartition(' ')[0]}" for text in both)
    return {"source": source, "tokens": join_template(single, pair)}


def same_frame(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether two frames add the same tokens around one text and around two."""
    return one.keys() == other.keys() and all(split_template(one[key]) == split_template(other[key]) for key in one)


def _format(steps: list[dict[str, Any]], tokenizer: Tokenizer, names: Mapping[int, str]) -> str:
    words = []
    for step in steps:
        ((what, content),) = step.items()
        name = f"${content['id']}"
        if what == "SpecialToken":
            token = tokenizer.engine.token_to_id(content["id"])
            if token is None or token not in names:
                raise ValueError(f"the tokenizer puts {content['id']} around a text: lmlab has cls, sep and boundary")
            name = names[token]
        words.append(f"{name}:{content['type_id']}" if content["type_id"] else name)
    return " ".join(words)


def join_template(single: str, pair: str) -> str:
    """Combine the templates for one text and two into a frame; a ValueError if no frame describes both."""
    alone, both = tuple(single.split()), tuple(pair.split())
    first, second = _step_index(both, "$A"), _step_index(both, "$B")
    before, after = alone[: _step_index(alone, "$A")], alone[_step_index(alone, "$A") + 1 :]
    middle, end = both[first + 1 : second], both[second + 1 :]
    steps: Steps
    if both[:first] != before or first > second:
        raise ValueError(f"{single!r} and {pair!r} begin differently, which a frame of lmlab cannot express")
    for near in range(
        len(after), -1, -1
    ):  # tokens after a single text may come after the first of two texts, or after both
        rest = len(end) - (len(after) - near)
        if middle[:near] == after[:near] and rest >= 0 and end[rest:] == after[near:]:
            inner = ("[", *middle[near:], both[second], *end[:rest], "]")
            steps = (*before, both[first], *after[:near], *inner, *after[near:])
            break
    else:
        raise ValueError(f"{single!r} does not end as {pair!r} does, which a frame of lmlab cannot express")
    has_segments = any(":" in step for step in steps)
    words = [
        step if step in "[]" else _word(step) + (f":{step.partition(':')[2] or 0}" if has_segments else "")
        for step in steps
    ]
    return " ".join(words).replace("[ ", "[").replace(" ]", "]")


def _step_index(steps: Steps, part: str) -> int:
    found = [position for position, step in enumerate(steps) if step.partition(":")[0] == part]
    if len(found) != 1:
        raise ValueError(f"{' '.join(steps)!r} needs {part} once")
    return found[0]


def _word(step: str) -> str:
    name = step.partition(":")[0]
    return name[1:].lower() if name.startswith("$") else name
