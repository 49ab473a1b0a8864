"""Parts of a page that several pages share: bars with whiskers, tabs, cards, a table of differences, lists of facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from lmlab.pages.charts import Chart, short, to_svg


def table(head: Sequence[str], rows: Iterable[str], *, kind: str = "") -> str:
    """Rows of cells, all of them HTML, under a head."""
    cells = "".join(f"<th>{cell}</th>" for cell in head)
    opened = f'<table class="{kind}">' if kind else "<table>"
    return f"{opened}<thead><tr>{cells}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def name_tag(name: str, colour: str, *, mark: str = "") -> str:
    """A name with its colour, and a mark after it."""
    return f'<b class="name" style="--c:{colour}">{escape(name)}{mark}</b>'


def bar(value: float, widest: float, colour: str, *, low: float | None = None, high: float | None = None) -> str:
    """A bar as long as a value, with a whisker over its interval."""
    whisker = ""
    if low is not None and high is not None:
        whisker = f'<i style="left:{_share(low, widest)};width:{_share(high - low, widest)}"></i>'
    return f'<div><span style="width:{_share(value, widest)};--c:{colour}"></span>{whisker}</div>'


def _share(value: float, widest: float) -> str:
    return f"{100 * value / widest:.2f}%"


def number(value: float | None) -> str:
    """A number as people read it, or a dash."""
    return short(value) if value else "–"


def duration(value: float | None) -> str:
    """Seconds or minutes."""
    if value is None:
        return "–"
    return f"{value:.1f} s" if value < 120 else f"{value / 60:.1f} min"


def size(count: float) -> str:
    """So many bytes."""
    for many, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= many:
            return f"{count / many:.3g} {unit}"
    return f"{count:g} bytes"


def tabs(group: str, charts: Sequence[Chart], labels: Sequence[str]) -> str:
    """Charts behind tabs that work without any script."""
    buttons = "".join(
        f'<input type="radio" name="{group}" id="{chart.name}"{" checked" if i == 0 else ""}>'
        f'<label for="{chart.name}">{label}</label>'
        for i, (chart, label) in enumerate(zip(charts, labels, strict=True))
    )
    return f'<div class="tabs">{buttons}{"".join(f"<figure>{to_svg(chart)}</figure>" for chart in charts)}</div>'


def tab_rules(most: int) -> str:
    """The n-th tab shows the n-th figure."""
    rule = ".tabs input:nth-of-type({n}):checked ~ figure:nth-of-type({n}) {{ display: block }}"
    return "\n".join(rule.format(n=n) for n in range(1, most + 1))


def chips(items: Iterable[str]) -> str:
    """Short items, HTML each, side by side."""
    return f"<ul class=chips>{''.join(f'<li>{item}</li>' for item in items)}</ul>"


def matrix(names: Sequence[str], differences: Iterable[Mapping[str, Any]], *, unit: str) -> str:
    """Every pair of names, best first: how far the one above is behind the one on the left, and if significantly."""
    found = {frozenset((each["better"], each["worse"])): each for each in differences}
    rows = []
    for i, better in enumerate(names[:-1]):
        cells = ["<td></td>"] * i
        for worse in names[i + 1 :]:
            each = found[frozenset((better, worse))]
            told = f"{escape(each['better'])} is {each['value']:.4f} {unit} better than {escape(each['worse'])}"
            if each["low"] is not None:
                told += f" (95%: {each['low']:.4f} to {each['high']:.4f}; p = {each['p']:.2g})"
            kind = "significant" if each["significant"] else "tie"
            note = "<small>paired test</small>" if each.get("paired_only") else ""
            cells.append(f'<td class="{kind}" title="{told}">{each["value"]:.3f}{note}</td>')
        rows.append(f"<tr><th>{escape(better)}</th>{''.join(cells)}</tr>")
    return table(["", *(f"<span>{escape(name)}</span>" for name in names[1:])], rows, kind="matrix")


def facts(told: Mapping[str, Any]) -> str:
    """Names and values, for a definition list."""
    return "".join(f"<dt>{escape(name)}</dt><dd>{escape(str(value))}</dd>" for name, value in told.items())


def section(title: str, how: str, content: str) -> str:
    """A part of a page under its title, all of it HTML, with a line of what it is about."""
    about = f'<p class="how">{how}</p>' if how else ""
    return f"<section>\n<h2>{title}</h2>\n{about}\n{content}\n</section>"
