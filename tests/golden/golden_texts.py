"""Made-up texts and pictures for the golden losses: small grammars, and a generator of numbers that never changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

WHO = (("the cat", "die katze"), ("a dog", "ein hund"), ("the child", "das kind"), ("our king", "unser könig"))
DOES = (("sees", "sieht"), ("likes", "mag"), ("finds", "findet"), ("follows", "verfolgt"), ("calls", "ruft"))
WHAT = (("the moon", "den mond"), ("a tree", "einen baum"), ("the red house", "das rote haus"), ("nothing", "nichts"))
WHEN = (("", ""), ("at night", "in der nacht"), ("every day", "jeden tag"), ("now", "jetzt"))
NAMES = [a + b + c for a in ("ma", "li", "ro", "ta") for b in ("la", "ni", "so") for c in ("n", "ra", "x", "")]


def numbers(seed: int) -> Iterator[int]:
    """A linear congruential generator (Knuth, MMIX): the same numbers wherever it runs."""
    state = seed
    while True:
        state = (6364136223846793005 * state + 1442695040888963407) % 2**64
        yield state >> 33


def sentences(count: int, *, seed: int) -> list[tuple[str, str]]:
    """Sentences of three to eight words, in English and in German."""
    draw = numbers(seed)
    found = []
    for _ in range(count):
        parts = [choices[next(draw) % len(choices)] for choices in (WHO, DOES, WHAT, WHEN)]
        if next(draw) % 3 == 0:  # a name; some are frequent and most are rare
            parts[0] = (NAMES[next(draw) % len(NAMES) * (next(draw) % len(NAMES)) // len(NAMES)],) * 2
        english, german = (" ".join(filter(None, words)) for words in zip(*parts, strict=True))
        found.append((f"{english} .", f"{german} ."))
    return found


def write_corpora(folder: Path) -> dict[str, str]:
    """Files by name: documents of seven sentences in two languages, the same as pairs of lines, and pictures."""
    pairs = sentences(560, seed=1)
    files = {}
    for side, language in enumerate(("en", "de")):
        lines = [pair[side] for pair in pairs]
        documents = ["\n".join(lines[start : start + 7]) for start in range(0, len(lines), 7)]
        for name, content in ((language, "\n\n".join(documents)), (f"{language}_lines", "\n".join(lines))):
            path = folder / f"{name}.txt"
            path.write_text(content + "\n", encoding="utf-8")
            files[name] = str(path)
    return {**files, **write_pictures(folder)}


def write_pictures(folder: Path) -> dict[str, str]:
    """Captions of, and questions about, 100 pictures of 8 × 8 pixels: words decide the colours of two halves."""
    draw, captions, questions = numbers(2), ["picture\tcaption"], ["picture\tquestion\tanswer"]
    for number in range(100):
        who, what = next(draw) % len(WHO), next(draw) % len(WHAT)
        halves = [60 * who, 60 * what]
        pixels = bytes(halves[row // 32] + next(draw) % 40 for row in range(64) for _ in range(3))
        (folder / f"{number}.ppm").write_bytes(b"P6 8 8 255\n" + pixels)
        does = DOES[next(draw) % len(DOES)][0]
        captions.append(f"{number}.ppm\t{WHO[who][0]} {does} {WHAT[what][0]}")
        questions.append(f"{number}.ppm\twhat is it that {WHO[who][0]} {does}\t{WHAT[what][0]}")
    found = {}
    for name, rows in (("captions", captions), ("questions", questions)):
        (folder / f"{name}.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
        found[name] = str(folder / f"{name}.tsv")
    return found
