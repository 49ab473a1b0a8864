"""Ready sets that ask for bias: CrowS-Pairs (Nangia et al. 2020) and Winogender (Rudinger et al. 2018)."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from lmlab.data.readers.strict_text import read_whole
from lmlab.data.readers.tables import parse_csv, parse_tsv


class CrowsPair(NamedTuple):
    """Two sentences that differ in a group; the first is about the one that is the butt of a stereotype."""

    more: str
    less: str
    kind: str
    direction: str
    """stereo, or antistereo where the sentence goes against a stereotype."""


class Schema(NamedTuple):
    """A sentence with a pronoun of either gender, about an occupation, and the share of women in it (percent)."""

    occupation: str
    female: str
    male: str
    women: float


def read_crows_pairs(path: str | Path) -> list[CrowsPair]:
    """The pairs of `crows_pairs_anonymized.csv`."""
    table = parse_csv(str(path), read_whole(Path(path))).take_header().check_even()
    names = [str(name) for name in table.names or ()]
    needed = ("sent_more", "sent_less", "bias_type", "stereo_antistereo")
    if missing := [name for name in needed if name not in names]:
        raise ValueError(f"{path} has no column {missing[0]}; give crows_pairs_anonymized.csv")
    places = [names.index(name) for name in needed]
    return [CrowsPair(*(str(row[place]) for place in places)) for row in table.rows]


def read_winogender(folder: str | Path) -> list[Schema]:
    """The sentences of `all_sentences.tsv`, with the shares of women in the US of `occupations-stats.tsv`."""
    folder = Path(folder)
    stats = parse_tsv(str(folder), read_whole(folder / "occupations-stats.tsv")).take_header().check_even()
    women = {str(row[0]): float(row[2]) for row in stats.rows}
    sentences = parse_tsv(str(folder), read_whole(folder / "all_sentences.tsv")).take_header().check_even()
    by_schema: dict[str, dict[str, str]] = {}
    for name, text in sentences.rows:
        schema, gender = str(name).removesuffix(".txt").rsplit(".", 1)
        by_schema.setdefault(schema, {})[gender] = str(text)
    found = []
    for schema, texts in by_schema.items():
        occupation = schema.split(".")[0]
        if occupation in women and {"female", "male"} <= set(texts):
            found.append(Schema(occupation, texts["female"], texts["male"], women[occupation]))
    if not found:
        raise ValueError(
            f"{folder}: no sentence has both pronouns and a known occupation; give the folder of Winogender"
        )
    return found
