"""report.html: the comparison in one file that needs nothing else, for somebody who was not there."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from lmlab.compare.leaderboard import Board, describe_groups, headline, join, read_rankings, verdict
from lmlab.compare.notes import write_caveats
from lmlab.compare.plots import choose_colours, cost_charts, curve_charts
from lmlab.compare.ranking import Ranking
from lmlab.compare.records import EXTRAPOLATED, Basis, Entry, choose_basis, validation_seconds
from lmlab.models import LINEAGE
from lmlab.pages import parts, surprisal
from lmlab.pages.charts import Chart, short
from lmlab.pages.page import fill_page, fill_part
from lmlab.training.budget import parse_budget

TABS = {"tokens": "Tokens", "seconds": "Time", "flops": "FLOPs", "joules": "Energy", "parameters": "Parameters"}
Passage = Sequence[tuple[str, float]]


def make_report(board: Board, passages: Mapping[tuple[str, str], Passage]) -> str:
    """The whole page; `passages` are the pieces of the held-out passage with the bits of each, by track and name."""
    rankings = read_rankings(board)
    return fill_page(
        "comparison.html",
        tab_rules=parts.tab_rules(len(TABS)),
        title=f"{sum(len(ranking.ranked) for ranking in rankings)} language models compared",
        headline=escape(headline(rankings[0])),
        verdict=escape(verdict(rankings[0])),
        lead=_lead(board, rankings),
        rankings="".join(make_sections(ranking, board, passages, first=ranking is rankings[0]) for ranking in rankings),
        notes="".join(f"<li>{escape(note)}</li>" for note in board["notes"]),
        conditions=parts.facts(_conditions(board["conditions"], rankings)),
        versions=parts.facts({**board["conditions"]["versions"], **board["conditions"]["machine"]}),
    )


def _lead(board: Board, rankings: Sequence[Ranking]) -> str:
    conditions = board["conditions"]
    text = conditions["text"]
    lead = (
        f"{len(conditions['systems'])} models were trained on the same {parts.size(text['train']['bytes'])} of text, "
        f"each with the same budget of <b>{escape(_spaced(conditions['budget']))}</b>, and were tested on "
        f"{parts.size(text['test']['bytes'])} of test text."
    )
    if len(rankings) > 1:
        lead += f" The first ranking is of those that {rankings[0].track.words.do}."
    for ranking in rankings[1:]:
        names = join([entry["name"] for entry in (*ranking.entries, *ranking.apart)])
        lead += (
            f" Others {ranking.track.words.do} ({escape(names)}): these scores are not comparable, so they are "
            "ranked separately, further below."
        )
    return lead


def _spaced(budget: str) -> str:
    return re.sub(r"(?<=[\dkKMGBTP])(?=(tokens?|steps?|epochs?|flops)$)", " ", budget)


def _conditions(conditions: Mapping[str, Any], rankings: Sequence[Ranking]) -> dict[str, Any]:
    data, text = conditions["data"], conditions["text"]
    specs = dict.fromkeys(conditions["tokenizers"].values())
    tokenizer = ", ".join(
        f"{spec} ({conditions['vocabularies'][spec]:,} types{', lossy' * conditions['lossy'][spec]})" for spec in specs
    )
    if len(specs) > 1:
        tokenizer = ", ".join(f"{system}: {spec}" for system, spec in conditions["tokenizers"].items())
    in_part = any(ranking.track.on_part for ranking in rankings)
    part = f"{conditions['part']['documents']:,} documents, {conditions['part']['bytes']:,} bytes of the test text"
    return {
        "text": ", ".join(data["text"]),
        "documents": data["documents"],
        **{
            f"{name} text": f"{part['documents']:,} documents, {part['bytes']:,} bytes, {part['words']:,} words"
            for name, part in text.items()
        },
        **({"pseudo-log-likelihood of": part} if in_part else {}),
        "split": "separate texts"
        if data["valid"] or data["test"]
        else ", ".join(f"{share:g}" for share in data["split"]),
        "tokenizer": tokenizer,
        "budget of each model": conditions["budget"],
        "size": conditions["size"] or "the default of each model",
        "parameters": f"matched to {conditions['matched_parameters']:,}"
        if conditions["matched_parameters"]
        else "those of the size",
        "seeds": ", ".join(map(str, conditions["seeds"])),
        "learning rates": "chosen by --sweep" if conditions["sweep"] else "defaults of each model",
        "other settings": ", ".join(f"train.{key}={value}" for key, value in conditions["train"].items()) or "none",
        "SHA-256 of the text": conditions["text_sha256"],
    }


def make_sections(ranking: Ranking, board: Board, passages: Mapping[tuple[str, str], Passage], *, first: bool) -> str:
    """All sections of a ranking; one that is not the `first` of the page has its own headline."""
    track, captions, colours = ranking.track, ranking.track.captions, choose_colours(ranking)
    curves, costs = curve_charts(ranking, colours), cost_charts(ranking, colours)
    unit = parse_budget(board["conditions"]["budget"]).unit
    curves.sort(key=lambda chart: not chart.name.endswith(f"curve-{unit}"))
    return fill_part(
        "ranking.html",
        title=_title(ranking, first=first),
        of=track.of_systems,
        between=f" between {track.words.systems}" if track.words.systems else "",
        direction=track.score.metric.better.capitalize(),
        about_leaderboard=captions.leaderboard,
        leaderboard=_leaderboard(ranking, colours),
        groups="".join(f"<p class=after>{escape(line)}</p>" for line in describe_groups(ranking)),
        caveats="".join(f"<p class=caveat>{escape(each)}</p>" for each in write_caveats(ranking, board["conditions"])),
        about_curves=captions.curves,
        curves=_tabs(f"{track.name} curves", curves)
        if curves
        else "<p>There is no validation text, so there are no learning curves.</p>",
        heading=_extrapolation(ranking),
        about_costs=captions.costs,
        costs=_tabs(f"{track.name} costs", costs),
        shown=captions.samples_title,
        about_samples=captions.samples,
        samples="".join(
            f"<article>{_name(entry, colours)}{track.sample(entry, board)}</article>" for entry in ranking.ranked
        ),
        surprising=captions.passages_title,
        about_passages=captions.passages,
        legend=surprisal.legend(),
        passages="".join(
            f"<article>{_name(entry, colours)} {_passage(pieces, track.score.label)}</article>"
            for entry in ranking.ranked
            if (pieces := passages.get((track.name, entry["name"]))) is not None
        ),
        about_matrix=captions.matrix,
        matrix=_matrix(ranking),
    )


def _title(ranking: Ranking, *, first: bool) -> str:
    """What stands over a ranking: what sets it apart, and its result where that is not the page's own headline."""
    separation = ranking.track.separation
    own = "" if first else f"<h1>{escape(headline(ranking))}</h1><p class=lead><b>{escape(verdict(ranking))}</b></p>"
    if separation is None:
        return own
    why = f'<p class="why"><b>{escape(separation.summary)}</b> {escape(separation.why)}</p>'
    return f'<div class="apart">\n<p class="kind">{escape(separation.banner)}</p>\n{own}\n{why}\n</div>'


def _tabs(group: str, charts: Sequence[Chart]) -> str:
    return parts.tabs(group, charts, [TABS[chart.name.split("-")[-1]] for chart in charts])


def _leaderboard(ranking: Ranking, colours: Mapping[str, str]) -> str:
    ranked, track = ranking.ranked, ranking.track
    widest = max([entry["high"] or ranking.score(entry) for entry in ranked], default=1.0)
    leading = ranking.leaders if ranked else []
    cells_of = {entry["name"]: track.cells(entry) for entry in ranked}
    own = list(dict.fromkeys(title for cells in cells_of.values() for title, cell in cells.items() if cell))
    basis = choose_basis(entry["training"] for entry in ranked)
    of = "(training)" if basis.alone else "(with validation)"
    score = f"{track.score.label}: {track.score.metric.better} is better"
    letters = ranking.letters
    head = [
        "",
        "model",
        score,
        "",
        *["group"] * bool(letters),
        *own,
        "parameters",
        "training tokens",
        f"time {of}",
        f"energy {of}, CO2e",
    ]
    rows = []
    for rank, entry in enumerate(ranked, start=1):
        interval = f"{entry['low']:.3f} – {entry['high']:.3f}" if entry["low"] is not None else ""
        value, colour = ranking.score(entry), colours[entry["name"]]
        cells = [
            f'<td class="rank">{rank}</td>',
            f"<td class=what>{_name(entry, colours)}<small>{escape(_what(entry))}</small></td>",
            f'<td class="bar">{parts.bar(value, widest, colour, low=entry["low"], high=entry["high"])}</td>',
            f"<td class=score><b>{value:.3f}</b><small>{interval}</small></td>",
            *[f"<td class=letters>{letters.get(entry['name'], '')}</td>"] * bool(letters),
            *(f"<td>{cells_of[entry['name']].get(title) or '–'}</td>" for title in own),
            f"<td>{short(entry['parameters'])}</td>",
            f"<td>{parts.number(entry['training'].get('tokens'))}</td>",
            f"<td>{_time(entry['training'], basis)}</td>",
            f"<td>{_energy(entry['training'], basis)}</td>",
        ]
        rows.append(f'<tr class="{"lead" if entry["name"] in leading else ""}">{"".join(cells)}</tr>')
    rows += [_left_out(each["name"], "not ranked", each["reason"], len(head) - 2) for each in ranking.apart]
    rows += [
        _left_out(entry["name"], "failed", entry["error"], len(head) - 2)
        for entry in ranking.entries
        if entry["status"] != "ok"
    ]
    return parts.table(head, rows)


def _left_out(name: str, what: str, reason: str, columns: int) -> str:
    return (
        f'<tr class="failed"><td>–</td><td><b>{escape(name)}</b><small>{what}</small></td>'
        f"<td colspan={columns}>{escape(reason)}</td></tr>"
    )


def _name(entry: Entry, colours: Mapping[str, str]) -> str:
    return parts.name_tag(entry["name"], colours[entry["name"]], mark=" †" if "added" in entry else "")


def _what(entry: Entry) -> str:
    kind = entry["kind"]
    what = f"{LINEAGE[kind].summary}, {LINEAGE[kind].year}" if kind in LINEAGE else kind
    return f"{what}; lossy" if entry["lossy"] else what


def _time(training: Mapping[str, float], basis: Basis) -> str:
    shown = parts.duration(training.get(basis.seconds))
    more = validation_seconds(training)
    if not more:
        return shown
    return f"{shown}<small>training {parts.duration(training['seconds'])} + validation {parts.duration(more)}</small>"


def _energy(training: Mapping[str, float], basis: Basis) -> str:
    joules = training.get(basis.joules)
    if not joules:
        return "–"
    grams = training["grams"] * joules / training["joules"] if training["joules"] else 0.0
    return f"{short(joules)} J<small>{short(1000 * grams)} mg</small>"


def _extrapolation(ranking: Ranking) -> str:
    gains = [(entry["last_doubling"], entry["name"]) for entry in ranking.ranked if entry["last_doubling"] is not None]
    if not gains:
        return ""
    arrow = "↓" if ranking.track.curve.better == "lower" else "↑"
    items = [
        f"<b>{escape(name)}</b> {arrow if gain > 0.005 else '→'} {abs(gain):.3f}"
        for gain, name in sorted(gains, reverse=True)
    ]
    return (
        f"<p><b>Still improving?</b> Improvement in {ranking.track.curve.label} over the second half of the "
        f"training. A large number suggests that a larger budget would help.</p>{parts.chips(items)}"
        f"<p class=after>The dotted ends extrapolate to {EXTRAPOLATED} times the budget, assuming that every doubling "
        "improves as much as the last two did. This is not a measurement.</p>"
    )


def _passage(pieces: Passage, score: str) -> str:
    total = sum(bits for _, bits in pieces)
    size = sum(len(text.encode()) for text, _ in pieces)
    figure = f"<small>{total / max(1, size):.2f} {score} here</small>"
    return f'{figure}<pre class="heat">{surprisal.to_html(pieces)}</pre>'


def _matrix(ranking: Ranking) -> str:
    names = [entry["name"] for entry in ranking.ranked]
    if len(names) < 2:
        return "<p>There is only one model, so there is nothing to compare it with.</p>" if names else ""
    paired = ranking.paired_only
    differences = [{**each._asdict(), "paired_only": each in paired} for each in ranking.differences]
    return parts.matrix(names, differences, unit=ranking.track.score.label)
