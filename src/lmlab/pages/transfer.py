"""The page about a task that models learnt: scores beside their baselines, mistakes, calibration and the price."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from lmlab.pages import evidence, parts
from lmlab.pages.figures import PALETTE
from lmlab.pages.formats import duration, short
from lmlab.pages.page import fill_page
from lmlab.pages.plots import Curve, Measured, draw_curves
from lmlab.pages.scores import (
    COLOURS,
    difference_cell,
    draw_scores,
    format_metric,
    rank,
    tell_layers,
    tell_range,
    tell_score,
    tell_way,
)
from lmlab.pages.verdict import tell_figures, tell_headline, tell_lead

Facts = Mapping[str, Any]
KINDS = {
    "run": "lmlab · fine-tuning",
    "curve": "lmlab · learning curve of a task",
    "layers": "lmlab · which layers are worth most",
    "comparison": "lmlab · models compared on a task",
}
TEST_INTERVAL = "Whiskers are 95% intervals for other test {units}, not for other seeds."
SEED_INTERVAL = (
    "Of several seeds the bar is the mean, the whisker a 95% interval for other seeds and other test {units}, and each "
    "ring one seed; the worst is red. The whisker of a single seed is for other test {units} only."
)
APART = "No model learnt from them, and no checkpoint was chosen on them."
CHOSEN_ON = (
    "No model learnt from them, but its best checkpoint was chosen on them, so the scores are too optimistic: lmlab "
    "before 0.6.0 did so."
)


def make_page(facts: Facts) -> str:
    """The whole page; parts that there is nothing for are left out."""
    sections = (
        _grid(facts) if facts["kind"] == "comparison" else "",
        _curve(facts) if facts["kind"] == "curve" else "",
        _layers(facts) if facts["kind"] == "layers" else "",
        _scores(facts),
        evidence.show_confusion(facts),
        evidence.show_scatter(facts),
        evidence.show_mistakes(facts),
        evidence.show_calibration(facts),
        _mix(facts),
        _price(facts),
        _data(facts),
        _use(facts),
    )
    return fill_page(
        "transfer.html",
        title=escape(tell_headline(facts)),
        kind=KINDS[facts["kind"]],
        headline=escape(tell_headline(facts)),
        lead=tell_lead(facts),
        figures=_figures(facts),
        sections="\n".join(section for section in sections if section),
    )


def _figures(facts: Facts) -> str:
    told = tell_figures(facts)
    tiles = "".join(f"<div><b>{escape(value)}</b><small>{escape(what)}</small></div>" for value, what in told)
    return f'<div class="figures">{tiles}</div>' if len(told) > 1 else ""


def _intervals(facts: Facts, rows: Sequence[Facts]) -> str:
    """What the whiskers are of."""
    told = SEED_INTERVAL if any(len(row["seeds"]) > 1 for row in rows) else TEST_INTERVAL
    old = " Predictions are missing, so those of several seeds are put together from the intervals of each."
    missing = any(row["label"] in facts["untested"] and len(row["seeds"]) > 1 for row in rows)
    return told.format(units="paragraphs" if facts["task"] == "spans" else "examples") + old * missing


def _explain_differences(facts: Facts, rows: Sequence[Facts]) -> str:
    """What stands in the column of differences."""
    lead = next((row for row in rows if row["key"] == facts["shown"]), None)
    if lead is None or not any(row["difference"] for row in rows):
        return ""
    return (
        f'<p class="after">Difference: how far {escape(tell_way(lead))} is ahead (+) or behind (−), in a paired test '
        "on the same examples, with the 95% interval of this pair alone. The p-value is corrected for the number of "
        f"tests ({facts['tests']}, Holm); bold: below 0.05, significant. A difference can be significant where "
        "whiskers overlap, for the test is paired.</p>"
    )


def _scores(facts: Facts) -> str:
    """All ways of learning; of a curve those with most examples, of layers the baselines alone."""
    rows, metric = list(facts["rows"]), facts["metric"]
    title = "Scores and baselines"
    if facts["kind"] == "layers":
        rows = [row for row in rows if row["how"] == "baseline"]
        title = "Baselines"
    if facts["kind"] == "curve":
        most = max((row["examples"] for row in rows), default=0)
        rows = [row for row in rows if row["examples"] == most]
        title = f"Scores with {most:,} examples"
    if not rows:
        return ""
    if facts["kind"] == "comparison":
        rows.sort(key=lambda row: -rank(row, metric))
    rows.sort(key=lambda row: row["how"] == "baseline")
    if len(rows) == 1:
        title = "Score"
    lead = next((row for row in rows if row["key"] == facts["shown"]), None)
    apart = facts["split"] == "test" or "selection" in facts["counts"]
    how = (
        f"On {facts['count']:,} {escape(facts['split'])} examples. {APART if apart else CHOSEN_ON} "
        f"{_intervals(facts, rows)}"
    )
    drawn = draw_scores(rows, metric, lead=lead if len(rows) > 1 else None)
    return parts.section(title, how, drawn + _explain_differences(facts, rows))


def _layers(facts: Facts) -> str:
    rows = [row for row in facts["rows"] if row["how"] != "baseline"]
    best = max(rows, key=lambda row: rank(row, facts["metric"]), default=None)
    how = (
        "The model stays as it is, and a new head reads the layers named: the table of Devlin et al. 2019. Where the "
        f"axis does not begin at zero, there are points instead of bars. {_intervals(facts, rows)}"
    )
    names = [tell_layers(row["layers"]) for row in rows]
    drawn = draw_scores(rows, facts["metric"], names=names, lead=best, near=True)
    return parts.section("Which layers to read", how, drawn + _explain_differences(facts, rows))


def _curve(facts: Facts) -> str:
    """A line for each way of learning, by the number of examples."""
    metric = facts["metric"]
    groups: dict[tuple[str, str, str], list[Facts]] = {}
    for row in facts["rows"]:
        groups.setdefault((row["name"], row["how"], row["layers"]), []).append(row)
    models = [key for key in groups if key[1] != "baseline"]
    greys = iter(("#8a929e", "#b08d57", "#6b7a8f", "#a3768c"))
    curves = []
    for key, rows in groups.items():
        points = [
            _measured(row, metric) for row in sorted(rows, key=lambda row: row["examples"]) if _known(row, metric)
        ]
        if key[1] == "baseline":
            colour = next(greys, "#8a929e")
        elif len({how for _, how, _ in models}) == len(models):
            colour = COLOURS.get(key[1], PALETTE[0])
        else:
            colour = PALETTE[models.index(key) % len(PALETTE)]
        if points:
            curves.append(Curve(tell_way(rows[0]), colour, points, dashed=key[1] == "baseline"))
    if not curves:
        return ""
    title = f"{format_metric(metric)} by the number of training examples"
    drawn = draw_curves(
        curves, title=title, x_label="training examples (logarithmic)", y_label=f"{format_metric(metric)} (times 100)"
    )
    how = (
        "How good each way of learning is by how many examples it saw; the examples of a smaller number are among "
        "those of a larger one. Dashed: no language model. Whiskers are 95% "
        "intervals"
    )
    several = any(len(row["seeds"]) > 1 for row in facts["rows"])
    how += (
        " for other seeds, which draw other training examples, and other test examples; rings are single seeds."
        if several
        else " for other test examples, not for other seeds."
    )
    shown = [row for row in facts["rows"] if row["how"] != "baseline"]
    baselines = list(dict.fromkeys(row["name"] for row in facts["rows"] if row["difference"]))
    cells = [
        f"<tr><td>{escape(tell_way(row))}</td><td>{row['examples']:,}</td><td><b>{tell_score(row['values'][metric]['value'])}</b>"
        f"</td><td>{tell_range(row['values'][metric]) or '–'}</td>"
        f"<td>{' · '.join(map(tell_score, row['seeds'])) if len(row['seeds']) > 1 else '–'}</td>"
        f"{''.join(_difference_at(facts, row, name) for name in baselines)}</tr>"
        for row in shown
    ]
    head = ["model", "examples", escape(format_metric(metric)), "95% interval", "each seed"]
    head += [f"ahead of {escape(name)}" for name in baselines]
    table = parts.table(head, cells, kind="narrow")
    return parts.section(
        "How many examples are needed", how, f'<figure class="wide">{drawn}</figure><div class="scroll">{table}</div>'
    )


def _difference_at(facts: Facts, row: Facts, baseline: str) -> str:
    """How far a row of a curve is ahead of a baseline that learnt from as many examples."""
    same = (each for each in facts["rows"] if (each["name"], each["examples"]) == (baseline, row["examples"]))
    return difference_cell(next((each["difference"] for each in same), None))


def _known(row: Facts, metric: str) -> bool:
    return row["values"][metric]["value"] is not None


def _measured(row: Facts, metric: str) -> Measured:
    found = row["values"][metric]
    value, low, high = (None if found[name] is None else 100 * found[name] for name in ("value", "low", "high"))
    assert value is not None
    seeds = [100 * seed for seed in row["seeds"] if seed is not None]
    return Measured(row["examples"], value, low, high, seeds)


def _grid(facts: Facts) -> str:
    """Runs in rows, ways of learning in columns."""
    metric = facts["metric"]
    rows = [row for row in facts["rows"] if row["how"] != "baseline"]
    found = {(row["name"], row["how"]): row for row in rows}
    names, hows = (list(dict.fromkeys(row[part] for row in rows)) for part in ("name", "how"))
    best = max(rows, key=lambda row: rank(row, metric), default=None)
    lines = []
    for name in names:
        cells = ""
        for how in hows:
            row = found.get((name, how))
            kind = ' class="best"' if row is not None and row is best else ""
            told = "–" if row is None else f"<b>{tell_score(row['values'][metric]['value'])}</b>"
            cells += f"<td{kind}>{told}<small>{tell_range(row['values'][metric]) if row else ''}</small></td>"
        lines.append(f"<tr><td><b>{escape(name)}</b></td>{cells}</tr>")
    how = (
        f"{escape(format_metric(metric))} of each model (rows) for each way of learning (columns), with 95% intervals."
    )
    table = parts.table(["", *map(escape, hows)], lines, kind="grid")
    return parts.section("Models and ways of learning", how[:1].upper() + how[1:], f'<div class="scroll">{table}</div>')


def _mix(facts: Facts) -> str:
    if not facts["mixes"]:
        return ""
    content = ""
    for mix in facts["mixes"]:
        widest = max(mix["high"])
        rows = []
        for layer, share in enumerate(mix["shares"]):
            low, high = (mix["low"][layer], mix["high"][layer]) if mix["seeds"] > 1 else (None, None)
            name = "embeddings" if layer == 0 else f"layer {layer}"
            told = f"{name}: {tell_score(share)}%"
            bar = parts.bar(share, widest, COLOURS["mix"], low=low, high=high)
            bar = bar.replace("<div>", f'<div role="img" aria-label="{told}" title="{told}">', 1)
            rows.append(f'<tr><td>{name}</td><td class="scale">{bar}</td><td><b>{tell_score(share)}%</b></td></tr>')
        gamma = "" if mix["gamma"] is None else f", γ = {mix['gamma']:.3f}"
        examples = f", {mix['examples']:,} examples" if facts["kind"] == "curve" else ""
        content += (
            f"<h3>{escape(mix['name'])}{examples}{gamma}</h3>{parts.table(['', '', 'weight'], rows, kind='scores')}"
        )
    how = (
        "The head reads γ · Σ sₗ hₗ, a learnt mix of all layers (Peters et al. 2018): how much each layer weighs. Of "
        "several seeds the mean, with a whisker from the lowest to the highest."
    )
    return parts.section("Which layers the task asks for", how, content)


def _price(facts: Facts) -> str:
    rows = []
    for row in facts["rows"]:
        if row["how"] == "baseline":
            continue
        seeds = f"<small>each of {len(row['seeds'])} seeds</small>" if len(row["seeds"]) > 1 else ""
        rate = "–" if row["rate"] is None else f"{row['rate']:.3g}"
        cells = f"<td>{row['examples']:,}</td><td>{row['steps'] or '–'}</td><td>{rate}</td>{_cost(row)}"
        way = tell_way(row, always=facts["kind"] == "layers")
        rows.append(f"<tr><td>{escape(way)}{seeds}</td>{cells}</tr>")
    for number, (name, price) in enumerate(facts["pretraining"].items()):
        cost = _cost(price) if price else "<td colspan=3>not known (it was not trained here)</td>"
        kind = ' class="apart"' if number == 0 else ""
        rows.append(
            f"<tr{kind}><td><b>{escape(name)}, pre-training</b><small>paid once, apart from the task</small></td>"
            f"<td></td><td></td><td></td>{cost}</tr>"
        )
    if not rows:
        return ""
    baselines = sum(row["seconds"] * len(row["seeds"]) for row in facts["rows"] if row["how"] == "baseline")
    how = "What learning the task costs, and below the line what the model that it began with had cost before."
    after = (
        f'<p class="after">The baselines without a language model took {duration(baselines)} in all.</p>'
        if baselines
        else ""
    )
    head = ["", "examples", "steps", "learning rate", "time", "energy", "FLOPs"]
    return parts.section("The price", how, f'<div class="scroll">{parts.table(head, rows)}</div>{after}')


def _cost(price: Facts) -> str:
    energy = _energy(price["joules"]) if price.get("joules") else "–"
    flops = short(price["flops"]) if price.get("flops") else "–"
    return f"<td>{duration(price.get('seconds'))}</td><td>{energy}</td><td>{flops}</td>"


def _energy(joules: float) -> str:
    hours = joules / 3600
    return f"{1000 * hours:.3g} mWh" if hours < 1 else f"{hours:.3g} Wh" if hours < 1000 else f"{hours / 1000:,.3g} kWh"


def _data(facts: Facts) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in facts["check"])
    if not items:
        counts = ", ".join(f"{name} {count:,}" for name, count in facts["counts"].items() if count)
        items = f"<li>{escape(facts['format'])}</li><li>examples: {counts}</li>"
    return parts.section("The data", escape(facts["data"]), f'<ul class="notes">{items}</ul>')


def _use(facts: Facts) -> str:
    items = "".join(
        f"<li><code>{escape(command)}</code><br><small>{escape(what)}</small></li>"
        for command, what in facts["commands"]
    )
    return parts.section("How to use it", "", f'<ul class="notes">{items}</ul>') if items else ""
