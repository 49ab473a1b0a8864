"""Carbon intensity of electricity by country.

Life-cycle intensity of the electricity generated in a year, in grams of CO2 equivalents per kWh. Source of the
countries: Ember, as published by Our World in Data ("Carbon intensity of electricity generation", 2023). Source of the
world: Ember, Global Electricity Review 2025 (2024). Averages over a year and a country: the hour and the supplier may
matter more.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from lmlab.config import suggest

VARIABLE = "LMLAB_COUNTRY"


class Grid(NamedTuple):
    """The electricity of one country."""

    code: str  # ISO 3166 alpha-2, or WORLD
    alpha3: str
    name: str
    grams_per_kwh: float
    year: int = 2023

    def grams(self, joules: float) -> float:
        """Grams of CO2e for an amount of energy."""
        return joules / 3.6e6 * self.grams_per_kwh

    @property
    def source(self) -> str:
        return f"Ember, {self.year}" if self.code == "WORLD" else f"Ember / Our World in Data, {self.year}"


WORLD = Grid("WORLD", "", "world", 473.0, 2024)
GRIDS: dict[str, Grid] = {
    grid.code: grid
    for grid in (
        WORLD,
        Grid("AR", "ARG", "Argentina", 354),
        Grid("AT", "AUT", "Austria", 111),
        Grid("AU", "AUS", "Australia", 549),
        Grid("BD", "BGD", "Bangladesh", 691),
        Grid("BE", "BEL", "Belgium", 138),
        Grid("BG", "BGR", "Bulgaria", 335),
        Grid("BR", "BRA", "Brazil", 98),
        Grid("CA", "CAN", "Canada", 170),
        Grid("CH", "CHE", "Switzerland", 35),
        Grid("CL", "CHL", "Chile", 291),
        Grid("CN", "CHN", "China", 582),
        Grid("CO", "COL", "Colombia", 260),
        Grid("CR", "CRI", "Costa Rica", 53),
        Grid("CY", "CYP", "Cyprus", 534),
        Grid("CZ", "CZE", "Czechia", 450),
        Grid("DE", "DEU", "Germany", 381),
        Grid("DK", "DNK", "Denmark", 152),
        Grid("EE", "EST", "Estonia", 417),
        Grid("EG", "EGY", "Egypt", 570),
        Grid("ES", "ESP", "Spain", 174),
        Grid("FI", "FIN", "Finland", 79),
        Grid("FR", "FRA", "France", 56),
        Grid("GB", "GBR", "United Kingdom", 238),
        Grid("GR", "GRC", "Greece", 337),
        Grid("HR", "HRV", "Croatia", 205),
        Grid("HU", "HUN", "Hungary", 204),
        Grid("IE", "IRL", "Ireland", 291),
        Grid("IN", "IND", "India", 713),
        Grid("IR", "IRN", "Iran", 655),
        Grid("IT", "ITA", "Italy", 331),
        Grid("JP", "JPN", "Japan", 485),
        Grid("KE", "KEN", "Kenya", 71),
        Grid("KR", "KOR", "South Korea", 431),
        Grid("LT", "LTU", "Lithuania", 160),
        Grid("LV", "LVA", "Latvia", 124),
        Grid("MX", "MEX", "Mexico", 507),
        Grid("MY", "MYS", "Malaysia", 606),
        Grid("NL", "NLD", "Netherlands", 268),
        Grid("NO", "NOR", "Norway", 30),
        Grid("NZ", "NZL", "New Zealand", 113),
        Grid("PL", "POL", "Poland", 662),
        Grid("PT", "PRT", "Portugal", 166),
        Grid("RO", "ROU", "Romania", 241),
        Grid("RU", "RUS", "Russia", 441),
        Grid("SE", "SWE", "Sweden", 41),
        Grid("SG", "SGP", "Singapore", 471),
        Grid("SI", "SVN", "Slovenia", 231),
        Grid("SK", "SVK", "Slovakia", 117),
        Grid("TH", "THA", "Thailand", 550),
        Grid("TR", "TUR", "Turkey", 464),
        Grid("TW", "TWN", "Taiwan", 642),
        Grid("US", "USA", "United States", 369),
        Grid("ZA", "ZAF", "South Africa", 708),
    )
}


def find_grid(name: str | None = None) -> Grid:
    """The grid of a country, by its code of two or three letters or its English name; the nearest is suggested.

    Without a name it is the one in the environment variable LMLAB_COUNTRY, else the world's.
    """
    given = name if name is not None else os.environ.get(VARIABLE) or WORLD.code
    for grid in GRIDS.values():
        if given.strip().casefold() in (grid.code.casefold(), grid.alpha3.casefold() or None, grid.name.casefold()):
            return grid
    where = "" if name is not None else f" in {VARIABLE}"
    by_name = {grid.name.casefold(): grid.code for grid in GRIDS.values()}
    near = suggest(given.casefold(), by_name) if len(given) > 3 else suggest(given.upper(), GRIDS)
    raise ValueError(f"no carbon intensity is known for country {given!r}{where}{near}; WORLD is the world average")
