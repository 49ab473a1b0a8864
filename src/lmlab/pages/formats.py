"""Numbers as people read them."""

from __future__ import annotations

import math


def short(value: float) -> str:
    """A number in few characters: 1.2M, 340k, 0.05; powers of ten where it is larger than that."""
    if value == 0:
        return "0"
    for size, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size <= abs(value) < 1e12:
            return f"{value / size:.3g}{sign}"
    if 0.001 <= abs(value) < 1000:
        return f"{value:.3g}"
    power = math.floor(math.log10(abs(value)))
    digits = str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    factor = f"{value / 10.0**power:.3g}"
    return f"10{digits}" if factor == "1" else f"{factor}·10{digits}"


def number(value: float | None) -> str:
    """A number in few characters, or a dash."""
    return short(value) if value else "–"


def duration(seconds: float | None) -> str:
    """Seconds, minutes or hours; a dash where they are not known."""
    if seconds is None:
        return "–"
    if seconds >= 7200:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def size(count: float) -> str:
    """A number of bytes: 1.2 MB."""
    for many, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= many:
            return f"{count / many:.3g} {unit}"
    return f"{count:g} bytes"


def energy(joules: float | None) -> str:
    """Watt-hours with their prefix; a dash where there are none."""
    if not joules:
        return "–"
    hours = joules / 3600
    return f"{1000 * hours:.3g} mWh" if hours < 1 else f"{hours:.3g} Wh" if hours < 1000 else f"{hours / 1000:,.3g} kWh"
