"""Fingerprints of data: those of version 0.5, so that its caches and run directories go on being found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lmlab.data import make_config, prepare
from lmlab.tokenizers import train

KNOWN = {
    "text": (
        "027068c08f415bc55c6070b4c6e41c809a18815455aa6455bbe51314f25b1965",
        "5e68452d45f9964291c039bbb55a678cdd4c9fa67461f4c5fa7df0c663418a89",
        "5ae1b44fe17195a10439807fa2299611",
    ),
    "languages": (
        "98d1671e2adf7ea3301f25cd540da9ca730c01c1d81641e22d82e5e7565a2622",
        "c01181b7ddefa1793c74e9d501c0353997552cf88035396be582b574f7f2325e",
        "88bb709ff18e7d5167c1e31043bd5a41",
    ),
    "pairs": (
        "600f787e4b637edbe3d5be9b8f3dc76462450a46b33a37fefeb0f76947274ee8",
        "0b3c0245001a66c921d5f106d4e7a047be9e592a627e74401b7a35826afd2863",
        "32bd9d6ca5ef88b1b636445ef4aad550",
    ),
    "examples": (
        "6faaf41c301aa3da25e929f9bf09e91d537471d1662a8e2656480c20cf7675c9",
        "8174635519aebbc6c270e01757a40d08cfc5b65eb3247909e534714de3b2e1ae",
        "5471a13c9ac7d1e18107358969f8ee32",
    ),
}
"""The fingerprint of a corpus, that of its data alone, and the name of its folder in the cache, written by 0.5."""


@pytest.mark.parametrize("kind", KNOWN)
def test_a_cache_of_version_0_5_is_found(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LMLAB_CACHE", str(tmp_path / "cache"))
    first, second, table = tmp_path / "a.txt", tmp_path / "b.txt", tmp_path / "c.tsv"
    first.write_text("".join(f"line {n} of the text\n" for n in range(200)))
    second.write_text("".join(f"zeile {n} des textes\n" for n in range(200)))
    labels = [("good", "pos") if n % 2 else ("bad", "neg") for n in range(40)]
    table.write_text("text\tlabel\n" + "".join(f"word{n} is {a}\t{b}\n" for n, (a, b) in enumerate(labels)))
    values: dict[str, dict[str, Any]] = {
        "text": {"text": str(first)},
        "languages": {"text": [f"en={first}", f"de={second}"]},
        "pairs": {"source": str(first), "target": str(second)},
        "examples": {"examples": str(table)},
    }
    processor = train("bytes", ["a"]) if kind == "examples" else "words:50"
    corpus = prepare(make_config(values[kind]), processor=processor)
    assert (corpus.fingerprint, corpus.text_fingerprint, corpus.folder.name) == KNOWN[kind]
