"""Examples for the fields of the views: sentences, words and pairs from the held-out text of a run, in its language."""

from __future__ import annotations

import re
import string
from collections import Counter, OrderedDict
from itertools import combinations
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Query
from starlette.responses import Response

from lmlab.studio.held_out_access import HeldOutReader
from lmlab.studio.responses import respond
from lmlab.studio.workers import HeavyRoute

SENTENCES = 12
SHORTEST, LONGEST = 12, 140
"""Characters of a sentence that serves as an example."""
FEWEST_USES = 4
PUNCTUATION = string.punctuation + "«»„“”‚‘’·;…"
MOST_WORDS, MOST_TEMPLATES = 12, 4
WORD = re.compile(r"[^\W\d_]{4,}")
HAN = re.compile(r"[\u4e00-\u9fff]+|[\u30a1-\u30fa\u30fc]{2,}")
"""Runs of Han characters, or of Katakana."""
LISTED = """
that this with from have they were been which when what there their would will your could about into than then
them some only other very upon such said more after before where these those should being every though over
eine einen einem einer eines nicht auch sich sind wird werden wurde haben hatte dass diese dieser dieses diesem
diesen oder aber wenn noch nach über unter durch sein seine seinen seinem seiner ihre ihren ihrem ihrer mich dich
kann schon sehr mehr etwas einige mehrere während zwei drei vier fünf three four five
dans pour avec plus cette mais elle nous vous leur leurs tout tous comme être avait était sont même sans aussi
para como pero este esta estos estas había cuando donde todo todos sobre entre hasta desde porque también muito
mais isso esse essa pela pelo quando onde
della delle degli nella sono come anche questo questa quando dove voor niet zijn maar naar door haar werd worden
было была были этот этого когда если меня тебя него только
"""
FUNCTION_WORDS = frozenset(LISTED.split())
"""Frequent words that carry little meaning, in eight languages of Europe."""
MOST_KEPT = 64
"""Runs whose examples stay in memory."""


class Examples(NamedTuple):
    """What the fields of the views begin with; all empty where the held-out text of a run may not be read."""

    prompt: str = ""  # the first half of a sentence
    sentences: list[str] = []  # noqa: RUF012 (never changed)
    words: list[str] = []  # noqa: RUF012  frequent words that carry meaning
    pairs: list[str] = []  # noqa: RUF012  "sentence | the same with two words exchanged"
    word: str = ""  # one of the words
    uses: list[str] = []  # noqa: RUF012  sentences with this word
    groups: list[str] = []  # noqa: RUF012  two words that occur between the same words
    templates: list[str] = []  # noqa: RUF012  sentences with {group} and {word} in them
    tagged: list[str] = []  # noqa: RUF012  sentences with a tag behind each word


def make_router(held_out: HeldOutReader) -> APIRouter:
    router, kept = APIRouter(route_class=HeavyRoute), OrderedDict[tuple[str, str], Examples]()

    @router.get("/examples")
    def examples(run: Annotated[str, Query(max_length=500)]) -> Response:
        try:
            key = (run, held_out.fingerprint(run))
            if key not in kept:
                kept[key] = make_examples(held_out.source_text(run))
        except ValueError:  # the page then shows its own example
            return respond(Examples()._asdict())
        while len(kept) > MOST_KEPT:
            kept.popitem(last=False)
        return respond(kept[key]._asdict())

    return router


def make_examples(text: str) -> Examples:
    """Examples from a text of any language."""
    sentences = find_sentences(text)
    if not sentences:
        return Examples()
    words = frequent_words(text)
    pairs = [f"{each} | {wrong}" for each in sentences if "|" not in each and (wrong := exchange_words(each)) != each]
    groups = find_alike(text, words)
    more = find_sentences(text, most=200)
    templates = make_templates(more, groups, words) if groups else []
    word, uses = find_uses(more, words)
    return Examples(
        first_half(sentences[0]),
        sentences,
        words[:MOST_WORDS],
        pairs[:4],
        word,
        uses,
        groups if templates else [],
        templates,
        [tag_words(each) for each in sentences if "/" not in each and " " in each][:8],
    )


def split_words(text: str) -> list[str]:
    """The words of a text that are likely to carry meaning: of four letters or more.

    Chinese and Japanese are written without spaces: there they are runs of Han characters or of Katakana.
    """
    spaced = WORD.findall(text)
    return HAN.findall(text) if 5 * len(HAN.findall(text)) > len(spaced) > 0 and HAN.search(text) else spaced


def frequent_words(text: str) -> list[str]:
    """The most frequent words of a text that carry meaning, as they are written most often."""
    forms = Counter(split_words(text))
    words = Counter[str]()
    for form, times in forms.items():
        words[form.lower()] += times
    usual: dict[str, str] = {}
    for form, _ in forms.most_common():
        usual.setdefault(form.lower(), form)
    found = [usual[word] for word, times in words.most_common(120) if times >= 3 and word not in FUNCTION_WORDS][:60]
    return found or [usual[word] for word, _ in words.most_common(3)]


def find_alike(text: str, words: list[str]) -> list[str]:
    """The two frequent words that occur most often between the same words; none if there are no such two."""
    contexts: dict[str, Counter[tuple[str, str]]] = {word: Counter() for word in words}
    pieces = re.findall(r"\w+|[^\w\s]", text)
    for before, word, after in zip(pieces, pieces[1:], pieces[2:], strict=False):
        if word in contexts:
            contexts[word][before, after] += 1
    shared = {(one, other): (contexts[one] & contexts[other]).total() for one, other in combinations(words, 2)}
    best = max(shared, key=lambda pair: shared[pair], default=None)
    return list(best) if best is not None and shared[best] >= 2 else []


def find_uses(sentences: list[str], words: list[str]) -> tuple[str, list[str]]:
    """The first of the words that stands between spaces in several sentences, and these sentences."""
    inside = [(each, {part.strip(PUNCTUATION) for part in each.split()}) for each in sentences if "|" not in each]
    for word in words:
        uses = [each for each, parts in inside if word in parts]
        if len(uses) >= FEWEST_USES:
            return word, uses[:SENTENCES]
    return "", []


def make_templates(sentences: list[str], groups: list[str], words: list[str]) -> list[str]:
    """Sentences with one of two words replaced by {group}, and another frequent word by {word}."""
    found: list[str] = []
    for sentence in sentences:
        inside = [word for word in groups if re.search(rf"\b{re.escape(word)}\b", sentence)]
        others = [w for w in words if w not in groups and re.search(rf"\b{re.escape(w)}\b", sentence)]
        if len(inside) != 1 or not others or "{" in sentence or "}" in sentence:
            continue
        made = re.sub(rf"\b{re.escape(inside[0])}\b", "{group}", sentence, count=1)
        found.append(re.sub(rf"\b{re.escape(others[0])}\b", "{word}", made, count=1))
        if len(found) == MOST_TEMPLATES:
            break
    return found


def tag_words(sentence: str) -> str:
    """A sentence with a tag behind each word that can be seen in it: a capital letter, else its length."""
    cased = sentence.lower() != sentence.upper()

    def tag(word: str) -> str:
        if cased:
            return "UPPER" if word.lstrip("«»„“\"'(")[:1].isupper() else "LOWER"
        return "LONG" if len(word) > 4 else "SHORT"

    return " ".join(f"{word}/{tag(word)}" for word in sentence.split())


def find_sentences(text: str, *, most: int = SENTENCES) -> list[str]:
    """The first sentences of a text that are neither very short nor very long."""
    found: list[str] = []
    for line in text.splitlines():
        for sentence in re.split(r"(?<=[.!?])\s+|(?<=[。！？])", line):
            each = sentence.strip()
            letters = sum(character.isalpha() for character in each)
            if SHORTEST <= len(each) <= LONGEST and letters > 0.6 * len(each) and each not in found:
                found.append(each)
                if len(found) == most:
                    return found
    return found


def first_half(sentence: str) -> str:
    """The first half of a sentence, up to the end of a word."""
    words = sentence.split(" ")
    return " ".join(words[: max(1, len(words) // 2)]) if len(words) > 1 else sentence[: len(sentence) // 2]


def exchange_words(sentence: str) -> str:
    """The sentence with the two words in its middle exchanged: a wrong order in nearly every language."""
    words = sentence.split(" ")
    middle = len(words) // 2
    if len(words) >= 4:
        words[middle - 1], words[middle] = words[middle], words[middle - 1]
        return " ".join(words)
    runs = list(HAN.finditer(sentence))
    if len(words) > 1 or len(runs) < 2:
        return sentence
    first, second = runs[len(runs) // 2 - 1], runs[len(runs) // 2]
    between = sentence[first.end() : second.start()]
    return sentence[: first.start()] + second[0] + between + first[0] + sentence[second.end() :]
