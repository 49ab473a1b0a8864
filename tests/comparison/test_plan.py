"""Equal conditions: names, tokenizers, matched sizes, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from comparison_texts import small
from lmlab.comparison.matching import at_width, match_width, parse_match, width_unit
from lmlab.comparison.plan import (
    OTHERS,
    OWN,
    budget_of,
    check_corpora,
    choose_systems,
    choose_tokenizers,
    matched_parameters,
    plan,
)
from lmlab.comparison.runner import Unwatched, prepare_corpora
from lmlab.models import LINEAGE, create, systems_that_read
from lmlab.models.descriptions import DESCRIPTIONS
from lmlab.tokenizers import train as train_tokenizer

COMPARED = [name for name in systems_that_read("text") if set(LINEAGE[name].does) & {"next token", "masks"}]
MASKED = [name for name in COMPARED if "masks" in LINEAGE[name].does]


def test_systems_by_name_and_by_what_they_predict() -> None:
    assert choose_systems("gpt2, ngram") == ["gpt2", "ngram"]
    left_to_right = choose_systems("all")
    assert {"ngram", "lstm", "gpt2", "transformer-xl"} <= set(left_to_right)
    assert choose_systems("masked") == MASKED
    assert {"bert", "roberta", "albert", "electra"} <= set(MASKED)
    assert set(left_to_right) & set(MASKED) == {"xlnet"}, "it predicts both, and is ranked under each question"
    assert choose_systems("masked, gpt2") == [*MASKED, "gpt2"]
    assert set(choose_systems("all,masked")) == set(COMPARED)
    with pytest.raises(ValueError, match="unknown model 'lsmt'; did you mean 'lstm'"):
        choose_systems("ngram,lsmt")
    for twice in ("gpt2,gpt2", "masked,bert"):
        with pytest.raises(ValueError, match="once"):
            choose_systems(twice)


@pytest.mark.parametrize("name", [name for name in LINEAGE if LINEAGE[name].does[0] in ("target text", "commands")])
def test_a_translator_is_refused_with_the_command_for_it(name: str) -> None:
    known_for = DESCRIPTIONS[LINEAGE[name].does[0]]
    command = {
        "commands": "lmlab act RUN --env",
        "target text": "lmlab evaluate RUN --source",
    }
    refused = f"{name} {known_for.does}.*{command[known_for.name]}"
    with pytest.raises(ValueError, match=f"(?s){refused}"):
        choose_systems(f"gpt2,{name}")


def test_tokenizers_common_own_and_special() -> None:
    systems = ["ngram", "lstm", "gpt2"]
    assert set(choose_tokenizers(systems, []).values()) == {"bpe:4096"}
    assert choose_tokenizers(systems, ["own"]) == {system: OWN[system] for system in systems}
    special = choose_tokenizers(systems, ["bpe:512", "lstm=bytes"])
    assert special == {"ngram": "bpe:512", "lstm": "bytes", "gpt2": "bpe:512"}
    assert choose_tokenizers(["ngram"], ["words:min=2"]) == {"ngram": "words:min=2"}
    with pytest.raises(ValueError, match="is not in --models"):
        choose_tokenizers(systems, ["rnn=bytes"])


def test_a_lossy_tokenizer_is_refused_unless_all_have_it(book: Path) -> None:
    alone = small(book, tokenizers=["words"])
    check_corpora(prepare_corpora(alone, Unwatched()), alone)
    mixed = small(book, tokenizers=["words", "gpt2=bytes"])
    with pytest.raises(ValueError, match=r"ngram would use words, which is lossy"):
        check_corpora(prepare_corpora(mixed, Unwatched()), mixed)
    lossless = small(book, tokenizers=["own"])
    check_corpora(prepare_corpora(lossless, Unwatched()), lossless)
    apart = small(book, models="gpt2,bert", tokenizers=["bytes", "bert=words"])
    check_corpora(prepare_corpora(apart, Unwatched()), apart)  # they are not compared with each other


def test_masked_systems_are_compared_with_one_tokenizer_only(book: Path) -> None:
    """Even without loss: hidden bytes are easier to guess from their neighbours than hidden words."""
    different = small(book, models="bert,roberta", tokenizers=["bpe:300", "bert=bytes"])
    with pytest.raises(ValueError, match="bert and roberta would use different tokenizers: the smaller the tokens"):
        check_corpora(prepare_corpora(different, Unwatched()), different)
    assert len(set(choose_tokenizers(MASKED, ["own"]).values())) == 1


@pytest.mark.parametrize("spec", sorted({*OWN.values(), OTHERS}))
@pytest.mark.filterwarnings("ignore")
def test_no_tokenizer_of_its_own_loses_text(spec: str) -> None:
    assert not train_tokenizer(spec, ["Some text to learn from, and more of it.\n" * 20]).lossy


def test_too_little_test_text_says_how_much_is_needed(tmp_path: Path) -> None:
    path = tmp_path / "short.txt"
    path.write_text("One line of a text.\n" * 40)
    conditions = small(path)
    with pytest.raises(ValueError, match=r"at least 200: give a text of at least 2,000 bytes"):
        check_corpora(prepare_corpora(conditions, Unwatched()), conditions)
    conditions = small(path, data={"split": [0.8, 0.2]})
    with pytest.raises(ValueError, match=r"no test text is held out.*third fraction"):
        check_corpora(prepare_corpora(conditions, Unwatched()), conditions)


@pytest.mark.parametrize("system", [name for name in COMPARED if name != "ngram"])
@pytest.mark.parametrize("target", [57_000, 2_000_000])
def test_widths_are_matched_within_five_percent(system: str, target: int) -> None:
    size = "tiny" if target < 1e6 else "small"
    values = match_width(system, {"vocabulary": 500, **LINEAGE[system].sizes[size]}, target=target)
    model = create(system, values)
    assert sum(weight.numel() for weight in model.parameters()) == pytest.approx(target, rel=0.05)
    assert values.get("layers") == LINEAGE[system].sizes[size].get("layers"), "depth stays"


def test_a_width_suits_both_parts_of_a_model() -> None:
    """A third of 9 heads are 3, so both the width and a third of it, as it is rounded, must be multiples of these."""
    shape = {"vocabulary": 500, "width": 90, "heads": 9, "layers": 2, "generator": 1 / 3}
    unit = width_unit("electra", shape)
    assert unit % 9 == 0
    for width in (unit, 5 * unit, 7 * unit):
        create("electra", at_width("electra", shape, width))
    values = match_width("electra", shape, target=2_000_000)
    model = create("electra", values)
    assert sum(weight.numel() for weight in model.parameters()) == pytest.approx(2_000_000, rel=0.05)


def test_what_follows_the_width_keeps_its_proportion() -> None:
    assert at_width("albert", {"width": 64, "embedding_width": 32}, 128)["embedding_width"] == 64
    assert at_width("bert", {"width": 64, "inner": 100}, 96)["inner"] == 150
    assert at_width("bert", {"width": 64}, 96) == {"width": 96}, "by default it follows the width"


def test_a_width_that_cannot_be_says_so() -> None:
    with pytest.raises(ValueError, match=r"lstm cannot have 300 parameters"):
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
    planned_runs, skipped = plan(conditions, corpora)
    assert not skipped
    assert [planned.name for planned in planned_runs] == [
        "ngram",
        "lstm-seed5",
        "lstm-seed6",
        "gpt2-seed5",
        "gpt2-seed6",
    ]
    for planned in planned_runs[1:]:
        model = create(planned.system, {**planned.recipe.model, "vocabulary": 300})
        assert sum(weight.numel() for weight in model.parameters()) == pytest.approx(100_000, rel=0.05)
        assert planned.recipe.train.seed == int(planned.name[-1])


def test_the_special_tokens_of_masked_systems_count(book: Path) -> None:
    conditions = small(book, models="bert", match="parameters")
    corpora = prepare_corpora(conditions, Unwatched())
    bert = create("bert", {"vocabulary": 304}, size="tiny")
    assert matched_parameters(conditions, corpora) == pytest.approx(sum(p.numel() for p in bert.parameters()), rel=0.04)
    (planned,), _ = plan(conditions, corpora)
    assert "vocabulary" not in planned.recipe.model


def test_a_system_that_cannot_be_sized_leaves_the_others(book: Path) -> None:
    conditions = small(book, models="ngram,gpt2,lstm", match="parameters=5k")
    planned_runs, skipped = plan(conditions, prepare_corpora(conditions, Unwatched()))
    assert [planned.name for planned in planned_runs] == ["ngram", "lstm"]
    assert [(each.system, "cannot have 5,000" in each.reason) for each in skipped] == [("gpt2", True)]


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
    reported = {
        name: float(rate)
        for a, x, b, y in rows
        for names, rate in ((a, x), (b, y))
        for name in re.findall("[a-z0-9-]+", names)
    }
    assert reported == {name: LINEAGE[name].training["rate"] for name in COMPARED if name != "ngram"}
