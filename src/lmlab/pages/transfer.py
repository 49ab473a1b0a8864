"""The page of a study: scores and baselines, mistakes, calibration and cost."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from lmlab.pages import evidence, parts
from lmlab.pages.figures import PALETTE
from lmlab.pages.formats import duration, short
from lmlab.pages.headline import Cost, StudyFacts, format_headline, format_lead, key_numbers
from lmlab.pages.page import fill_page
from lmlab.pages.plots import Curve, Measured, draw_curves
from lmlab.pages.scores import (
    COLOURS,
    ScoreRow,
    difference_cell,
    draw_scores,
    format_interval,
    format_layers,
    format_learner,
    format_metric,
    format_score,
)

KINDS = {
    "run": "lmlab · fine-tuning",
    "curve": "lmlab · learning curve",
    "layers": "lmlab · layers compared",
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


def make_page(facts: StudyFacts) -> str:
    """The whole page; empty sections are left out."""
    sections = (
        _grid(facts) if facts.kind == "comparison" else "",
        _curve(facts) if facts.kind == "curve" else "",
        _layers(facts) if facts.kind == "layers" else "",
        _scores(facts),
        _evidence(facts),
        _mix(facts),
        _costs(facts),
        _data(facts),
        _use(facts),
    )
    return fill_page(
        "transfer.html",
        title=escape(format_headline(facts)),
        kind=KINDS[facts.kind],
        headline=escape(format_headline(facts)),
        lead=format_lead(facts),
        figures=_figures(facts),
        sections="\n".join(section for section in sections if section),
    )


def _evidence(facts: StudyFacts) -> str:
    """What the predictions of one model show."""
    found, about = facts.evidence, escape(facts.evidence_of)
    if found is None:
        return ""
    return "\n".join(
        (
            evidence.show_confusion(found, about=about, classes=len(facts.labels)),
            evidence.show_scatter(found, about=about),
            evidence.show_mistakes(found, about=about),
            evidence.show_calibration(found, about=about),
        )
    )


def _figures(facts: StudyFacts) -> str:
    numbers = key_numbers(facts)
    tiles = "".join(f"<div><b>{escape(value)}</b><small>{escape(what)}</small></div>" for value, what in numbers)
    return f'<div class="figures">{tiles}</div>' if len(numbers) > 1 else ""


def _intervals(facts: StudyFacts, rows: Sequence[ScoreRow]) -> str:
    """What the intervals in the chart cover."""
    text = SEED_INTERVAL if any(len(row.seeds) > 1 for row in rows) else TEST_INTERVAL
    old = " Predictions are missing, so those of several seeds are put together from the intervals of each."
    missing = any(row.label in facts.untested and len(row.seeds) > 1 for row in rows)
    return text.format(units=facts.resampled) + old * missing


def _explain_differences(facts: StudyFacts, rows: Sequence[ScoreRow]) -> str:
    """What the column of differences shows."""
    lead = facts.lead if any(row is facts.lead for row in rows) else None
    if lead is None or not any(row.difference for row in rows):
        return ""
    return (
        f'<p class="after">Difference: how far {escape(format_learner(lead))} is ahead (+) or behind (−), in a paired '
        "test on the same examples, with the 95% interval of this pair alone. The p-value is corrected for the number "
        f"of tests ({facts.tests}, Holm); bold: below 0.05, significant. A difference can be significant where "
        "whiskers overlap, for the test is paired.</p>"
    )


def _scores(facts: StudyFacts) -> str:
    """All rows; of a curve those with most examples, of layers the baselines alone."""
    rows, metric = list(facts.rows), facts.metric
    title = "Scores and baselines"
    if facts.kind == "layers":
        rows = [row for row in rows if row.is_baseline]
        title = "Baselines"
    if facts.kind == "curve":
        most = max((row.examples for row in rows), default=0)
        rows = [row for row in rows if row.examples == most]
        title = f"Scores with {most:,} examples"
    if not rows:
        return ""
    if facts.kind == "comparison":
        rows.sort(key=lambda row: -row.rank(metric))
    rows.sort(key=lambda row: row.is_baseline)
    if len(rows) == 1:
        title = "Score"
    lead = facts.lead if any(row is facts.lead for row in rows) else None
    apart = facts.split == "test" or "selection" in facts.counts
    how = (
        f"On {facts.count:,} {escape(facts.split)} examples. {APART if apart else CHOSEN_ON} {_intervals(facts, rows)}"
    )
    drawn = draw_scores(rows, metric, lead=lead if len(rows) > 1 else None)
    return parts.section(title, how, drawn + _explain_differences(facts, rows))


def _layers(facts: StudyFacts) -> str:
    rows = [row for row in facts.rows if not row.is_baseline]
    best = max(rows, key=lambda row: row.rank(facts.metric), default=None)
    how = (
        "The model stays as it is, and a new head reads the layers named: the table of Devlin et al. 2019. Where the "
        f"axis does not begin at zero, there are points instead of bars. {_intervals(facts, rows)}"
    )
    names = [format_layers(row.layers) for row in rows]
    drawn = draw_scores(rows, facts.metric, names=names, lead=best, near=True)
    return parts.section("Which layers to read", how, drawn + _explain_differences(facts, rows))


def _curve(facts: StudyFacts) -> str:
    """A line for each model and method, by the number of examples."""
    metric = facts.metric
    groups: dict[tuple[str, str, str], list[ScoreRow]] = {}
    for row in facts.rows:
        groups.setdefault((row.name, row.method, row.layers), []).append(row)
    models = [key for key in groups if key[1] != "baseline"]
    greys = iter(("#8a929e", "#b08d57", "#6b7a8f", "#a3768c"))
    curves = []
    for key, rows in groups.items():
        points = [_measured(row, metric) for row in sorted(rows, key=lambda row: row.examples) if _known(row, metric)]
        if key[1] == "baseline":
            colour = next(greys, "#8a929e")
        elif len({how for _, how, _ in models}) == len(models):
            colour = COLOURS.get(key[1], PALETTE[0])
        else:
            colour = PALETTE[models.index(key) % len(PALETTE)]
        if points:
            curves.append(Curve(format_learner(rows[0]), colour, points, dashed=key[1] == "baseline"))
    if not curves:
        return ""
    title = f"{format_metric(metric)} by the number of training examples"
    drawn = draw_curves(
        curves, title=title, x_label="training examples (logarithmic)", y_label=f"{format_metric(metric)} (times 100)"
    )
    how = (
        "Score by the number of training examples; the examples of a smaller number are among "
        "those of a larger one. Dashed: no language model. Whiskers are 95% "
        "intervals"
    )
    several = any(len(row.seeds) > 1 for row in facts.rows)
    how += (
        " for other seeds, which draw other training examples, and other test examples; rings are single seeds."
        if several
        else " for other test examples, not for other seeds."
    )
    shown = [row for row in facts.rows if not row.is_baseline]
    baselines = list(dict.fromkeys(row.name for row in facts.rows if row.difference))
    cells = [
        f"<tr><td>{escape(format_learner(row))}</td><td>{row.examples:,}</td><td><b>{format_score(row.values[metric].value)}</b>"
        f"</td><td>{format_interval(row.values[metric]) or '–'}</td>"
        f"<td>{' · '.join(map(format_score, row.seeds)) if len(row.seeds) > 1 else '–'}</td>"
        f"{''.join(_difference_at(facts, row, name) for name in baselines)}</tr>"
        for row in shown
    ]
    head = ["model", "examples", escape(format_metric(metric)), "95% interval", "each seed"]
    head += [f"ahead of {escape(name)}" for name in baselines]
    table = parts.table(head, cells, kind="narrow")
    return parts.section(
        "How many examples are needed", how, f'<figure class="wide">{drawn}</figure><div class="scroll">{table}</div>'
    )


def _difference_at(facts: StudyFacts, row: ScoreRow, baseline: str) -> str:
    """How far a row of a curve is ahead of a baseline that learnt from as many examples."""
    same = (each for each in facts.rows if (each.name, each.examples) == (baseline, row.examples))
    return difference_cell(next((each.difference for each in same), None))


def _known(row: ScoreRow, metric: str) -> bool:
    return row.values[metric].value is not None


def _measured(row: ScoreRow, metric: str) -> Measured:
    found = row.values[metric]
    value, low, high = (None if each is None else 100 * each for each in found)
    assert value is not None
    seeds = [100 * seed for seed in row.seeds if seed is not None]
    return Measured(row.examples, value, low, high, seeds)


def _grid(facts: StudyFacts) -> str:
    """Runs in rows, methods in columns."""
    metric = facts.metric
    rows = [row for row in facts.rows if not row.is_baseline]
    found = {(row.name, row.method): row for row in rows}
    names, methods = (list(dict.fromkeys(each)) for each in ((row.name for row in rows), (row.method for row in rows)))
    best = max(rows, key=lambda row: row.rank(metric), default=None)
    lines = []
    for name in names:
        cells = ""
        for method in methods:
            row = found.get((name, method))
            kind = ' class="best"' if row is not None and row is best else ""
            score = "–" if row is None else f"<b>{format_score(row.values[metric].value)}</b>"
            cells += f"<td{kind}>{score}<small>{format_interval(row.values[metric]) if row else ''}</small></td>"
        lines.append(f"<tr><td><b>{escape(name)}</b></td>{cells}</tr>")
    how = f"{escape(format_metric(metric))} of each model (rows) and method (columns), with 95% intervals."
    table = parts.table(["", *map(escape, methods)], lines, kind="grid")
    return parts.section("Models and methods", how[:1].upper() + how[1:], f'<div class="scroll">{table}</div>')


def _mix(facts: StudyFacts) -> str:
    if not facts.mixes:
        return ""
    content = ""
    for mix in facts.mixes:
        widest = max(mix.high)
        rows = []
        for layer, weight in enumerate(mix.weights):
            low, high = (mix.low[layer], mix.high[layer]) if mix.seeds > 1 else (None, None)
            name = "embeddings" if layer == 0 else f"layer {layer}"
            title = f"{name}: {format_score(weight)}%"
            bar = parts.bar(weight, widest, COLOURS["mix"], low=low, high=high)
            bar = bar.replace("<div>", f'<div role="img" aria-label="{title}" title="{title}">', 1)
            rows.append(f'<tr><td>{name}</td><td class="scale">{bar}</td><td><b>{format_score(weight)}%</b></td></tr>')
        gamma = "" if mix.gamma is None else f", γ = {mix.gamma:.3f}"
        examples = f", {mix.examples:,} examples" if facts.kind == "curve" else ""
        content += f"<h3>{escape(mix.name)}{examples}{gamma}</h3>{parts.table(['', '', 'weight'], rows, kind='scores')}"
    how = (
        "The head reads γ · Σ sₗ hₗ, a learnt mix of all layers (Peters et al. 2018): how much each layer weighs. Of "
        "several seeds the mean, with a whisker from the lowest to the highest."
    )
    return parts.section("Which layers the task asks for", how, content)


def _costs(facts: StudyFacts) -> str:
    rows = []
    for row in facts.rows:
        if row.is_baseline:
            continue
        seeds = f"<small>each of {len(row.seeds)} seeds</small>" if len(row.seeds) > 1 else ""
        rate = "–" if row.rate is None else f"{row.rate:.3g}"
        cells = f"<td>{row.examples:,}</td><td>{row.steps or '–'}</td><td>{rate}</td>{_cost(row)}"
        way = format_learner(row, always=facts.kind == "layers")
        rows.append(f"<tr><td>{escape(way)}{seeds}</td>{cells}</tr>")
    for number, (name, known) in enumerate(facts.pretraining.items()):
        cost = _cost(known) if known else "<td colspan=3>not known (it was not trained here)</td>"
        kind = ' class="apart"' if number == 0 else ""
        rows.append(
            f"<tr{kind}><td><b>{escape(name)}, pre-training</b><small>spent once, before the task</small></td>"
            f"<td></td><td></td><td></td>{cost}</tr>"
        )
    if not rows:
        return ""
    baselines = sum(row.seconds * len(row.seeds) for row in facts.rows if row.is_baseline)
    how = "What learning the task costs, and below the line what the model that it began with had cost before."
    after = (
        f'<p class="after">The baselines without a language model took {duration(baselines)} in all.</p>'
        if baselines
        else ""
    )
    head = ["", "examples", "steps", "learning rate", "time", "energy", "FLOPs"]
    return parts.section("Cost", how, f'<div class="scroll">{parts.table(head, rows)}</div>{after}')


def _cost(cost: ScoreRow | Cost) -> str:
    energy = _energy(cost.joules) if cost.joules else "–"
    flops = short(cost.flops) if cost.flops else "–"
    return f"<td>{duration(cost.seconds)}</td><td>{energy}</td><td>{flops}</td>"


def _energy(joules: float) -> str:
    hours = joules / 3600
    return f"{1000 * hours:.3g} mWh" if hours < 1 else f"{hours:.3g} Wh" if hours < 1000 else f"{hours / 1000:,.3g} kWh"


def _data(facts: StudyFacts) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in facts.check)
    if not items:
        counts = ", ".join(f"{name} {count:,}" for name, count in facts.counts.items() if count)
        items = f"<li>{escape(facts.format)}</li><li>examples: {counts}</li>"
    return parts.section("The data", escape(facts.data), f'<ul class="notes">{items}</ul>')


def _use(facts: StudyFacts) -> str:
    items = "".join(
        f"<li><code>{escape(command)}</code><br><small>{escape(what)}</small></li>" for command, what in facts.commands
    )
    return parts.section("How to use it", "", f'<ul class="notes">{items}</ul>') if items else ""
