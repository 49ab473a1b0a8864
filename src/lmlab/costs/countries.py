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


class ElectricityGrid(NamedTuple):
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


WORLD = ElectricityGrid("WORLD", "", "world", 473.0, 2024)
GRIDS: dict[str, ElectricityGrid] = {
    grid.code: grid
    for grid in (
        WORLD,
        ElectricityGrid("AR", "ARG", "Argentina", 354),
        ElectricityGrid("AT", "AUT", "Austria", 111),
        ElectricityGrid("AU", "AUS", "Australia", 549),
        ElectricityGrid("BD", "BGD", "Bangladesh", 691),
        ElectricityGrid("BE", "BEL", "Belgium", 138),
        ElectricityGrid("BG", "BGR", "Bulgaria", 335),
        ElectricityGrid("BR", "BRA", "Brazil", 98),
        ElectricityGrid("CA", "CAN", "Canada", 170),
        ElectricityGrid("CH", "CHE", "Switzerland", 35),
        ElectricityGrid("CL", "CHL", "Chile", 291),
        ElectricityGrid("CN", "CHN", "China", 582),
        ElectricityGrid("CO", "COL", "Colombia", 260),
        ElectricityGrid("CR", "CRI", "Costa Rica", 53),
        ElectricityGrid("CY", "CYP", "Cyprus", 534),
        ElectricityGrid("CZ", "CZE", "Czechia", 450),
        ElectricityGrid("DE", "DEU", "Germany", 381),
        ElectricityGrid("DK", "DNK", "Denmark", 152),
        ElectricityGrid("EE", "EST", "Estonia", 417),
        ElectricityGrid("EG", "EGY", "Egypt", 570),
        ElectricityGrid("ES", "ESP", "Spain", 174),
        ElectricityGrid("FI", "FIN", "Finland", 79),
        ElectricityGrid("FR", "FRA", "France", 56),
        ElectricityGrid("GB", "GBR", "United Kingdom", 238),
        ElectricityGrid("GR", "GRC", "Greece", 337),
        ElectricityGrid("HR", "HRV", "Croatia", 205),
        ElectricityGrid("HU", "HUN", "Hungary", 204),
        ElectricityGrid("IE", "IRL", "Ireland", 291),
        ElectricityGrid("IN", "IND", "India", 713),
        ElectricityGrid("IR", "IRN", "Iran", 655),
        ElectricityGrid("IT", "ITA", "Italy", 331),
        ElectricityGrid("JP", "JPN", "Japan", 485),
        ElectricityGrid("KE", "KEN", "Kenya", 71),
        ElectricityGrid("KR", "KOR", "South Korea", 431),
        ElectricityGrid("LT", "LTU", "Lithuania", 160),
        ElectricityGrid("LV", "LVA", "Latvia", 124),
        ElectricityGrid("MX", "MEX", "Mexico", 507),
        ElectricityGrid("MY", "MYS", "Malaysia", 606),
        ElectricityGrid("NL", "NLD", "Netherlands", 268),
        ElectricityGrid("NO", "NOR", "Norway", 30),
        ElectricityGrid("NZ", "NZL", "New Zealand", 113),
        ElectricityGrid("PL", "POL", "Poland", 662),
        ElectricityGrid("PT", "PRT", "Portugal", 166),
        ElectricityGrid("RO", "ROU", "Romania", 241),
        ElectricityGrid("RU", "RUS", "Russia", 441),
        ElectricityGrid("SE", "SWE", "Sweden", 41),
        ElectricityGrid("SG", "SGP", "Singapore", 471),
        ElectricityGrid("SI", "SVN", "Slovenia", 231),
        ElectricityGrid("SK", "SVK", "Slovakia", 117),
        ElectricityGrid("TH", "THA", "Thailand", 550),
        ElectricityGrid("TR", "TUR", "Turkey", 464),
        ElectricityGrid("TW", "TWN", "Taiwan", 642),
        ElectricityGrid("US", "USA", "United States", 369),
        ElectricityGrid("ZA", "ZAF", "South Africa", 708),
    )
}


def find_grid(name: str | None = None) -> ElectricityGrid:
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
