"""The page about one run, from the facts of its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from lmlab.pages.evidence import Confusion, Evidence, Mistake
from lmlab.pages.figures import PALETTE, Chart, Heatmap, Point, Series
from lmlab.pages.formats import duration, short, size
from lmlab.pages.page import Tile, render
from lmlab.pages.samples import continued, filled
from lmlab.pages.scores import format_score
from lmlab.pages.views import draw_alignment

MARK = '<meta name="generator" content="lmlab report">'
"""By which a page is recognised as one of ours."""
Facts = Mapping[str, Any]
FRACTIONS = ("accuracy", "recall", "share")
"""Validation figures whose names end so are percentages."""


class Sample(NamedTuple):
    """A text that the model wrote, with the setting that it was written with."""

    subtitle: str
    shown: Markup


class ShownTranslation(NamedTuple):
    """A target that the model wrote from a source, with its alignment if the decoder has attention."""

    texts: dict[str, str]
    alignment: Heatmap | None


def make_page(facts: Facts) -> Markup:
    """The whole page; parts that do not exist are named at its end, with the reason."""
    return render(
        "run.html",
        name=_name(facts),
        facts=facts,
        quality=_quality(facts),
        tiles=_tiles(facts),
        remarks=_remarks(facts),
        curves=_curves(facts),
        samples=_samples(facts),
        translations=_translations(facts),
        tokenizer=_tokenizer(facts),
        evidence=_evidence(facts),
        format_score=format_score,
        settings={name: _values(group) for name, group in facts["settings"].items()},
    )


def _name(facts: Facts) -> str:
    return str(facts["run"]) if facts["run"] == facts["kind"] else f"{facts['run']}: {facts['kind']}"


def _quality(facts: Facts) -> str:
    held, valid = facts["held_out"], facts["validation"] or {}
    if held is not None:
        return f", {held['bits_per_byte']:.3f} {'pseudo-' * held['pseudo']}bits per byte on {facts['text']}"
    if "bits_per_byte" in valid:
        return f", {valid['bits_per_byte']:.3f} bits per byte on validation text"
    if facts.get("evidence") and "accuracy" in valid:
        return f", accuracy {valid['accuracy']:.1%} on validation pictures"
    return f", loss {valid['loss']:.3f} on validation text" if valid else ""


def _tiles(facts: Facts) -> list[Tile]:
    """The results and what they cost."""
    return [*_quality_tiles(facts), *_cost_tiles(facts)]


def _quality_tiles(facts: Facts) -> list[Tile]:
    tiles = []
    if valid := facts["validation"]:
        if "bits_per_byte" in valid:
            tiles.append(Tile(f"{valid['bits_per_byte']:.3f}", f"bits per byte, validation (step {valid['step']:,})"))
        else:
            tiles.append(Tile(f"{valid['loss']:.3f}", f"validation loss, nats per prediction (step {valid['step']:,})"))
        fractions = {name: value for name, value in valid.items() if name.endswith(FRACTIONS)}
        tiles += [Tile(f"{value:.1%}", f"{name.replace('_', ' ')}, validation") for name, value in fractions.items()]
    if held := facts["held_out"]:
        pseudo = "pseudo-" * held["pseudo"]
        whole = "" if held["bytes"] >= held["of_bytes"] else f" of {size(held['of_bytes'])}"
        what = f"{pseudo}bits per byte on {size(held['bytes'])}{whole} of {facts['text']}"
        tiles.append(Tile(f"{held['bits_per_byte']:.3f}", what + "; lossy" * held["lossy"]))
        if held["perplexity"] is not None:
            tiles.append(Tile(f"{held['perplexity']:,.1f}", f"{pseudo}perplexity per token there"))
    return tiles


def _cost_tiles(facts: Facts) -> list[Tile]:
    parameters = facts["parameters"]
    embeddings = f"parameters, {short(parameters['embedding'])} of them in embeddings"
    tiles = [Tile(short(parameters["total"]), embeddings)]
    if cost := facts["cost"]:
        read = f"{cost['counted']} read, in {cost['steps']:,} step{'s' * (cost['steps'] != 1)}"
        tiles.append(Tile(short(cost[cost["counted"]]), read))
        wall = f"wall time, validation included; {cost['cpu_seconds']:,.1f} CPU s"
        tiles.append(Tile(duration(cost["seconds"]), wall))
        if cost["flops"]:
            tiles.append(Tile(short(cost["flops"]), "training FLOPs"))
        method = f" ({cost['energy_method']})" if "energy_method" in cost else ""
        tiles.append(Tile(f"{short(cost['joules'])} J", f"energy{method}"))
        country = f" at {cost['grams_per_kwh']:g} g/kWh ({cost['country']})" if "country" in cost else ""
        tiles.append(Tile(f"{short(cost['grams'])} g", f"CO2e{country}"))
    return tiles


def _remarks(facts: Facts) -> list[str]:
    """What has to be known to read the scores."""
    held = facts["held_out"]
    if not held:
        return []
    remarks = []
    if held["pseudo"]:
        remarks.append(
            "Pseudo-bits: each token was predicted from all others (pseudo-log-likelihood, Salazar et al. 2020). That "
            "is not comparable with left-to-right models."
        )
    if held["lossy"]:
        remarks.append("The tokenizer loses part of the text, so bits per byte are too low.")
    if not facts["text"].startswith(("the test", "the validation")):
        remarks.append(
            "Samples and scores are of a text that was given for this report. If the model was trained on it, they "
            "measure memorization, not prediction."
        )
    return remarks


def _curves(facts: Facts) -> dict[str, Chart]:
    """The learning curve against what was read and against time, by the names of their tabs."""
    curve = facts["curve"]
    if curve is None:
        return {}
    counted = curve["counted"]
    axes = {counted: (counted.capitalize(), f"{counted} read in training"), "seconds": ("Time", "seconds of training")}
    charts = {}
    for axis, (tab, words) in axes.items():
        series = [
            Series(name, colour, [Point(point[axis], point["value"]) for point in curve[name]])
            for name, colour in (("train", PALETTE[0]), ("valid", PALETTE[1]))
            if curve[name] and all(point[axis] > 0 for point in curve[name])
        ]
        if series:
            title = f"Learning curve against {words}"
            charts[tab] = Chart(f"curve-{axis}", title, words, curve["unit"], series)
    return charts


def _samples(facts: Facts) -> list[Sample]:
    """Continuations at several temperatures, or sentences with masked words."""
    samples = facts["samples"] or {}
    if found := samples.get("continuations"):
        return [
            Sample(f"temperature {each['temperature']:g}", continued(each["prompt"], each["text"])) for each in found
        ]
    return [Sample("", filled(each, each["filled"], each["sample"])) for each in samples.get("masked") or []]


def _translations(facts: Facts) -> list[ShownTranslation]:
    samples = facts["samples"] or {}
    found = samples.get("translations") or samples.get("reconstructions") or []
    keys = {"source": "source", "model": "text", "reference": "reference"}
    return [
        ShownTranslation(
            {name: each[key] if each[key].strip() else "(only white space)" for name, key in keys.items()},
            draw_alignment(*(each["alignment"][side] for side in ("source", "target", "weights")))
            if "alignment" in each
            else None,
        )
        for each in found
    ]


def _tokenizer(facts: Facts) -> dict[str, str]:
    found = facts["tokenizer"]
    if found is None:
        return {}
    lossy = "yes: part of a text is lost in its tokens" if found["lossy"] else "no: the text comes back from its tokens"
    shown = {"kind": found["spec"], "vocabulary": f"{found['vocabulary']:,} types", "lossy": lossy}
    if "source" in found:
        shown["of the source"] = f"{found['source']['spec']}, {found['source']['vocabulary']:,} types"
    if "pieces" in found:
        shown["bytes per token"] = f"{found['bytes_per_token']:.2f}"
        shown["tokens per word"] = f"{found['tokens_per_word']:.2f}"
        shown["unknown tokens"] = f"{found['unknown_share']:.2%}"
    return shown


def _evidence(facts: Facts) -> Evidence | None:
    """The confusion matrix and the worst mistakes of a run that has learnt classes."""
    found = facts.get("evidence")
    if found is None:
        return None
    return Evidence(
        count=found["count"],
        wrong=found["wrong"],
        mistakes=[Mistake(**each) for each in found["mistakes"]],
        summary=found["summary"],
        confusion=None if found["confusion"] is None else Confusion(**found["confusion"]),
    )


def _values(group: Facts) -> dict[str, str]:
    return {key: _value(value) for key, value in group.items()}


def _value(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, Sequence) and not isinstance(value, str) else str(value)
