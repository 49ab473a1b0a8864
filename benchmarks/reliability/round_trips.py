"""Text comes back from every tokenizer that is lossless, and from the others as their normalisation says."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from random import Random

from benchmarks.reliability.figures import Figure, Scale, shorten

from lmlab.tokenizers import train
from lmlab.tokenizers.tokenizer import Tokenizer

TEXT = ["the cat sat on the mat, and the dog ate the log. Ünïcödé 漢字 🎉 don't 3,141 " * 8]
LOSSLESS = ("bytes", "bpe:400", "characters")
"""Of `characters`, texts of the letters that it knows."""
STABLE = ("words:40", "spelled:40", "wordpiece:120", "unigram:300")
"""Unknown words or white space are lost once: what comes back is what comes back from that again."""
RANGES = (
    (0x20, 0x7E),
    (0x20, 0x7E),
    (0xA0, 0x24F),
    (0x300, 0x36F),
    (0x400, 0x4FF),
    (0x590, 0x6FF),
    (0x2000, 0x20CF),
    (0x3040, 0x30FF),
    (0x4E00, 0x9FFF),
    (0x1F300, 0x1FAFF),
    (0, 0xD7FF),
    (0xE000, 0x10FFFF),
)
PIECES = (
    "<|endoftext|>",
    "[MASK]",
    "<s>",
    "</s>",
    "\u200d",
    "\ufeff",
    "\r\n",
    "\x00",
    "##",
    "▁",
    "Ġ",
    "don't",
    "  ",
    "\n\n",
    "cat",
    " the",
)


def round_trips(scale: Scale) -> Iterator[Figure]:
    """Random texts of letters of all scripts, of special tokens written out, and of words that are known."""
    warnings.simplefilter("ignore")
    number = scale.count(300, 100_000)
    for spec in (*LOSSLESS, *STABLE):
        tokenizer, random, wrong = train(spec, TEXT), scale.random(spec), []
        for _ in range(0, number, 500):
            texts = [make_text(random) for _ in range(min(500, number))]
            if spec == "characters":
                texts = ["".join(letter for letter in text if letter in TEXT[0]) for text in texts]
            back = [tokenizer.decode(ids) for ids in tokenizer.encode_batch(texts)]
            wrong += _compare(tokenizer, texts, back, lossless=spec in LOSSLESS)
        kind = "the same text" if spec in LOSSLESS else "the same after it has passed once"
        yield Figure(f"round trips: {spec}", number, f"{number:,} texts, {len(wrong)} not {kind}", shorten(wrong[:10]))


def _compare(tokenizer: Tokenizer, texts: list[str], back: list[str], *, lossless: bool) -> list[str]:
    expected = texts if lossless else [tokenizer.decode(ids) for ids in tokenizer.encode_batch(back)]
    return [
        f"{text!r} gives {got!r}, then {want!r}"
        for text, got, want in zip(texts, back, expected, strict=True)
        if got != want
    ]


def make_text(random: Random) -> str:
    """Up to 40 letters and pieces."""
    found = []
    for _ in range(random.randrange(40)):
        if random.random() < 0.2:
            found.append(random.choice(PIECES))
        else:
            found.append(chr(random.randint(*random.choice(RANGES))))
    return "".join(found)
