"""The report is one whole file, escaped and offline; its charts are right where they can be checked."""

from __future__ import annotations

import csv
import html.parser
import io
import itertools
import json
import math
import random
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from comparison_texts import small
from lmlab.cli.leaderboard import show
from lmlab.comparison.entries import Entry
from lmlab.comparison.folder import Published, run_comparison
from lmlab.comparison.leaderboard import conclusion, describe_groups, headline, read_rankings
from lmlab.comparison.notes import overspent, shared_cpu, unspent, write_caveats
from lmlab.comparison.ranking import Ranking
from lmlab.comparison.records import (
    COSTS,
    choose_basis,
    extrapolate,
    last_doubling,
    mean_costs,
    spent,
    validation_seconds,
)
from lmlab.comparison.report import make_report
from lmlab.comparison.tracks import TRACKS
from lmlab.comparison.tracks.track import Units
from lmlab.metrics.statistics import LEVEL, Difference
from lmlab.pages.figures import Chart, Point, Series, pareto_front
from lmlab.pages.figures.axes import Lines, linear_ticks, log_ticks, push_apart
from lmlab.pages.formats import duration, short
from lmlab.pages.page import render_macro
from lmlab.runs.recipe import make_recipe
from lmlab.training.progress import TrainingProgress


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
    done = run_comparison(small(book, models="ngram", prompt="</p><script>alert(1)</script>"), tmp_path / "hostile")
    page = done.report.read_text()
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "<b>shines</b>" not in page, "the test text holds markup"
    read(page)
    read(render_macro("heat", [('"><img src=x>', 3.0), ("\n", 0.5)]))


def test_the_passages_are_the_same_text_for_all(done: Published) -> None:
    shown = re.findall(r'<pre class="heat">(.*?)</pre>', done.report.read_text(), flags=re.DOTALL)
    texts = {re.sub(r"<[^>]+>", "", passage) for passage in shown}
    assert len(shown) == 3
    assert len(texts) == 1


def test_a_budget_in_time_is_called_noisy(book: Path, tmp_path: Path) -> None:
    done = run_comparison(small(book, models="ngram", budget="5s"), tmp_path / "timed")
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
    chart = Chart(
        "c", "t", "x", "y", [Series("a", "#123456", [Point(10.0, 1.0), Point(100.0, 3.0), Point(1000.0, 2.0)])]
    )
    svg = ElementTree.fromstring(chart.html())
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


def test_names_of_lines_stay_inside_the_drawing() -> None:
    drawn = str(Lines("All right", ["0", "1"], [(name, [1.0, 1.0]) for name in "abcde"]).html())
    places = re.findall(r'<text[^>]* y="([-\d.]+)"[^>]*font-weight:600[^>]*>[a-e]</text>', drawn)
    assert len(places) == 5
    assert all(float(place) >= 8 for place in places)


def test_labels_are_moved_apart_and_stay_near() -> None:
    assert push_apart([0.0, 100.0], apart=10) == [0.0, 100.0]
    assert push_apart([50.0, 50.0, 50.0], apart=10) == pytest.approx([40.0, 50.0, 60.0])
    places = push_apart([1.0, 2.0, 30.0, 31.0, 32.0, 90.0], apart=10)
    assert all(b - a >= 10 - 1e-9 for a, b in itertools.pairwise(places))
    assert places[-1] == 90.0


def test_where_a_curve_is_heading() -> None:
    curve = [{"tokens": t, "valid_bits_per_byte": 5 - math.log2(t)} for t in (1, 2, 4, 8, 16)]
    assert last_doubling(curve, metric="valid_bits_per_byte") == pytest.approx(1.0)
    assert last_doubling(curve[:2], metric="valid_bits_per_byte") is None


def entry(name: str, score: float, **more: Any) -> Entry:
    return Entry(name=name, score=score, **more)


def ranked(significant: Sequence[str], *, predicts: str = "next token", scores: str = "abc", **more: object) -> Ranking:
    """Three models whose differences are significant for these pairs, as "ac"."""
    values = dict(zip(scores, (2.0, 2.01, 3.0), strict=True))
    entries = [entry(name, value, low=value - 0.02, high=value + 0.02, **more) for name, value in values.items()]
    differences = [
        Difference(one, two, values[two] - values[one], 0.0, 1.0, 0.01, one + two in significant)
        for one, two in itertools.combinations(values, 2)
    ]
    return Ranking(TRACKS[predicts], entries, differences, [], Units("documents", 40))


def test_equal_scores_are_called_equal() -> None:
    ranking = ranked(["ac", "bc"])
    entries = [replace(each, score=2.0) if each.name == "b" else each for each in ranking.entries]
    assert headline(ranking._replace(entries=entries)) == "a and b have the same score: 2.000 bits per byte."


def test_headline_and_conclusion_follow_from_the_pairs() -> None:
    tied = ranked(["ac", "bc"])
    assert headline(tied) == "a has the best score, not significantly better than b: 2.000 bits per byte."
    assert "25% of its size" in conclusion(tied)
    assert "c is 1.000 behind a: a significant difference." in conclusion(tied)
    assert tied.letters == {"a": "a", "b": "a", "c": "b"}
    clear = ranked(["ab", "ac"])
    assert headline(clear) == "a predicts the test text best: 2.000 bits per byte."
    assert "b is 0.010 behind a: a significant difference (paired test; the intervals overlap)." in conclusion(clear)
    assert clear.letters == {"a": "a", "b": "b", "c": "b"}
    assert LEVEL == 0.05, "the page speaks of 95%"


def test_a_difference_that_was_not_found_is_never_reported() -> None:
    """Only b and c differ: the report may not say that either is behind a, nor a group of all three to be equal."""
    only_last = ranked(["bc"])
    assert headline(only_last) == "a has the best score, not significantly better than b and c: 2.000 bits per byte."
    assert "significant" not in conclusion(only_last)
    assert only_last.letters == {"a": "ab", "b": "a", "c": "b"}
    assert only_last.ties == [["a", "b"], ["a", "c"]]
    skipping = ranked(["ab"])  # c is further behind a than b is, but varies more
    assert headline(skipping) == "a has the best score, not significantly better than c: 2.000 bits per byte."
    assert "b is 0.010 behind a: a significant difference" in conclusion(skipping)
    assert skipping.letters == {"a": "a", "b": "b", "c": "ab"}


def test_what_is_reported_of_groups_holds_for_every_pattern_of_pairs() -> None:
    pairs = ["ab", "ac", "bc"]
    for chosen in itertools.chain.from_iterable(itertools.combinations(pairs, count) for count in range(4)):
        found = ranked(list(chosen))
        said = " ".join(describe_groups(found))
        assert ("Every difference in this ranking is" in said) == (len(chosen) == 3)
        assert ("Models that share a letter" in said) == (len(chosen) < 3)
        assert ("paired test, although the intervals overlap: a and b." in said) == ("ab" in chosen)
        tied = [name for name in "bc" if f"a{name}" not in chosen]
        assert headline(found).startswith(
            f"a has the best score, not significantly better than {' and '.join(tied)}:" if tied else "a predicts"
        )


def test_without_a_test_nothing_is_called_significant_or_tied() -> None:
    few = ranked([])
    few = few._replace(
        differences=[each._replace(low=None, high=None, p=1.0) for each in few.differences],
        units=Units("blocks of lines", 3),
    )
    assert (few.letters, few.ties, describe_groups(few)) == ({}, [], [])
    assert headline(few) == "a predicts the test text best: 2.000 bits per byte."
    assert conclusion(few).endswith("The test text has too few parts to test whether the models differ.")


def test_whether_differences_were_tested_depends_on_the_number_of_units() -> None:
    """The same difference in every unit has no interval, but it was tested: by its sign, or as no difference at all."""
    same = ranked([])
    same = same._replace(
        differences=[each._replace(value=0.0, low=None, high=None, p=1.0) for each in same.differences]
    )
    assert same.letters == {"a": "a", "b": "a", "c": "a"}
    assert headline(same).startswith("a has the best score, not significantly better than b and c:")
    assert "too few parts" not in conclusion(same)
    signs = ranked(["ab", "ac", "bc"])
    signs = signs._replace(differences=[each._replace(low=None, high=None) for each in signs.differences])
    assert signs.letters == {"a": "a", "b": "b", "c": "c"}
    assert headline(signs) == "a predicts the test text best: 2.000 bits per byte."
    assert "a significant difference" in conclusion(signs)
    assert describe_groups(signs)[0].startswith("Every difference in this ranking is")


def test_headline_and_conclusion_of_masks_promise_no_compression() -> None:
    masked = ranked(["ab", "ac", "bc"], predicts="masks", measured={"masked_accuracy": 0.314})
    assert headline(masked) == "a predicts masked tokens best: 2.000 bits per byte of pseudo-log-likelihood."
    assert "31% of the masked tokens correctly" in conclusion(masked)
    assert "would compress" not in conclusion(masked)
    tied = ranked(["ac", "bc"], predicts="masks", measured={"masked_accuracy": 0.1})
    assert headline(tied) == (
        "a has the best score in predicting masked tokens, not significantly better than b: 2.000 bits per byte of "
        "pseudo-log-likelihood."
    )
    alone = masked._replace(entries=masked.entries[:1], differences=[])
    assert headline(alone) == "a predicts masked tokens: 2.000 bits per byte of pseudo-log-likelihood.", (
        "alone, it is not best"
    )
    assert (
        headline(Ranking(TRACKS["masks"], [], [], [], Units("documents", 0))) == "No model could be trained and scored."
    )


def test_letters_and_caveats_stand_beside_the_ranking(done: Published) -> None:
    (ranking,) = read_rankings(done.board)
    page = done.report.read_text()
    board = page[page.index("<h2>Leaderboard") : page.index("<h2>Learning curves")]
    shown = re.findall("<td class=letters>(.*?)</td>", board)
    assert shown == list(ranking.letters.values()) == [entry["letters"] for entry in done.board["entries"]]
    for line in (*describe_groups(ranking), *done.board["caveats"]):
        assert escape(line) in board
    assert set(done.board["caveats"]) <= set(done.board["notes"])


def test_a_folder_of_version_0_5_is_still_shown(done: Published) -> None:
    """Its differences had `bits` and `real`, its ties were written, and there were no letters."""
    old = json.loads(json.dumps(done.board))
    del old["caveats"]
    for each in old["entries"]:
        del each["letters"]
    for each in old["differences"]:
        each["bits"], each["real"] = each.pop("value"), each.pop("significant")
    (ranking,), (expected,) = read_rankings(old), read_rankings(done.board)
    assert (ranking.differences, ranking.letters) == (expected.differences, expected.letters)
    assert headline(ranking) == headline(expected)
    assert make_report(old, {}).count("<td class=letters>") == 3
    reported = Console(file=io.StringIO(), width=120)
    show(old, reported)
    assert headline(ranking).split(":")[0] in reported.file.getvalue()


def seeded(**seeds: int) -> Ranking:
    entries = [
        entry(name, 2.0, kind="ngram" if name == "ngram" else "gpt2", seeds=list(range(count)), low=1.9, high=2.1)
        for name, count in seeds.items()
    ]
    return Ranking(TRACKS["next token"], entries, [], [], Units("documents", 40))


def test_it_is_reported_what_intervals_cover() -> None:
    conditions = {"budget": "20steps"}
    (one,) = write_caveats(seeded(a=1, b=1), conditions)
    assert one.startswith("One random seed: intervals and tests cover the choice of test text (40 documents), but not ")
    assert "--seeds 3 to 5" in one
    (three,) = write_caveats(seeded(a=3, b=3, ngram=1), conditions)
    assert three.endswith("cover the choice of test text (40 documents) and of the random seed (3 seeds).")
    (mixed,) = write_caveats(seeded(a=2, b=1), conditions)
    assert "Of b there is only one seed: other seeds are not covered." in mixed
    assert "use three to five" in mixed
    (counted,) = write_caveats(seeded(ngram=1), conditions)
    assert "seed" not in counted, "counting does not depend on it"
    few = seeded(a=3)._replace(units=Units("blocks of lines", 4))
    assert write_caveats(few, conditions) == [
        "The test text has only 4 blocks of lines: too few for intervals and tests."
    ]


def test_a_guess_goes_on_as_the_last_two_doublings_did() -> None:
    curve = [{"tokens": t, "valid_bits_per_byte": 5 - math.log2(t)} for t in (1, 2, 4, 8, 16)]
    assert extrapolate(curve, "tokens", metric="valid_bits_per_byte") == pytest.approx((64, -1.0))
    flat = [{"tokens": t, "valid_bits_per_byte": 2.0 + 0.01 * t} for t in (1, 2, 4)]
    ahead = extrapolate(flat, "tokens", metric="valid_bits_per_byte")
    assert ahead == pytest.approx((16, 2.04)), "it is not told to get worse"
    assert extrapolate(curve[:2], "tokens", metric="valid_bits_per_byte") is None
    masked = [{"tokens": t, "valid_loss": 5 - math.log2(t)} for t in (1, 2, 4, 8, 16)]
    assert extrapolate(masked, "tokens", metric="valid_loss") == pytest.approx((64, -1.0))
    assert last_doubling(masked, metric="valid_loss") == pytest.approx(1.0)


def test_a_shared_cpu_is_noticed() -> None:
    def entry(name: str, cores: float, **more: float) -> Entry:
        training = {"cpu_seconds": 10 * cores, "wall_seconds": 10.0, **more}
        return Entry(name=name, kind="gpt2", training=training)

    assert shared_cpu([entry("a", 1.9), entry("b", 1.81)], cores=2) == []
    (warning,) = shared_cpu([entry("a", 1.9), entry("b", 1.79)], cores=2)
    assert "less than 90% of the 2 requested cores were used on average: b 1.79 (a: 1.90)." in warning
    (warning,) = shared_cpu([entry(name, 0.1 * number) for number, name in enumerate("abcdef", start=1)], cores=1)
    assert "a 0.10, b 0.20, c 0.30, d 0.40 and 2 more" in warning
    assert shared_cpu([entry("a", 0.2, gpu_seconds=10.0)], cores=8) == [], "a GPU does the work"
    assert shared_cpu([replace(entry("a", 0.2), added="trained elsewhere")], cores=2) == []


def test_the_warning_of_a_shared_cpu_stands_beside_the_ranking(done: Published) -> None:
    board = json.loads(json.dumps(done.board))
    board["conditions"]["budget"] = "60s"
    board["conditions"]["machine"]["threads"] = 64
    page = make_report(board, {})
    reported = Console(file=io.StringIO(), width=120)
    show(board, reported)
    for place in (page[page.index("<h2>Leaderboard") : page.index("<h2>Learning curves")], reported.file.getvalue()):
        assert "less than 90% of the 64 requested cores" in " ".join(place.split())
    board["conditions"]["budget"] = "1280tokens"
    assert "requested cores" not in make_report(board, {}), "the steps of other budgets do not depend on the load"


def test_a_run_that_took_more_than_the_budget_is_named() -> None:
    spent = [Entry(name=name, kind="gpt2", training={"tokens": tokens}) for name, tokens in (("a", 101), ("b", 110))]
    (note,) = overspent(spent, "100tokens")
    assert "b took 110 tokens, 10% over the budget" in note


def test_a_run_that_took_much_less_than_the_budget_is_named() -> None:
    spent = [Entry(name=name, training={"tokens": n, "flops": 9.0}) for name, n in (("a", 60), ("b", 97))]
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
    class Metered(TrainingProgress):
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
    reported = [
        f"training {duration(each['seconds'])} + validation {duration(validation_seconds(each))}"
        for each in spent
        if validation_seconds(each)
    ]
    assert sorted(re.findall("<small>(training .*?)</small>", done.report.read_text())) == sorted(reported)


def test_a_lossy_score_promises_no_compression() -> None:
    assert "would compress" not in conclusion(ranked(["ab"], lossy=True))
