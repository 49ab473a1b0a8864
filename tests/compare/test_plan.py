"""Equal conditions: names, tokenizers, matched sizes, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from compare_texts import small
from lmlab.compare.arena import Unwatched, prepare_corpora
from lmlab.compare.matching import match_width, parse_match
from lmlab.compare.plan import OWN, budget_of, check_corpora, choose_systems, choose_tokenizers, plan
from lmlab.models import LINEAGE, create, load_class


def test_systems_by_name_and_all() -> None:
    assert choose_systems("gpt2, ngram") == ["gpt2", "ngram"]
    assert choose_systems("all") == list(LINEAGE)
    with pytest.raises(ValueError, match="unknown system 'lsmt'; did you mean 'lstm'"):
        choose_systems("ngram,lsmt")
    with pytest.raises(ValueError, match="once"):
        choose_systems("gpt2,gpt2")


def test_tokenizers_common_own_and_special() -> None:
    systems = ["ngram", "lstm", "gpt2"]
    assert set(choose_tokenizers(systems, []).values()) == {"bpe:4096"}
    assert choose_tokenizers(systems, ["own"]) == {system: OWN[system] for system in systems}
    special = choose_tokenizers(systems, ["bpe:512", "lstm=bytes"])
    assert special == {"ngram": "bpe:512", "lstm": "bytes", "gpt2": "bpe:512"}
    assert choose_tokenizers(["ngram"], ["words:min=2"]) == {"ngram": "words:min=2"}
    with pytest.raises(ValueError, match="takes no part"):
        choose_tokenizers(systems, ["rnn=bytes"])


def test_a_lossy_tokenizer_is_refused_unless_all_have_it(book: Path) -> None:
    alone = small(book, tokenizers=["words"])
    check_corpora(prepare_corpora(alone, Unwatched()), alone)
    mixed = small(book, tokenizers=["words", "gpt2=bytes"])
    with pytest.raises(ValueError, match=r"ngram would read words, which loses part of the text"):
        check_corpora(prepare_corpora(mixed, Unwatched()), mixed)
    lossless = small(book, tokenizers=["own"])
    check_corpora(prepare_corpora(lossless, Unwatched()), lossless)


def test_too_little_test_text_says_how_much_is_needed(tmp_path: Path) -> None:
    path = tmp_path / "short.txt"
    path.write_text("One line of a text.\n" * 40)
    conditions = small(path)
    with pytest.raises(ValueError, match=r"at least 200: give a text of at least 2,000 bytes"):
        check_corpora(prepare_corpora(conditions, Unwatched()), conditions)
    conditions = small(path, data={"split": [0.8, 0.2]})
    with pytest.raises(ValueError, match=r"no test text is held out.*third share"):
        check_corpora(prepare_corpora(conditions, Unwatched()), conditions)


@pytest.mark.parametrize("system", [name for name in LINEAGE if name != "ngram"])
@pytest.mark.parametrize("target", [60_000, 2_000_000])
def test_widths_are_matched_within_five_percent(system: str, target: int) -> None:
    cls = load_class(system)
    size = "tiny" if target < 1e6 else "small"
    values = match_width(system, {"vocabulary": 500, **cls.SIZES[size]}, target=target)
    model = create(system, values)
    assert sum(weight.numel() for weight in model.parameters()) == pytest.approx(target, rel=0.05)
    assert values.get("layers") == cls.SIZES[size].get("layers"), "depth stays"


def test_a_width_that_cannot_be_says_so() -> None:
    with pytest.raises(ValueError, match=r"lstm cannot be given 300 parameters"):
        match_width("lstm", {"vocabulary": 500, "layers": 2}, target=300)


def test_match_is_read() -> None:
    assert parse_match("parameters") is None
    assert parse_match("parameters=2M") == 2_000_000
    assert parse_match("parameters=1.5e6") == 1_500_000
    for wrong in ("width", "parameters=", "parameters=many", "parameters=0"):
        with pytest.raises(ValueError, match="parameters"):
            parse_match(wrong)


def test_a_plan_gives_every_network_the_same_size_and_every_seed_a_run(book: Path) -> None:
    conditions = small(book, models="ngram,lstm,gpt2", match="parameters=100k", seeds=2, seed=5)
    corpora = prepare_corpora(conditions, Unwatched())
    entrants, refusals = plan(conditions, corpora)
    assert not refusals
    assert [entrant.name for entrant in entrants] == ["ngram", "lstm-seed5", "lstm-seed6", "gpt2-seed5", "gpt2-seed6"]
    for entrant in entrants[1:]:
        model = create(entrant.system, {**entrant.recipe.model, "vocabulary": 300})
        assert sum(weight.numel() for weight in model.parameters()) == pytest.approx(100_000, rel=0.05)
        assert entrant.recipe.train.seed == int(entrant.name[-1])


def test_a_system_that_cannot_be_sized_leaves_the_others(book: Path) -> None:
    conditions = small(book, models="ngram,gpt2,lstm", match="parameters=5k")
    entrants, refusals = plan(conditions, prepare_corpora(conditions, Unwatched()))
    assert [entrant.name for entrant in entrants] == ["ngram", "lstm"]
    assert [(refusal.system, "cannot be given 5,000" in refusal.reason) for refusal in refusals] == [("gpt2", True)]


def test_counting_reads_no_more_than_the_epochs_allow(book: Path) -> None:
    conditions = small(book, budget="0.5epochs")
    corpus = prepare_corpora(conditions, Unwatched())["bpe:300"]
    assert budget_of(conditions, "ngram", corpus) == f"{0.5 * len(corpus.train.tokens)!r}tokens"
    assert budget_of(conditions, "gpt2", corpus) == "0.5epochs"


def test_mistakes_are_found_before_anything_is_read() -> None:
    for changes, message in (
        ({"budget": "much"}, "not understood"),
        ({"size": "huge"}, "unknown size 'huge'"),
        ({"seeds": 0}, "at least 1"),
        ({"train": {"batchh": 3}}, "did you mean 'batch'"),
    ):
        with pytest.raises(ValueError, match=message):
            small(Path("nowhere.txt"), **changes)
    with pytest.raises(ValueError, match="standard input"):
        small(Path("-"))


def test_the_guide_tells_the_learning_rates_as_they_are() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "comparing.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[^|]+) \| ([\d.]+) \| \| (`[^|]+) \| ([\d.]+) \|$", guide, flags=re.MULTILINE)
    told = {
        name: float(rate)
        for a, x, b, y in rows
        for names, rate in ((a, x), (b, y))
        for name in re.findall("[a-z0-9-]+", names)
    }
    assert told == {name: load_class(name).TRAINING["rate"] for name in LINEAGE if name != "ngram"}
