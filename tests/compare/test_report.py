"""The report is one whole file, escaped and offline; its charts are right where they can be checked."""

from __future__ import annotations

import csv
import html.parser
import itertools
import math
import random
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from compare_texts import small
from lmlab.compare.comparison import Published, compare
from lmlab.compare.contests import CONTESTS
from lmlab.compare.leaderboard import headline, read_rankings, verdict
from lmlab.compare.notes import disturbed, overspent, unspent
from lmlab.compare.ranking import Ranking
from lmlab.compare.records import (
    COSTS,
    choose_basis,
    heading,
    last_doubling,
    mean_costs,
    spent,
    validation_seconds,
)
from lmlab.compare.statistics import LEVEL
from lmlab.pages import parts, surprisal
from lmlab.pages.charts import Chart, Series, linear_ticks, log_ticks, pareto_front, short, spread, to_svg
from lmlab.recipe import make_recipe
from lmlab.training.loop import Progress


class Nesting(html.parser.HTMLParser):
    """Follows the tags; whatever is opened must be closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attributes if name in ("src", "href", "action", "data")]
        if tag not in ("meta", "input", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None: ...

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(page: str) -> Nesting:
    parser = Nesting()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser


def test_the_page_is_whole_and_asks_nobody_for_anything(done: Published) -> None:
    page = done.report.read_text()
    parsed = read(page)
    assert parsed.addresses == []
    assert set(re.findall(r"https?://[^\s\"'<]+", page)) <= {"http://www.w3.org/2000/svg"}
    assert "@import" not in page
    assert "url(" not in page
    assert not re.search(r"\$[a-z_]+", page), "every place is filled in"


def test_the_page_says_what_matters(done: Published) -> None:
    text = " ".join("".join(read(done.report.read_text()).text).split())
    for entry in done.board["entries"]:
        assert f"{entry['bits_per_byte']:.3f}" in text
    assert headline(read_rankings(done.board)[0]) in text
    assert "1280 tokens" in text
    for note in done.board["notes"]:
        assert note in text
    assert done.board["conditions"]["text_sha256"] in text
    assert "do not count towards the budget" in text
    assert "gives the same scores on the same machine" in text


def test_text_cannot_break_out(book: Path, tmp_path: Path) -> None:
    done = compare(small(book, models="ngram", prompt="</p><script>alert(1)</script>"), tmp_path / "hostile")
    page = done.report.read_text()
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "<b>shines</b>" not in page, "the test text holds markup"
    read(page)
    read(surprisal.to_html([('"><img src=x>', 3.0), ("\n", 0.5)]))


def test_the_passages_are_the_same_text_for_all(done: Published) -> None:
    shown = re.findall(r'<pre class="heat">(.*?)</pre>', done.report.read_text(), flags=re.DOTALL)
    texts = {re.sub(r"<[^>]+>", "", passage) for passage in shown}
    assert len(shown) == 3
    assert len(texts) == 1


def test_a_budget_in_time_is_called_noisy(book: Path, tmp_path: Path) -> None:
    done = compare(small(book, models="ngram", budget="5s"), tmp_path / "timed")
    assert "not reproducible" in done.report.read_text()


def test_csv_and_svg_copies(done: Published) -> None:
    folder = done.report.parent
    rows = list(csv.DictReader((folder / "leaderboard.csv").open()))
    assert [row["name"] for row in rows] == [entry["name"] for entry in done.board["entries"]]
    assert [float(row["bits_per_byte"]) for row in rows] == [entry["bits_per_byte"] for entry in done.board["entries"]]
    assert all(rows[0][cost] for cost in COSTS)
    copies = sorted((folder / "plots").glob("*.svg"))
    assert {path.stem for path in copies} >= {
        "curve-tokens",
        "curve-seconds",
        "curve-flops",
        "curve-joules",
        "cost-joules",
    }
    for path in copies:
        ElementTree.parse(path)


def test_points_are_where_they_belong() -> None:
    chart = Chart("c", "t", "x", "y", [Series("a", "#123456", [(10.0, 1.0), (100.0, 3.0), (1000.0, 2.0)])])
    svg = ElementTree.fromstring(to_svg(chart))
    places = [(float(e.get("cx", 0)), float(e.get("cy", 0))) for e in svg.iter("{http://www.w3.org/2000/svg}circle")]
    (x1, y1), (x2, y2), (x3, y3) = places
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.2), "the axis is logarithmic"
    assert (y1 - y3) == pytest.approx((y1 - y2) / 2, abs=0.2), "and the other is not; up is more"
    assert y2 < y3 < y1


def test_the_front_is_what_nobody_beats() -> None:
    generator = random.Random(1)
    points = [(generator.uniform(1, 9), generator.uniform(1, 9)) for _ in range(60)]
    beaten = {p for p, q in itertools.permutations(points, 2) if q[0] <= p[0] and q[1] <= p[1]}
    assert set(pareto_front(points)) == set(points) - beaten
    assert pareto_front([]) == []


def test_ticks_and_numbers_are_round() -> None:
    assert linear_ticks(1.93, 3.07) == [2.0, 2.2, 2.4, 2.6, 2.8, 3.0]
    assert log_ticks(900, 21_000) == [1000, 2000, 5000, 10_000, 20_000]
    assert log_ticks(1e6, 1e10) == [1e6, 1e7, 1e8, 1e9, 1e10]
    shown = [short(value) for value in (0, 0.0042, 3.14159, 1234, 2.5e6, 3e9, 2.5e12, 1e13)]
    assert shown == ["0", "0.0042", "3.14", "1.23k", "2.5M", "3G", "2.5·10¹²", "10¹³"]


def test_labels_are_moved_apart_and_stay_near() -> None:
    assert spread([0.0, 100.0], apart=10) == [0.0, 100.0]
    assert spread([50.0, 50.0, 50.0], apart=10) == pytest.approx([40.0, 50.0, 60.0])
    places = spread([1.0, 2.0, 30.0, 31.0, 32.0, 90.0], apart=10)
    assert all(b - a >= 10 - 1e-9 for a, b in itertools.pairwise(places))
    assert places[-1] == 90.0


def test_where_a_curve_is_heading() -> None:
    curve = [{"tokens": t, "valid_bits_per_byte": 5 - math.log2(t)} for t in (1, 2, 4, 8, 16)]
    assert last_doubling(curve, measure="valid_bits_per_byte") == pytest.approx(1.0)
    assert last_doubling(curve[:2], measure="valid_bits_per_byte") is None


def entry(name: str, score: float, **more: object) -> dict[str, object]:
    return {"name": name, "bits_per_byte": score, "pseudo_bits_per_byte": score, "status": "ok", **more}


def ranked(ties: list[list[str]], *, predicts: str = "next token", **more: object) -> Ranking:
    entries = [entry("a", 2.0, **more), entry("b", 2.01, **more), entry("c", 3.0, **more)]
    return Ranking(CONTESTS[predicts], entries, ties, [], [], {})


def test_headline_and_verdict_know_ties() -> None:
    tied = ranked([["a", "b"]])
    assert headline(tied) == "a and b lead: 2.000 bits per byte."
    assert "c comes next, 1.000 behind a" in verdict(tied)
    clear = ranked([["b", "c"]])
    assert headline(clear).startswith("a predicts")
    assert "25% of its size" in verdict(clear)
    assert "b comes next, 0.010 behind a" in verdict(clear)
    assert LEVEL == 0.05, "the page speaks of 95%"


def test_headline_and_verdict_of_blanks_promise_no_compression() -> None:
    masked = ranked([], predicts="blanks", masked_accuracy=0.314)
    assert headline(masked) == "a predicts masked tokens best: 2.000 bits per byte of pseudo-log-likelihood."
    assert "31% of the masked tokens correctly" in verdict(masked)
    assert "would compress" not in verdict(masked)
    tied = ranked([["a", "b"]], predicts="blanks", masked_accuracy=0.1)
    assert headline(tied) == "a and b lead in predicting masked tokens: 2.000 bits per byte of pseudo-log-likelihood."
    alone = masked._replace(entries=masked.entries[:1])
    assert headline(alone) == "a predicts masked tokens: 2.000 bits per byte of pseudo-log-likelihood.", (
        "alone, it is not best"
    )
    assert headline(Ranking(CONTESTS["blanks"], [], [], [], [], {})) == "No model could be trained and scored."


def test_a_guess_goes_on_as_the_last_two_doublings_did() -> None:
    curve = [{"tokens": t, "valid_bits_per_byte": 5 - math.log2(t)} for t in (1, 2, 4, 8, 16)]
    assert heading(curve, "tokens", measure="valid_bits_per_byte") == pytest.approx((64, -1.0))
    flat = [{"tokens": t, "valid_bits_per_byte": 2.0 + 0.01 * t} for t in (1, 2, 4)]
    ahead = heading(flat, "tokens", measure="valid_bits_per_byte")
    assert ahead == pytest.approx((16, 2.04)), "it is not told to get worse"
    assert heading(curve[:2], "tokens", measure="valid_bits_per_byte") is None
    masked = [{"tokens": t, "valid_loss": 5 - math.log2(t)} for t in (1, 2, 4, 8, 16)]
    assert heading(masked, "tokens", measure="valid_loss") == pytest.approx((64, -1.0))
    assert last_doubling(masked, measure="valid_loss") == pytest.approx(1.0)


def test_a_disturbed_comparison_in_time_is_noticed() -> None:
    def entry(name: str, processors: float) -> dict[str, object]:
        return {"name": name, "kind": "gpt2", "training": {"cpu_seconds": 10 * processors, "wall_seconds": 10.0}}

    assert disturbed([entry("a", 1.9), entry("b", 1.7)]) == []
    (note,) = disturbed([entry("a", 1.9), entry("b", 0.9)])
    assert "a used 1.90 cores on average, b 0.90" in note


def test_who_took_more_than_the_budget_is_named() -> None:
    spent = [
        {"name": name, "kind": "gpt2", "training": {"tokens": tokens}} for name, tokens in (("a", 101), ("b", 110))
    ]
    (note,) = overspent(spent, "100tokens")
    assert "b took 110 tokens, 10% over the budget" in note


def test_who_took_much_less_than_the_budget_is_named() -> None:
    spent = [{"name": name, "training": {"tokens": n, "flops": 9.0}} for name, n in (("a", 60), ("b", 97))]
    (note,) = unspent(spent, "100tokens")
    assert "Used of it: a 60%." in note
    assert unspent(spent[1:], "100tokens") == []


def costs(**more: float) -> dict[str, float]:
    return {"tokens": 9.0, "seconds": 3.0, "wall_seconds": 17.0, "joules": 129.0, "grams": 0.01, **more}


def test_seconds_and_joules_of_a_table_have_one_basis() -> None:
    whole, alone = costs(), costs(training_joules=24.0)
    assert choose_basis([alone, alone, {}]) == (True, "seconds", "training_joules")
    assert choose_basis([alone, whole]) == (False, "wall_seconds", "joules"), "one that was not metered apart decides"
    assert validation_seconds(whole) == 14.0
    assert validation_seconds(costs(wall_seconds=3.01)) == 0.0
    assert mean_costs([alone, whole]) == whole


def test_joules_of_training_alone_are_known_only_if_all_of_it_was_metered() -> None:
    class Metered(Progress):
        training_cost: tuple[float, ...] = (0.0, 0.0, 0.0)

    recipe = make_recipe({"data": {"text": "x"}, "model": {"kind": "bow"}, "train": {}})
    known = Metered(seconds=3.0, cost=(17.0, 16.0, 129.0, 0.0), training_cost=(3.0, 3.0, 24.0, 0.0))
    assert spent(known, recipe)["training_joules"] == 24.0
    resumed = known.model_copy(update={"training_cost": (1.0, 1.0, 8.0, 0.0)})
    assert "training_joules" not in spent(resumed, recipe), "the beginning was not metered apart"
    assert spent(known, recipe)["joules"] == 129.0


def test_validation_is_worth_a_word_where_it_took_long() -> None:
    assert validation_seconds({"seconds": 2.0, "wall_seconds": 3.0}) == 1.0
    assert validation_seconds({"seconds": 2.0, "wall_seconds": 2.001}) == 0.0


def test_the_page_says_what_validation_took(done: Published) -> None:
    spent = [entry["training"] for entry in done.board["entries"]]
    told = [
        f"training {parts.duration(each['seconds'])} + validation {parts.duration(validation_seconds(each))}"
        for each in spent
        if validation_seconds(each)
    ]
    assert sorted(re.findall("<small>(training .*?)</small>", done.report.read_text())) == sorted(told)


def test_a_lossy_score_promises_no_compression() -> None:
    assert "would compress" not in verdict(ranked([], lossy=True))
