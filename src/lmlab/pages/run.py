"""The page about one run: everything in one file, drawn from the facts that a report holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from lmlab.pages import alignments, parts, surprisal
from lmlab.pages.charts import PALETTE, Chart, Series, short
from lmlab.pages.page import fill_page
from lmlab.pages.samples import continued, filled

MARK = '<meta name="generator" content="lmlab report">'
"""By which a page is known as one of ours."""
Facts = Mapping[str, Any]


class Drawn(NamedTuple):
    """An alignment as it is drawn."""

    source: Sequence[str]
    target: Sequence[str]
    weights: Sequence[Sequence[float]]
    texts: tuple[str, str]


def make_page(facts: Facts) -> str:
    """The whole page; parts that do not exist are named at its end, with the reason."""
    sections = (
        _figures(facts),
        _curve(facts),
        _samples(facts),
        _surprisal(facts),
        _tokenizer(facts),
        _changes(facts),
        _settings(facts),
        _left_out(facts),
    )
    return fill_page(
        "run.html",
        title=escape(_name(facts)),
        tab_rules=parts.tab_rules(2),
        headline=escape(_name(facts) + _quality(facts)),
        lead=_lead(facts),
        sections="\n".join(section for section in sections if section),
    )


def _name(facts: Facts) -> str:
    return str(facts["run"]) if facts["run"] == facts["kind"] else f"{facts['run']}: {facts['kind']}"


def _quality(facts: Facts) -> str:
    held, valid = facts["held_out"], facts["validation"] or {}
    if held is not None:
        return f", {held['bits_per_byte']:.3f} {'pseudo-' * held['pseudo']}bits per byte on {facts['text']}"
    if "bits_per_byte" in valid:
        return f", {valid['bits_per_byte']:.3f} bits per byte on validation text"
    return f", loss {valid['loss']:.3f} on validation text" if valid else ""


def _lead(facts: Facts) -> str:
    what = f"{escape(facts['summary'])} ({escape(facts['paper'])})" if "summary" in facts else escape(facts["kind"])
    lead = f"{what[:1].upper()}{what[1:]}, with {facts['parameters']['total']:,} parameters."
    if price := facts["price"]:
        text = escape(str(facts["settings"].get("data", {}).get("text", "its text")))
        so_far = "" if price["finished"] else " so far"
        read = f"{price[price['counted']]:,} {price['counted']} of {text}"
        lead += f" It read {read} in training{so_far}, {_time(price['seconds'])} in all."
    return lead


def _time(seconds: float) -> str:
    return parts.duration(seconds) if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _section(title: str, how: str, content: str) -> str:
    about = f'<p class="how">{how}</p>' if how else ""
    return f"<section>\n<h2>{title}</h2>\n{about}\n{content}\n</section>"


def _figures(facts: Facts) -> str:
    """The final figures and the price tag."""
    tiles: list[tuple[str, str]] = []
    if valid := facts["validation"]:
        if "bits_per_byte" in valid:
            tiles.append((f"{valid['bits_per_byte']:.3f}", f"bits per byte, validation (step {valid['step']:,})"))
        else:
            tiles.append((f"{valid['loss']:.3f}", f"validation loss, nats per prediction (step {valid['step']:,})"))
        shares = {name: value for name, value in valid.items() if name.endswith(("accuracy", "recall", "share"))}
        tiles += [(f"{value:.1%}", f"{name.replace('_', ' ')}, validation") for name, value in shares.items()]
    if held := facts["held_out"]:
        pseudo = "pseudo-" * held["pseudo"]
        whole = "" if held["bytes"] >= held["of_bytes"] else f" of {parts.size(held['of_bytes'])}"
        what = f"{pseudo}bits per byte on {parts.size(held['bytes'])}{whole} of {escape(facts['text'])}"
        tiles.append((f"{held['bits_per_byte']:.3f}", what + ("; lossy" if held["lossy"] else "")))
        if held["perplexity"] is not None:
            tiles.append((f"{held['perplexity']:,.1f}", f"{pseudo}perplexity per token there"))
    size = facts["parameters"]
    tiles.append((short(size["total"]), f"parameters, {short(size['embedding'])} of them in embeddings"))
    if price := facts["price"]:
        read = f"{price['counted']} read, in {price['steps']:,} step{'s' * (price['steps'] != 1)}"
        tiles.append((short(price[price["counted"]]), read))
        tiles.append((_time(price["seconds"]), f"wall time, validation included; {price['cpu_seconds']:,.1f} CPU s"))
        if price["flops"]:
            tiles.append((short(price["flops"]), "training FLOPs"))
        method = f" ({escape(price['energy_method'])})" if "energy_method" in price else ""
        tiles.append((f"{short(price['joules'])} J", f"energy{method}"))
        place = f" at {price['grams_per_kwh']:g} g/kWh ({escape(price['country'])})" if "country" in price else ""
        tiles.append((f"{short(price['grams'])} g", f"CO2e{place}"))
    shown = "".join(f"<div><b>{value}</b><small>{what}</small></div>" for value, what in tiles)
    notes = []
    if held and held["pseudo"]:
        notes.append(
            "Pseudo-bits: each token was predicted from all others (pseudo-log-likelihood, Salazar et al. 2020). That "
            "is not comparable with left-to-right models."
        )
    if held and held["lossy"]:
        notes.append("The tokenizer loses part of the text, so bits per byte are too low.")
    if held and not facts["text"].startswith(("the test", "the validation")):
        notes.append(
            "Samples and scores are of a text that was given for this report. If the model was trained on it, they say "
            "how well it remembers, not how well it predicts."
        )
    after = f'<p class="after">{" ".join(notes)}</p>' if notes else ""
    return _section("Results and cost", "", f'<div class="figures">{shown}</div>{after}')


def _curve(facts: Facts) -> str:
    curve = facts["curve"]
    if curve is None:
        return ""
    charts, labels = [], []
    counted = curve["counted"]
    axes = {counted: (counted.capitalize(), f"{counted} read in training"), "seconds": ("Time", "seconds of training")}
    for axis, (label, words) in axes.items():
        series = [
            Series(name, colour, [(point[axis], point["value"]) for point in curve[name]])
            for name, colour in (("train", PALETTE[0]), ("valid", PALETTE[1]))
            if curve[name] and all(point[axis] > 0 for point in curve[name])
        ]
        if series:
            charts.append(Chart(f"curve-{axis}", f"Learning curve against {words}", words, curve["unit"], series))
            labels.append(label)
    if not charts:
        return ""
    how = (
        f"{curve['unit'][:1].upper()}{curve['unit'][1:]} on the batches that the model was trained on (train) and on "
        "text that it was not (valid). Lower is better; where train goes on falling and valid does not, the model "
        "learns its text by heart."
    )
    return _section("Learning curve", how, parts.tabs("curve", charts, labels))


def _samples(facts: Facts) -> str:
    samples, text = facts["samples"] or {}, escape(facts["text"])
    if found := samples.get("continuations"):
        cards = "".join(
            f"<article><small>temperature {each['temperature']:g}</small>{continued(each['prompt'], each['text'])}"
            "</article>"
            for each in found
        )
        how = (
            f"The model goes on from words of {text}. The lower the temperature, the more it keeps to what it finds "
            "most probable."
        )
        return _section("What it writes", how, f'<div class="cards">{cards}</div>')
    if found := samples.get("blanks"):
        cards = "".join(f"<article>{filled(each, each['filled'], each['sample'])}</article>" for each in found)
        how = (
            f"Words in sentences of {text} were masked, and the model predicts them from both sides. Underlined: what "
            "stood there; red: something else. Below, what stood there and the most probable tokens."
        )
        return _section("What it puts in place of masked words", how, f'<div class="cards">{cards}</div>')
    if found := samples.get("translations") or samples.get("reconstructions"):
        cards = "".join(_translation(each) for each in found)
        given = "held-out sources" if "translations" in samples else f"sentences of {text} with words left out"
        how = (
            f"What the model writes from {given}, found by beam search. In the matrix each row shows which source "
            "tokens the model attended to before it wrote that token (mean over the heads of the last block)."
        )
        return _section("What it writes from a source", how, f'<div class="cards wide">{cards}</div>')
    return ""


def _translation(fact: Facts) -> str:
    told = "".join(
        f"<dt>{name}</dt><dd{kind}>{escape(fact[key]) if fact[key].strip() else '(white space alone)'}</dd>"
        for name, key, kind in (
            ("source", "source", ""),
            ("model", "text", " class=written"),
            ("reference", "reference", ""),
        )
    )
    matrix = ""
    if "alignment" in fact:
        matrix = f'<div class="scroll">{alignments.draw_matrix(Drawn(**fact["alignment"]))}</div>'
    return f"<article><dl>{told}</dl>{matrix}</article>"


def _surprisal(facts: Facts) -> str:
    passages = facts["surprisal"]
    if not passages:
        return ""
    cards = []
    for passage in passages:
        source = f"<dl><dt>source</dt><dd>{escape(passage['source'])}</dd></dl>" if "source" in passage else ""
        bits = sum(bits for _, bits in passage["pieces"])
        total = f"<small>{bits:,.1f} bits in {len(passage['pieces'])} pieces</small>"
        cards.append(f'{source}{total}<pre class="heat">{surprisal.to_html(passage["pieces"])}</pre>')
    what = (
        "The reference translation of each source"
        if "source" in passages[0]
        else f"A passage of {escape(facts['text'])}"
    )
    how = (
        f"{what}, token by token: the stronger the colour, the less the model expected it. Point at a token to see its "
        "surprisal, −log₂ P, in bits."
    )
    key = f'<p class="heat key">{surprisal.legend()} bits</p>'
    return _section("What surprises it", how, key + "<br>".join(cards))


def _tokenizer(facts: Facts) -> str:
    told = facts["tokenizer"]
    if told is None:
        return ""
    lossy = "yes: part of a text is lost in its tokens" if told["lossy"] else "no: the text comes back from its tokens"
    shown: dict[str, Any] = {"kind": told["spec"], "vocabulary": f"{told['vocabulary']:,} types", "lossy": lossy}
    if "source" in told:
        shown["of the source"] = f"{told['source']['spec']}, {told['source']['vocabulary']:,} types"
    if "pieces" in told:
        shown["bytes per token"] = f"{told['bytes_per_token']:.2f}"
        shown["tokens per word"] = f"{told['tokens_per_word']:.2f}"
        shown["unknown tokens"] = f"{told['unknown_share']:.2%}"
    pieces = "".join(
        f"<span{' class=unknown' if unknown else ''}>{_visible(piece)}</span>"
        for piece, unknown in told.get("pieces", [])
    )
    cut = f'<h3>How it splits {escape(facts["text"])}</h3><pre class="pieces">{pieces}</pre>' if pieces else ""
    return _section("Tokenizer", "", f"<dl>{parts.facts(shown)}</dl>{cut}")


def _visible(piece: str) -> str:
    """A piece with signs for its white space; a line ends where the text does, and may break after any piece."""
    return escape(piece.replace(" ", "·")).replace("\\n", "⏎\n") + "<wbr>"


def _changes(facts: Facts) -> str:
    if facts["changes"] is None:
        return ""
    if not facts["changes"]:
        return _section("What was changed on the way", "", "<p>No change of settings is recorded.</p>")
    items = "".join(
        f"<li>{escape(', '.join(f'{name}: {value}' for name, value in change.items()))}</li>"
        for change in facts["changes"]
    )
    return _section("What was changed on the way", "", f'<ul class="notes">{items}</ul>')


def _settings(facts: Facts) -> str:
    groups = ""
    for name, group in facts["settings"].items():
        told = parts.facts({key: _value(value) for key, value in group.items()})
        groups += f"<div><h3>{escape(name)}</h3><dl>{told}</dl></div>"
    return _section("Settings", "", f'<div class="columns">{groups}</div>')


def _value(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _left_out(facts: Facts) -> str:
    if not facts["left_out"]:
        return ""
    items = "".join(f"<li><b>{escape(part)}</b>: {escape(reason)}</li>" for part, reason in facts["left_out"].items())
    return _section("Not in this report", "", f'<ul class="notes">{items}</ul>')
