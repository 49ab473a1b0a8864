"""report.html: the comparison in one file that needs nothing else, for somebody who was not there."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from lmlab.compare import surprisal
from lmlab.compare.charts import PALETTE, Chart, Series, pareto_front, short, to_svg
from lmlab.compare.leaderboard import AHEAD, Board, Entry, heading, headline, verdict
from lmlab.models import LINEAGE
from lmlab.training.budget import parse_budget

AXES = {
    "tokens": "tokens read in training",
    "seconds": "seconds of training",
    "flops": "training FLOPs",
    "joules": "joules",
}
TABS = {"tokens": "Tokens", "seconds": "Time", "flops": "FLOPs", "joules": "Energy", "parameters": "Parameters"}
Passage = Sequence[tuple[str, float]]


def make_report(board: Board, passages: Mapping[str, Passage]) -> str:
    """The whole page; `passages` are the pieces of the held-out passage with the bits of each, by system."""
    entries = [entry for entry in board["entries"] if entry["status"] == "ok"]
    colours = choose_colours(entries)
    curves, costs = curve_charts(entries, colours), cost_charts(entries, colours)
    unit = parse_budget(board["conditions"]["budget"]).unit
    curves.sort(key=lambda chart: chart.name != f"curve-{unit}")
    return Template((Path(__file__).with_name("page.html")).read_text(encoding="utf-8")).substitute(
        tab_rules=_tab_rules(len(TABS)),
        title=f"{len(entries)} language models compared",
        headline=escape(headline(board)),
        verdict=escape(verdict(board)),
        lead=_lead(board),
        leaderboard=_leaderboard(board, colours),
        ties=_ties(board),
        curves=_tabs("curves", curves) if curves else "<p>No validation text was held out, so there are no curves.</p>",
        heading=_heading(entries),
        costs=_tabs("costs", costs),
        prompt=escape(board["prompt"]),
        samples="".join(_sample(entry, board["prompt"], colours) for entry in entries),
        legend=surprisal.legend(),
        passages="".join(_passage(entry, passages, colours) for entry in entries if entry["name"] in passages),
        matrix=_matrix(board),
        notes="".join(f"<li>{escape(note)}</li>" for note in board["notes"]),
        conditions=_conditions(board["conditions"]),
        versions=_facts({**board["conditions"]["versions"], **board["conditions"]["machine"]}),
    )


def choose_colours(entries: Sequence[Entry]) -> dict[str, str]:
    """One colour for each system, the same in every comparison where that is possible."""
    known = {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(LINEAGE)}
    extra = iter(PALETTE[::-1] * (1 + len(entries) // len(PALETTE)))
    return {entry["name"]: known.get(entry["name"]) or next(extra) for entry in entries}


def curve_charts(entries: Sequence[Entry], colours: Mapping[str, str]) -> list[Chart]:
    """Learning curves against each thing that is spent."""
    with_curves = [entry for entry in entries if entry["curve"]]
    charts = []
    for axis, label in AXES.items():
        series = [
            Series(
                entry["name"],
                colours[entry["name"]],
                [(point[axis], point["valid_bits_per_byte"]) for point in entry["curve"]],
                level=len(entry["curve"]) == 1 or not all(point[axis] > 0 for point in entry["curve"]),
                guess=heading(entry["curve"], axis),
            )
            for entry in with_curves
        ]
        if any(not each.level for each in series):
            charts.append(
                Chart(f"curve-{axis}", f"Learning curves against {label}", label, "bits per byte (validation)", series)
            )
    return charts


def cost_charts(entries: Sequence[Entry], colours: Mapping[str, str]) -> list[Chart]:
    """Quality against price, with the front of those that nobody beats in both."""

    def spent(name: str) -> Callable[[Entry], float]:
        return lambda entry: float(entry["training"].get(name) or 0.0)

    axes: dict[str, tuple[str, Callable[[Entry], float]]] = {
        "joules": ("joules of training", spent("joules")),
        "seconds": ("seconds of training", spent("seconds")),
        "flops": ("training FLOPs", spent("flops")),
        "tokens": ("tokens read in training", spent("tokens")),
        "parameters": ("parameters", lambda entry: float(entry["parameters"])),
    }
    charts = []
    for axis, (label, price) in axes.items():
        points = {entry["name"]: (price(entry), entry["bits_per_byte"]) for entry in entries}
        series = [
            Series(name, colours[name], [point], level=point[0] <= 0)
            for name, point in points.items()
            if point[0] > 0 or axis == "flops"
        ]
        front = pareto_front([point for point in points.values() if point[0] > 0])
        if any(not each.level for each in series):
            charts.append(
                Chart(f"cost-{axis}", f"Quality against {label}", label, "bits per byte (test)", series, front)
            )
    return charts


def _lead(board: Board) -> str:
    conditions = board["conditions"]
    text = conditions["text"]
    return (
        f"{len(conditions['systems'])} systems learnt from the same {_bytes(text['train']['bytes'])} of text, each "
        f"with the same budget of <b>{escape(_spaced(conditions['budget']))}</b>, and were then asked to predict "
        f"{_bytes(text['test']['bytes'])} that none of them had seen."
    )


def _spaced(budget: str) -> str:
    return re.sub(r"(?<=[\dkKMGBTP])(?=(tokens?|steps?|epochs?|flops)$)", " ", budget)


def _bytes(count: float) -> str:
    for size, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:g} bytes"


def _leaderboard(board: Board, colours: Mapping[str, str]) -> str:
    ok = [entry for entry in board["entries"] if entry["status"] == "ok"]
    widest = max([entry["high"] or entry["bits_per_byte"] for entry in ok], default=1.0)
    leading: list[str] = next((group for group in board["ties"] if ok and ok[0]["name"] in group), [])
    perplexities = any(entry["perplexity"] for entry in ok)
    head = [
        "",
        "system",
        "bits per byte: lower is better",
        "",
        "perplexity",
        "parameters",
        "tokens read",
        "time",
        "energy, CO2e",
    ]
    if not perplexities:
        head.remove("perplexity")
    rows = []
    for rank, entry in enumerate(ok, start=1):
        training = entry["training"]
        cells = [
            f'<td class="rank">{rank}</td>',
            f"<td class=what>{_name(entry, colours)}<small>{escape(_what(entry['kind']))}</small></td>",
            f'<td class="bar">{_bar(entry, widest, colours[entry["name"]])}</td>',
            f"<td class=score><b>{entry['bits_per_byte']:.3f}</b><small>{_interval(entry)}</small></td>",
        ]
        if perplexities:
            cells.append(f"<td>{_number(entry['perplexity'], '{:,.1f}')}</td>")
        cells += [
            f"<td>{short(entry['parameters'])}</td>",
            f"<td>{_number(training.get('tokens'))}</td>",
            f"<td>{_seconds(training.get('seconds'))}</td>",
            f"<td>{_energy(training)}</td>",
        ]
        rows.append(f'<tr class="{"lead" if rank == 1 or entry["name"] in leading else ""}">{"".join(cells)}</tr>')
    for entry in board["apart"]:
        rows.append(
            f'<tr class="failed"><td>–</td><td><b>{escape(entry["name"])}</b><small>ranked apart</small></td>'
            f"<td colspan={len(head) - 2}>{escape(entry['reason'])}</td></tr>"
        )
    for entry in board["entries"]:
        if entry["status"] != "ok":
            rows.append(
                f'<tr class="failed"><td>–</td><td><b>{escape(entry["name"])}</b><small>failed</small></td>'
                f"<td colspan={len(head) - 2}>{escape(entry['error'])}</td></tr>"
            )
    return _table(head, rows)


def _table(head: Sequence[str], rows: Sequence[str]) -> str:
    cells = "".join(f"<th>{cell}</th>" for cell in head)
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _name(entry: Entry, colours: Mapping[str, str]) -> str:
    added = " †" if "added" in entry else ""
    return f'<b class="name" style="--c:{colours[entry["name"]]}">{escape(entry["name"])}{added}</b>'


def _what(kind: str) -> str:
    return f"{LINEAGE[kind].summary}, {LINEAGE[kind].year}" if kind in LINEAGE else kind


def _bar(entry: Entry, widest: float, colour: str) -> str:
    def place(value: float) -> str:
        return f"{100 * value / widest:.2f}%"

    whisker = ""
    if entry["low"] is not None:
        width = f"{100 * (entry['high'] - entry['low']) / widest:.2f}%"
        whisker = f'<i style="left:{place(entry["low"])};width:{width}"></i>'
    return f'<div><span style="width:{place(entry["bits_per_byte"])};--c:{colour}"></span>{whisker}</div>'


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


def _ties(board: Board) -> str:
    if not board["ties"]:
        every = all(each["real"] for each in board["differences"])
        return (
            "<p>Every difference in this ranking is larger than chance explains.</p>"
            if every and board["differences"]
            else ""
        )
    groups = "; ".join(" = ".join(escape(name) for name in group) for group in board["ties"])
    return (
        f"<p><b>Ties:</b> {groups}. Within such a group the test text cannot tell which is better; all other "
        "differences are larger than chance explains.</p>"
    )


def _tabs(group: str, charts: Sequence[Chart]) -> str:
    """Charts behind tabs that work without any script."""
    buttons = "".join(
        f'<input type="radio" name="{group}" id="{chart.name}"{" checked" if i == 0 else ""}>'
        f'<label for="{chart.name}">{TABS[chart.name.split("-")[1]]}</label>'
        for i, chart in enumerate(charts)
    )
    return f'<div class="tabs">{buttons}{"".join(f"<figure>{to_svg(chart)}</figure>" for chart in charts)}</div>'


def _tab_rules(most: int) -> str:
    """The n-th tab shows the n-th figure."""
    rule = ".tabs input:nth-of-type({n}):checked ~ figure:nth-of-type({n}) {{ display: block }}"
    return "\n".join(rule.format(n=n) for n in range(1, most + 1))


def _heading(entries: Sequence[Entry]) -> str:
    rows = sorted(
        ((entry["last_doubling"], entry["name"]) for entry in entries if entry["last_doubling"] is not None),
        reverse=True,
    )
    if not rows:
        return ""
    items = "".join(
        f"<li><b>{escape(name)}</b> {'↓' if gain > 0.005 else '→'} {abs(gain):.3f}</li>" for gain, name in rows
    )
    return (
        "<p><b>Where the curves are heading:</b> bits per byte gained in the second half of the training. Those with a "
        f"large figure have the most to gain from a larger budget.</p><ul class=chips>{items}</ul>"
        f"<p class=after>The dotted ends show where each would be with {AHEAD} times the budget, if every doubling "
        "went on gaining what the last two did. That is a guess, not a measurement: only a longer run tells.</p>"
    )


def _sample(entry: Entry, prompt: str, colours: Mapping[str, str]) -> str:
    text = escape(re.sub(r"\n{3,}", "\n\n", entry["sample"]).rstrip() or " (it ends the text here)")
    return f"<article>{_name(entry, colours)}<p><mark>{escape(prompt)}</mark>{text}</p></article>"


def _passage(entry: Entry, passages: Mapping[str, Passage], colours: Mapping[str, str]) -> str:
    pieces = passages[entry["name"]]
    total = sum(bits for _, bits in pieces)
    size = sum(len(text.encode()) for text, _ in pieces)
    figure = f"<small>{total / max(1, size):.2f} bits per byte here</small>"
    return f'<article>{_name(entry, colours)} {figure}<pre class="heat">{surprisal.to_html(pieces)}</pre></article>'


def _matrix(board: Board) -> str:
    names = [entry["name"] for entry in board["entries"] if entry["status"] == "ok"]
    if len(names) < 2:
        return ""
    found = {(each["better"], each["worse"]): each for each in board["differences"]}
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


def _conditions(conditions: Mapping[str, Any]) -> str:
    data, text = conditions["data"], conditions["text"]
    specs = dict.fromkeys(conditions["tokenizers"].values())
    tokenizer = ", ".join(f"{spec} ({conditions['vocabularies'][spec]:,} types)" for spec in specs)
    if len(specs) > 1:
        tokenizer = ", ".join(f"{system}: {spec}" for system, spec in conditions["tokenizers"].items())
    facts = {
        "text": ", ".join(data["text"]),
        "documents are": data["documents"],
        **{
            f"{name} text": f"{part['documents']:,} documents, {part['bytes']:,} bytes, {part['words']:,} words"
            for name, part in text.items()
        },
        "split": "texts of their own"
        if data["valid"] or data["test"]
        else ", ".join(f"{share:g}" for share in data["split"]),
        "tokenizer": tokenizer,
        "budget of each system": conditions["budget"],
        "size": conditions["size"] or "small",
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
