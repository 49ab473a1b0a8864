"""Masked systems: measured as they should be, ranked apart, and never in one column with left-to-right scores."""

from __future__ import annotations

import csv
import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lmlab
from comparison_texts import SETTINGS, small
from lmlab.comparison import shared_test_data
from lmlab.comparison.folder import Published, add, run_comparison
from lmlab.comparison.leaderboard import headline, read_rankings
from lmlab.comparison.records import read_curve, upgrade_record
from lmlab.comparison.tracks.masked import choose_positions, fill_cloze, fill_test, read_metrics
from lmlab.language_model import LanguageModel
from lmlab.models import create
from lmlab.models.abilities import FillsMasks, require
from lmlab.runs import run
from lmlab.runs.held_out import held_out
from lmlab.runs.recipe import make_recipe
from lmlab.tokenizers import train

MODELS = "ngram,bert,roberta,electra"
PART = 500
TEXTS = ["On day 3 the planet A goes at 9 & more.\n" * 4, "The planet B waits.\n", ""]
pytestmark = pytest.mark.filterwarnings("ignore:the text is one document", "ignore:too few n-grams")


@pytest.fixture(scope="module")
def masked(book: Path, tmp_path_factory: pytest.TempPathFactory) -> Published:
    """A left-to-right system and three masked ones, pseudo-log-likelihoods on a short part."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_test_data, "PART_TOKENS", PART)
        return run_comparison(small(book, models=MODELS), tmp_path_factory.mktemp("masked") / "compared", csv=True)


@pytest.fixture
def short_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_test_data, "PART_TOKENS", PART)


def untrained(kind: str = "bert", **settings: object) -> LanguageModel:
    torch.manual_seed(1)
    tokenizer = train("bpe:280", TEXTS).with_specials(("pad", "cls", "sep", "mask"))
    model = create(kind, {"vocabulary": tokenizer.vocabulary, **settings}, size="tiny")
    return LanguageModel(model=model.eval(), tokenizer=tokenizer)


def test_they_are_ranked_apart_by_pseudo_log_likelihood(masked: Published) -> None:
    board = masked.board
    assert [entry["name"] for entry in board["entries"]] == ["ngram"]
    assert {entry["name"] for entry in board["masked"]} == {"bert", "roberta", "electra"}
    scores = [entry["pseudo_bits_per_byte"] for entry in board["masked"]]
    assert scores == sorted(scores)
    for entry in board["masked"]:
        assert "bits_per_byte" not in entry
        assert entry["low"] <= entry["pseudo_bits_per_byte"] <= entry["high"]
        assert entry["status"] == "ok"
    assert all("pseudo_bits_per_byte" not in entry for entry in board["entries"])
    assert "Compare masked models only with each other" in board["masked_ranking"]["why"]
    assert board["masked_ranking"]["why"] in board["notes"]
    compared = {name for each in board["masked_ranking"]["differences"] for name in (each["better"], each["worse"])}
    assert compared == {"bert", "roberta", "electra"}
    assert board["differences"] == []


def test_the_score_is_the_pseudo_log_likelihood_of_the_stated_part(masked: Published) -> None:
    folder = masked.report.parent
    (text,) = held_out(folder / "bert")
    part = json.loads((folder / "conditions.json").read_text())["part"]
    beginning = text.encode()[: part["bytes"]].decode()
    assert 0 < part["bytes"] < len(text.encode())
    for entry in masked.board["masked"]:
        score = lmlab.load(folder / entry["name"]).score(beginning)
        assert score.pseudo
        assert score.tokens == pytest.approx(PART, rel=0.1)
        assert entry["pseudo_bits_per_byte"] == pytest.approx(score.bits_per_byte, rel=1e-6)
    assert any(f"{part['bytes']:,} of the {len(text.encode()):,} bytes" in note for note in masked.board["notes"])


def test_each_says_what_its_objective_measures(masked: Published) -> None:
    entries = {entry["name"]: entry for entry in masked.board["masked"]}
    assert 0 <= entries["bert"]["pair_accuracy"] <= 1
    assert 0.5 < entries["electra"]["original_share"] < 1
    assert 0 <= entries["electra"]["detection_accuracy"] <= 1
    assert not {"pair_accuracy", "detection_accuracy"} & entries["roberta"].keys()
    assert len({entry["masked_tokens"] for entry in entries.values()}) == 1, "all are asked for the same tokens"


def test_hidden_tokens_are_guessed_as_one_by_one() -> None:
    """Every window of every text alone, without batches or padding, gives the same sums."""
    model = untrained(window=16)
    tokenizer, network = model.tokenizer, model.model
    network.requires_grad_(False)
    filler = require(network, FillsMasks)
    nats, right, count = 0.0, 0, 0
    for number, text in enumerate(TEXTS):
        ids = torch.tensor(tokenizer.encode(text))
        if not len(ids):
            continue
        chosen = torch.zeros(len(ids), dtype=torch.bool)
        chosen[choose_positions(len(ids), number)] = True
        assert int(chosen.sum()) == max(1, round(0.15 * len(ids)))
        for start in range(0, len(ids), 14):
            piece, hidden = ids[start : start + 14], chosen[start : start + 14]
            row = torch.where(hidden, tokenizer.special("mask"), piece)
            row = torch.cat([torch.tensor([tokenizer.special("cls")]), row, torch.tensor([tokenizer.special("sep")])])
            scores = filler.logits(filler.read(tokens=row[None])[0, 1:-1]).log_softmax(-1)
            nats -= float(scores[torch.arange(len(piece)), piece][hidden].sum())
            right += int((scores.argmax(-1) == piece)[hidden].sum())
            count += int(hidden.sum())
    found = fill_test(model, TEXTS)
    assert (found.masked_tokens, found.masked_right) == (count, right)
    assert found.masked_nats == pytest.approx(nats, rel=1e-5)


def test_hidden_tokens_are_hidden_from_the_model() -> None:
    """A model whose output is the token that it reads would be right everywhere, if it could see it."""
    model = untrained(layers=1)
    network = model.model
    for parameter in network.blocks.parameters():
        torch.nn.init.zeros_(parameter)
    for block in network.blocks:
        torch.nn.init.ones_(block.attention_norm.weight)
        torch.nn.init.ones_(block.feed_forward_norm.weight)
    found = fill_test(model, TEXTS)
    assert found.masked_right <= found.masked_tokens / 2


def test_the_places_are_the_same_each_time_and_others_in_each_text() -> None:
    assert np.array_equal(choose_positions(200, 3), choose_positions(200, 3))
    assert not np.array_equal(choose_positions(200, 3), choose_positions(200, 4))
    assert len(choose_positions(1, 0)) == 1
    assert len(set(choose_positions(1000, 0).tolist())) == 150


def test_the_table_of_hidden_tokens_is_of_the_whole_test_text(masked: Published) -> None:
    folder = masked.report.parent
    texts = held_out(folder / "roberta")
    masks = round(0.15 * len(lmlab.load(folder / "bert").tokenizer.encode(texts[0])))
    for entry in masked.board["masked"]:
        found = fill_test(lmlab.load(folder / entry["name"]), texts)
        assert entry["masked_tokens"] == found.masked_tokens == masks
        assert entry["masked_perplexity"] == pytest.approx(math.exp(found.masked_nats / found.masked_tokens))
        assert entry["masked_accuracy"] == found.masked_right / found.masked_tokens


def test_the_csv_keeps_them_in_columns_of_their_own(masked: Published) -> None:
    rows = list(csv.DictReader((masked.report.parent / "leaderboard.csv").open()))
    assert [row["predicts"] for row in rows] == ["next token", "masks", "masks", "masks"]
    assert [row["rank"] for row in rows] == ["1", "1", "2", "3"]
    for row in rows:
        assert bool(row["bits_per_byte"]) == (row["predicts"] == "next token")
        assert bool(row["pseudo_bits_per_byte"]) == bool(row["masked_accuracy"]) == (row["predicts"] == "masks")


def test_the_report_says_why_and_has_charts_of_their_own(masked: Published) -> None:
    page = masked.report.read_text()
    assert "Not comparable with left-to-right scores" in page
    assert "Leaderboard of masked models" in page
    first, second = page.split('<div class="apart">')
    for entry in masked.board["masked"]:
        figure = f"<b>{entry['pseudo_bits_per_byte']:.3f}</b>"
        assert figure in second
        assert figure not in first
    assert "nats per masked token (validation)" in second
    assert "nats per masked token (validation)" not in first
    plots = {path.stem for path in (masked.report.parent / "plots").glob("*.svg")}
    assert {"masked-curve-tokens", "masked-cost-joules"} <= plots
    assert len(re.findall(r'id="([^"]+)"', page)) == len(set(re.findall(r'id="([^"]+)"', page)))


def test_curves_are_in_nats_per_mask(masked: Published) -> None:
    folder = masked.report.parent
    for entry in masked.board["masked"]:
        assert len(entry["curve"]) >= 3
        assert all(point["valid_loss"] > 0 and "valid_bits_per_byte" not in point for point in entry["curve"])
        assert entry["curve"] == read_curve(folder / entry["name"], metric="valid_loss")
    best = [
        line
        for line in map(json.loads, (folder / "bert" / "metrics.jsonl").read_text().splitlines())
        if line.get("best")
    ][-1]
    assert read_metrics(folder / "bert") == {"pair_accuracy": best["valid_pair_accuracy"]}
    assert read_metrics(folder) == {}


def test_one_sentence_is_filled_by_all(masked: Published) -> None:
    cloze = masked.board["cloze"]
    assert cloze["text"].count("[MASK]") == len(cloze["answers"]) > 0
    for entry in masked.board["masked"]:
        assert "[MASK]" not in entry["sample"]
        assert len(entry["filled"]) == len(cloze["answers"])
        for candidates in entry["filled"]:
            chances = [chance for _, chance in candidates]
            assert chances == sorted(chances, reverse=True)


def test_a_sentence_that_is_too_long_is_left_out() -> None:
    model = untrained(window=8)
    found = fill_cloze(model, "The planet B waits and waits for day 3 on the planet [MASK].")
    assert found.filled == []
    assert "at most 8" in found.sample
    assert fill_cloze(model, "").sample == ""


@pytest.mark.usefixtures("short_part")
def test_the_same_seed_gives_the_same_figures(masked: Published, book: Path, tmp_path: Path) -> None:
    again = run_comparison(small(book, models="bert,electra", prompt="the planet [MASK] goes"), tmp_path / "again")
    before = {entry["name"]: entry for entry in masked.board["masked"]}
    for entry in again.board["masked"]:
        for name in ("pseudo_bits_per_byte", "masked_perplexity", "masked_accuracy", "parameters"):
            assert entry[name] == before[entry["name"]][name]
    assert again.board["entries"] == []
    assert again.board["prompt"] == "the planet"
    assert again.board["cloze"] == {"text": "the planet [MASK] goes", "answers": ()}
    (ranking,) = read_rankings(again.board)
    assert ranking.track.name == "masks"
    page = again.report.read_text()
    assert headline(ranking) in page
    assert "<h2>Leaderboard</h2>" not in page, "no left-to-right system took part"


@pytest.mark.usefixtures("short_part")
@pytest.mark.parametrize(("budget", "unit"), [("1300tokens", "tokens"), ("3e8flops", "flops")])
def test_no_masked_system_gets_more_than_its_budget(book: Path, tmp_path: Path, budget: str, unit: str) -> None:
    done = run_comparison(small(book, models="roberta,albert", budget=budget), tmp_path / "kept")
    amount = float(budget.removesuffix(unit))
    for entry in done.board["masked"]:
        assert entry["status"] == "ok", entry
        assert 0.7 * amount < entry["training"][unit] <= amount


@pytest.mark.usefixtures("short_part")
def test_sweep_and_seeds_work_for_masked_systems_too(book: Path, tmp_path: Path) -> None:
    conditions = small(book, models="roberta", budget="2000tokens", sweep=True, seeds=2)
    (entry,) = run_comparison(conditions, tmp_path / "swept").board["masked"]
    assert entry["rate"] == min(entry["sweep"], key=lambda one: one["valid_loss"])["rate"]
    assert all(one["valid_bits_per_byte"] is None for one in entry["sweep"])
    assert entry["pseudo_bits_per_byte"] == pytest.approx(sum(entry["each_seed"]) / 2)


@pytest.mark.usefixtures("short_part")
def test_a_masked_run_from_elsewhere_joins_the_masked_table(masked: Published, book: Path, tmp_path: Path) -> None:
    folder = tmp_path / "compared"
    shutil.copytree(masked.report.parent, folder)
    recipe = {
        "data": {"text": str(book), "split": [0.8, 0.1, 0.1]},
        "tokenizer": {"spec": "bpe:300"},
        "model": {"kind": "albert", "size": "tiny"},
        "train": {**SETTINGS, "budget": "640tokens"},
    }
    run.start(make_recipe(recipe), tmp_path / "mine")
    done = add([tmp_path / "mine"], folder)
    (entry,) = [entry for entry in done.board["masked"] if "added" in entry]
    assert entry["name"] == "mine"
    assert entry["masked_accuracy"] is not None, "it reads the same tokenizer, special tokens and all"
    assert entry["curve"]
    assert [entry["name"] for entry in done.board["entries"]] == ["ngram"]
    run.start(make_recipe({**recipe, "tokenizer": {"spec": "bytes"}}), tmp_path / "bytes")
    with pytest.raises(ValueError, match="bytes, is not that of other masked models, and the smaller the tokens"):
        add([tmp_path / "bytes"], folder)


@pytest.mark.usefixtures("short_part")
def test_a_failing_masked_system_is_listed_with_its_kind(book: Path, tmp_path: Path) -> None:
    done = run_comparison(small(book, models="ngram,bert", budget="10flops"), tmp_path / "failing")
    assert [entry["name"] for entry in done.board["entries"]] == ["ngram"]
    (failed,) = done.board["masked"]
    assert failed["status"] == "failed"
    assert failed["pseudo_bits_per_byte"] is None
    assert "does not pay for one step" in done.report.read_text()


def test_names_of_earlier_versions_are_read(masked: Published) -> None:
    old = {"masked": "blanks", "masked_ranking": "blanks_ranking"}
    board: Any = {old.get(key, key): value for key, value in masked.board.items()}
    assert [each.entries for each in read_rankings(board)] == [each.entries for each in read_rankings(masked.board)]
    assert upgrade_record({"blanks": 3, "also": {"blanks": {"blanks": 2}}}) == {
        "masked_tokens": 3,
        "also": {"masks": {"masked_tokens": 2}},
    }
