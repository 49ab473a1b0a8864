"""report.html: the comparison in one file that needs nothing else, for somebody who was not there."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from lmlab.compare.leaderboard import Board, headline, join, read_rankings, verdict
from lmlab.compare.ranking import Ranking
from lmlab.compare.sections import TABS, Passage, make_sections
from lmlab.pages.page import fill_page

DOES = {"next token": "predict the next token", "blanks": "fill blanks"}


def make_report(board: Board, passages: Mapping[str, Passage]) -> str:
    """The whole page; `passages` are the pieces of the held-out passage with the bits of each, by system."""
    rankings = read_rankings(board)
    return fill_page(
        Path(__file__).with_name("page.html"),
        tab_rules=_tab_rules(len(TABS)),
        title=f"{sum(len(ranking.ranked) for ranking in rankings)} language models compared",
        headline=escape(headline(rankings[0])),
        verdict=escape(verdict(rankings[0])),
        lead=_lead(board, rankings),
        rankings="".join(make_sections(ranking, board, passages, first=ranking is rankings[0]) for ranking in rankings),
        notes="".join(f"<li>{escape(note)}</li>" for note in board["notes"]),
        conditions=_conditions(board["conditions"], rankings),
        versions=_facts({**board["conditions"]["versions"], **board["conditions"]["machine"]}),
    )


def _lead(board: Board, rankings: Sequence[Ranking]) -> str:
    conditions = board["conditions"]
    text = conditions["text"]
    lead = (
        f"{len(conditions['systems'])} systems learnt from the same {_bytes(text['train']['bytes'])} of text, each "
        f"with the same budget of <b>{escape(_spaced(conditions['budget']))}</b>, and were then tested on "
        f"{_bytes(text['test']['bytes'])} that none of them had seen."
    )
    if len(rankings) > 1:
        names = join([entry["name"] for entry in rankings[1].entries])
        lead += (
            f" This is about those that {DOES[rankings[0].predicts]}. Others {DOES[rankings[1].predicts]} "
            f"({escape(names)}): that is another question, so they are ranked apart, further below."
        )
    return lead


def _spaced(budget: str) -> str:
    return re.sub(r"(?<=[\dkKMGBTP])(?=(tokens?|steps?|epochs?|flops)$)", " ", budget)


def _bytes(count: float) -> str:
    for size, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:g} bytes"


def _tab_rules(most: int) -> str:
    """The n-th tab shows the n-th figure."""
    rule = ".tabs input:nth-of-type({n}):checked ~ figure:nth-of-type({n}) {{ display: block }}"
    return "\n".join(rule.format(n=n) for n in range(1, most + 1))


def _conditions(conditions: Mapping[str, Any], rankings: Sequence[Ranking]) -> str:
    data, text = conditions["data"], conditions["text"]
    specs = dict.fromkeys(conditions["tokenizers"].values())
    tokenizer = ", ".join(f"{spec} ({conditions['vocabularies'][spec]:,} types)" for spec in specs)
    if len(specs) > 1:
        tokenizer = ", ".join(f"{system}: {spec}" for system, spec in conditions["tokenizers"].items())
    masked = any(ranking.predicts == "blanks" for ranking in rankings)
    part = f"{conditions['part']['documents']:,} documents, {conditions['part']['bytes']:,} bytes of the test text"
    facts = {
        "text": ", ".join(data["text"]),
        "documents are": data["documents"],
        **{
            f"{name} text": f"{part['documents']:,} documents, {part['bytes']:,} bytes, {part['words']:,} words"
            for name, part in text.items()
        },
        **({"pseudo-log-likelihood of": part} if masked else {}),
        "split": "texts of their own"
        if data["valid"] or data["test"]
        else ", ".join(f"{share:g}" for share in data["split"]),
        "tokenizer": tokenizer,
        "budget of each system": conditions["budget"],
        "size": conditions["size"] or "the default of each system",
        "parameters": f"matched to {conditions['matched_parameters']:,}"
        if conditions["matched_parameters"]
        else "as the size has them",
        "seeds": ", ".join(map(str, conditions["seeds"])),
        "learning rates": "chosen by --sweep" if conditions["sweep"] else "defaults of each family",
        "other settings": ", ".join(f"train.{key}={value}" for key, value in conditions["train"].items()) or "none",
        "fingerprint of the text": conditions["text_sha256"],
    }
    return _facts(facts)


def _facts(facts: Mapping[str, Any]) -> str:
    return "".join(f"<dt>{escape(name)}</dt><dd>{escape(str(value))}</dd>" for name, value in facts.items())
