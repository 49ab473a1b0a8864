"""One ranking as HTML: table, ties, charts, what the systems write or fill in, what surprises them, differences."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from lmlab.compare import surprisal
from lmlab.compare.charts import Chart, short, to_svg
from lmlab.compare.cloze import MASK
from lmlab.compare.curves import AHEAD
from lmlab.compare.leaderboard import Board, headline, verdict
from lmlab.compare.plots import choose_colours, cost_charts, curve_charts
from lmlab.compare.ranking import Entry, Ranking
from lmlab.models import LINEAGE
from lmlab.training.budget import parse_budget

TABS = {"tokens": "Tokens", "seconds": "Time", "flops": "FLOPs", "joules": "Energy", "parameters": "Parameters"}
PAGES = {"next token": "next_token.html", "blanks": "blanks.html"}
Passage = Sequence[tuple[str, float]]


def make_sections(ranking: Ranking, board: Board, passages: Mapping[str, Passage], *, first: bool) -> str:
    """All sections of a ranking; one that is not the `first` of the page has its own headline."""
    colours = choose_colours(ranking)
    curves, costs = curve_charts(ranking, colours), cost_charts(ranking, colours)
    unit = parse_budget(board["conditions"]["budget"]).unit
    curves.sort(key=lambda chart: not chart.name.endswith(f"curve-{unit}"))
    template = Path(__file__).with_name(PAGES[ranking.predicts]).read_text(encoding="utf-8")
    title = "" if first else f"<h1>{escape(headline(ranking))}</h1><p class=lead><b>{escape(verdict(ranking))}</b></p>"
    return Template(template).substitute(
        title=title,
        why=escape(board["blanks_ranking"]["why"]),
        leaderboard=_leaderboard(ranking, colours),
        ties=_ties(ranking),
        curves=_tabs(f"{ranking.predicts} curves", curves)
        if curves
        else "<p>No validation text was held out, so there are no curves.</p>",
        heading=_heading(ranking),
        costs=_tabs(f"{ranking.predicts} costs", costs),
        samples="".join(_shown(entry, board, colours) for entry in ranking.ranked),
        legend=surprisal.legend(),
        passages="".join(_passage(entry, passages, colours) for entry in ranking.ranked if entry["name"] in passages),
        matrix=_matrix(ranking),
    )


def _leaderboard(ranking: Ranking, colours: Mapping[str, str]) -> str:
    ranked = ranking.ranked
    widest = max([entry["high"] or ranking.score(entry) for entry in ranked], default=1.0)
    leading = ranking.leaders if ranked else []
    own = _columns(ranking)
    score = "bits per byte" if ranking.predicts == "next token" else "pseudo bits per byte"
    head = ["", "system", f"{score}: lower is better", "", *own, "parameters", "tokens read", "time", "energy, CO2e"]
    rows = []
    for rank, entry in enumerate(ranked, start=1):
        training = entry["training"]
        cells = [
            f'<td class="rank">{rank}</td>',
            f"<td class=what>{_name(entry, colours)}<small>{escape(_what(entry['kind']))}</small></td>",
            f'<td class="bar">{_bar(entry, ranking.score(entry), widest, colours[entry["name"]])}</td>',
            f"<td class=score><b>{ranking.score(entry):.3f}</b><small>{_interval(entry)}</small></td>",
            *(f"<td>{_cell(column, entry)}</td>" for column in own),
            f"<td>{short(entry['parameters'])}</td>",
            f"<td>{_number(training.get('tokens'))}</td>",
            f"<td>{_seconds(training.get('seconds'))}</td>",
            f"<td>{_energy(training)}</td>",
        ]
        rows.append(f'<tr class="{"lead" if entry["name"] in leading else ""}">{"".join(cells)}</tr>')
    rows += [_left_out(each["name"], "ranked apart", each["reason"], len(head) - 2) for each in ranking.apart]
    rows += [
        _left_out(entry["name"], "failed", entry["error"], len(head) - 2)
        for entry in ranking.entries
        if entry["status"] != "ok"
    ]
    cells = [f"<th>{cell}</th>" for cell in head]
    return f"<table><thead><tr>{''.join(cells)}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _columns(ranking: Ranking) -> list[str]:
    """The columns that only this ranking has; those in which nobody has a figure are left out."""
    wanted = {
        "perplexity": ("perplexity",),
        "hidden tokens": ("masked_accuracy",),
        "besides": ("pair_accuracy", "detection_accuracy"),
    }
    return [
        column
        for column, fields in wanted.items()
        if any(entry.get(field) is not None for entry in ranking.ranked for field in fields)
    ]


def _cell(column: str, entry: Entry) -> str:
    if column == "perplexity":
        return _number(entry["perplexity"], "{:,.1f}")
    if column == "hidden tokens":
        perplexity = _number(entry["masked_perplexity"], "{:,.1f}")
        return f"{entry['masked_accuracy']:.1%} right<small>perplexity {perplexity}</small>"
    if "pair_accuracy" in entry:
        return f"{entry['pair_accuracy']:.0%} of pairs<small>chance 50%</small>"
    if "detection_accuracy" in entry:
        return f"{entry['detection_accuracy']:.1%} detected<small>blindly {entry['original_share']:.1%}</small>"
    return "–"


def _left_out(name: str, what: str, reason: str, columns: int) -> str:
    return (
        f'<tr class="failed"><td>–</td><td><b>{escape(name)}</b><small>{what}</small></td>'
        f"<td colspan={columns}>{escape(reason)}</td></tr>"
    )


def _name(entry: Entry, colours: Mapping[str, str]) -> str:
    added = " †" if "added" in entry else ""
    return f'<b class="name" style="--c:{colours[entry["name"]]}">{escape(entry["name"])}{added}</b>'


def _what(kind: str) -> str:
    return f"{LINEAGE[kind].summary}, {LINEAGE[kind].year}" if kind in LINEAGE else kind


def _bar(entry: Entry, score: float, widest: float, colour: str) -> str:
    def place(value: float) -> str:
        return f"{100 * value / widest:.2f}%"

    whisker = ""
    if entry["low"] is not None:
        width = f"{100 * (entry['high'] - entry['low']) / widest:.2f}%"
        whisker = f'<i style="left:{place(entry["low"])};width:{width}"></i>'
    return f'<div><span style="width:{place(score)};--c:{colour}"></span>{whisker}</div>'


def _interval(entry: Entry) -> str:
    return f"{entry['low']:.3f} – {entry['high']:.3f}" if entry["low"] is not None else ""


def _number(value: float | None, style: str | None = None) -> str:
    if value is None or value == 0:
        return "–"
    return style.format(value) if style else short(value)


def _seconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.1f} s" if value < 120 else f"{value / 60:.1f} min"


def _energy(training: Mapping[str, float]) -> str:
    if not training.get("joules"):
        return "–"
    return f"{short(training['joules'])} J<small>{short(1000 * training['grams'])} mg</small>"


def _ties(ranking: Ranking) -> str:
    if not ranking.ties:
        every = all(each["real"] for each in ranking.differences)
        return (
            "<p>Every difference in this ranking is larger than chance explains.</p>"
            if every and ranking.differences
            else ""
        )
    groups = "; ".join(" = ".join(escape(name) for name in group) for group in ranking.ties)
    return (
        f"<p><b>Ties:</b> {groups}. Within such a group the test text cannot tell which is better; all other "
        "differences are larger than chance explains.</p>"
    )


def _tabs(group: str, charts: Sequence[Chart]) -> str:
    """Charts behind tabs that work without any script."""
    buttons = "".join(
        f'<input type="radio" name="{group}" id="{chart.name}"{" checked" if i == 0 else ""}>'
        f'<label for="{chart.name}">{TABS[chart.name.split("-")[-1]]}</label>'
        for i, chart in enumerate(charts)
    )
    return f'<div class="tabs">{buttons}{"".join(f"<figure>{to_svg(chart)}</figure>" for chart in charts)}</div>'


def _heading(ranking: Ranking) -> str:
    rows = sorted(
        ((entry["last_doubling"], entry["name"]) for entry in ranking.ranked if entry["last_doubling"] is not None),
        reverse=True,
    )
    if not rows:
        return ""
    items = "".join(
        f"<li><b>{escape(name)}</b> {'↓' if gain > 0.005 else '→'} {abs(gain):.3f}</li>" for gain, name in rows
    )
    unit = "bits per byte" if ranking.predicts == "next token" else "nats per blank"
    return (
        f"<p><b>Where the curves are heading:</b> {unit} gained in the second half of the training. Those with a large "
        f"figure have the most to gain from a larger budget.</p><ul class=chips>{items}</ul>"
        f"<p class=after>The dotted ends show where each would be with {AHEAD} times the budget, if every doubling "
        "went on gaining what the last two did. That is a guess, not a measurement: only a longer run tells.</p>"
    )


def _shown(entry: Entry, board: Board, colours: Mapping[str, str]) -> str:
    """What an entry makes of the prompt, or of the sentence with blanks."""
    inner = _filled(entry, board["cloze"]) if entry["predicts"] == "blanks" else _sample(entry, board["prompt"])
    return f"<article>{_name(entry, colours)}{inner}</article>"


def _sample(entry: Entry, prompt: str) -> str:
    text = escape(re.sub(r"\n{3,}", "\n\n", entry["sample"]).rstrip() or " (it ends the text here)")
    return f"<p><mark>{escape(prompt)}</mark>{text}</p>"


def _filled(entry: Entry, cloze: Mapping[str, Any]) -> str:
    """The sentence with the likeliest token in each blank, and under it what else was likely there."""
    if not entry["filled"]:
        return f"<p>{escape(entry['sample'])}</p>"
    answers = cloze["answers"] or [None] * len(entry["filled"])
    first, *rest = cloze["text"].split(MASK)
    sentence, lines = escape(first), []
    for candidates, answer, after in zip(entry["filled"], answers, rest, strict=True):
        words = [(_visible(token), probability) for token, probability in candidates]
        kind = "" if answer is None else " class=right" if words[0][0] == answer else " class=wrong"
        sentence += f"<mark{kind}>{escape(words[0][0])}</mark>{escape(after)}"
        likely = ", ".join(f"{escape(word)} {100 * probability:.2g}%" for word, probability in words)
        lines.append(f"<li>{f'<b>{escape(answer)}</b>: ' if answer else ''}{likely}</li>")
    return f"<p>{sentence}</p><ul class=guesses>{''.join(lines)}</ul>"


def _visible(token: str) -> str:
    """A token as it stands in a sentence; white space as a sign."""
    return token.strip().replace("\\n", "⏎") or "␣"


def _passage(entry: Entry, passages: Mapping[str, Passage], colours: Mapping[str, str]) -> str:
    pieces = passages[entry["name"]]
    total = sum(bits for _, bits in pieces)
    size = sum(len(text.encode()) for text, _ in pieces)
    pseudo = "pseudo " if entry["predicts"] == "blanks" else ""
    figure = f"<small>{total / max(1, size):.2f} {pseudo}bits per byte here</small>"
    return f'<article>{_name(entry, colours)} {figure}<pre class="heat">{surprisal.to_html(pieces)}</pre></article>'


def _matrix(ranking: Ranking) -> str:
    names = [entry["name"] for entry in ranking.ranked]
    if len(names) < 2:
        return "<p>There is only one system, so there is nothing to compare it with.</p>" if names else ""
    found = {(each["better"], each["worse"]): each for each in ranking.differences}
    head = "".join(f"<th><span>{escape(name)}</span></th>" for name in names[1:])
    rows = []
    for i, better in enumerate(names[:-1]):
        cells = ["<td></td>"] * i
        for worse in names[i + 1 :]:
            each = found.get((better, worse)) or found[worse, better]
            told = f"{escape(each['better'])} is {each['bits']:.4f} bits per byte better than {escape(each['worse'])}"
            if each["low"] is not None:
                told += f" (95%: {each['low']:.4f} to {each['high']:.4f}; p = {each['p']:.2g})"
            kind = "real" if each["real"] else "tie"
            cells.append(f'<td class="{kind}" title="{told}">{each["bits"]:.3f}</td>')
        rows.append(f"<tr><th>{escape(better)}</th>{''.join(cells)}</tr>")
    return f'<table class="matrix"><thead><tr><th></th>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
