"""What a recipe fills in: presets, and the learning rate of a family at the width of a model."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from lmlab.messages import with_article
from lmlab.models import LINEAGE, load_class, systems_that_read
from lmlab.models.defaults.system import SHORT_FRACTION, SHORT_MASKING_RATE
from lmlab.runs.recipe import make_recipe
from lmlab.runs.recipe_record import RecipeRecord, find_changes, read_groups, write_recipe
from lmlab.runs.upgrade import upgrade_saved

TUNED = [name for name in systems_that_read("text") if LINEAGE[name].tuned_width is not None]


def rate(kind: str, size: str, **values: dict[str, Any]) -> float:
    model = {"kind": kind, "size": size, **values.pop("model", {})}
    return make_recipe({"data": {"text": ["builtin"]}, "model": model, **values}).train.rate


@pytest.mark.parametrize("name", TUNED)
def test_a_wider_network_takes_smaller_steps(name: str) -> None:
    system = LINEAGE[name]
    assert system.sizes["tiny"]["width"] == system.tuned_width, "rates are tuned at the size tiny"
    for size, preset in system.sizes.items():
        if preset["width"] >= system.tuned_width:
            assert rate(name, size) * preset["width"] == pytest.approx(system.training["rate"] * system.tuned_width)


def test_rates_of_large_models_are_near_the_published_ones() -> None:
    assert rate("bert", "base") == pytest.approx(1e-4, rel=1)  # Devlin et al. 2019, A.2
    assert rate("gpt", "117M") == pytest.approx(2.5e-4, rel=0.5)  # Radford et al. 2018
    assert rate("gpt2", "124M") == pytest.approx(6e-4, rel=0.5)  # Brown et al. 2020, table 2.1, 125M


def test_the_users_rate_and_width_go_before() -> None:
    assert rate("gpt2", "124M", train={"rate": 0.5}) == 0.5
    narrow = rate("gpt2", "tiny", model={"width": 32})
    assert narrow == rate("gpt2", "tiny") == LINEAGE["gpt2"].training["rate"], "not extrapolated to narrower ones"
    assert rate("gpt2", "tiny", model={"width": 256}) == pytest.approx(narrow / 4)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"pairs": "pairs.tsv", "valid": "valid.txt"}, "valid is plain text, but this run trains on pairs"),
        ({"pairs": "pairs.tsv", "test": "test.txt"}, "give data.test_source and data.test_target"),
        ({"text": "book.txt", "valid_source": "a", "valid_target": "b"}, "valid_source belongs to pairs"),
        ({"text": "book.txt", "test_pairs": "pairs.tsv"}, "test_pairs belongs to pairs"),
        ({"text": "book.txt", "languages": ["en", "de"]}, "languages belongs to pairs"),
    ],
)
def test_no_text_is_ignored(data: dict[str, Any], message: str) -> None:
    kind = "transformer" if "pairs" in data else "gpt2"
    with pytest.raises(ValueError, match=message):
        make_recipe({"data": data, "model": {"kind": kind}})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (None, r"values = None: a recipe is a table of groups"),
        ([("data", 1)], r"values = \[.*: a recipe is a table of groups"),
        (
            {"data": "book.txt"},
            r"data = 'book.txt': a group of settings is.*\{'data': \{'text': 'book.txt'\}\}",
        ),
        ({"data": None}, r"data = None: a group of settings is a table"),
        ({"data": {"text": "book.txt"}, "model": "gpt2"}, r"model = 'gpt2'.*\{'model': \{'kind': 'gpt2'\}\}"),
        ({"data": {"text": "a"}, "model": {"kind": "gpt2"}, "train": 3}, r"train = 3: a group of settings"),
        ({"data": {"text": "a"}, "model": {"kind": "gpt2"}, "origin": 3}, r"origin = 3: give the folder of a run"),
    ],
)
def test_wrong_types_are_named(values: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_recipe(values)


def test_names_have_their_article() -> None:
    an = {"albert", "attention-lm", "awd-lstm", "electra", "elmo", "lm-1b", "lstm", "mbert", "ngram", "nplm", "rnn"}
    assert {name for name in LINEAGE if with_article(name) == f"an {name}"} == an | {"xlm-r", "xlnet"}


def test_translators_keep_their_rate() -> None:
    for size in ("tiny", "big"):
        values = {"data": {"pairs": ["pairs.tsv"]}, "model": {"kind": "transformer", "size": size}}
        assert make_recipe(values).train.rate == LINEAGE["transformer"].training["rate"]


@pytest.mark.parametrize(
    ("kind", "begun", "changed"),
    [
        ("electra", {"parts": "generator", "generator": 1.0}, {"parts": "both", "generator": 0.5}),
        ("gpt2", {"dropout": 0.0}, {"dropout": 0.3}),
        ("gpt2", {}, {}),
    ],
)
def test_a_run_that_began_with_another_is_made_again(
    kind: str, begun: dict[str, Any], changed: dict[str, Any], tmp_path: Path
) -> None:
    cls = load_class(kind)
    model = cls.Config(**{"vocabulary": 100, **LINEAGE[kind].sizes["tiny"], **begun})
    origin, made = tmp_path / "origin", tmp_path / "made"
    origin.mkdir()
    made.mkdir()
    (origin / "config.json").write_text(json.dumps({"kind": kind, "model": model.model_dump()}))
    recipe = make_recipe({"data": {"text": ["builtin"]}, "model": {"kind": kind, **changed}, "origin": str(origin)})
    write_recipe(made, RecipeRecord(recipe, None, None))
    assert read_groups(made / "recipe.json")["model"] == {"kind": kind, **changed}
    assert make_recipe(read_groups(made / "recipe.json")) == recipe


@pytest.mark.parametrize(
    ("model", "values", "short"),
    [
        ({"kind": "bert", "size": "tiny"}, {}, [16, 32]),
        ({"kind": "bert"}, {}, [16, 32, 64]),
        ({"kind": "albert", "size": "medium"}, {}, [16, 32, 64]),
        ({"kind": "electra"}, {}, [16, 32, 64]),
        ({"kind": "roberta", "window": 96}, {}, [16, 32]),
        ({"kind": "xlm-r"}, {"train": {"window": 64}}, [16, 32]),
        ({"kind": "mbert"}, {"data": {"text": ["en=x", "de=y"]}}, [16, 32, 64]),
        ({"kind": "bert"}, {"train": {"window": 32}}, None),
        ({"kind": "bert", "size": "base"}, {}, None),
        ({"kind": "bert", "size": "base"}, {"train": {"window": 128}}, None),
        ({"kind": "electra", "size": "small"}, {}, None),
        ({"kind": "bert"}, {"objective": {"short": None}}, None),
        ({"kind": "bert"}, {"objective": {"short": 16}}, 16),
        ({"kind": "bert"}, {"data": {"source": "x", "target": "y"}}, None),
    ],
)
def test_masked_models_of_cpu_sizes_begin_with_short_rows(
    model: dict[str, Any], values: dict[str, Any], short: object
) -> None:
    """Published sizes keep what was published, and what the user sets stays."""
    recipe = make_recipe({"data": {"text": "x"}, "model": model, **values})
    assert recipe.objective["short"] == short
    usual = isinstance(short, list)
    assert recipe.objective["short_fraction"] == (SHORT_FRACTION if usual else 0.9)
    more = usual and model["kind"] != "electra"
    assert recipe.objective["short_masking_rate"] == (SHORT_MASKING_RATE if more else None)


def test_settings_of_models_by_their_old_names_are_upgraded() -> None:
    with pytest.warns(FutureWarning, match=r"model\.restart is now model\.reset_probability"):
        recipe = make_recipe({"data": {"text": "x"}, "model": {"kind": "lstm", "size": "tiny", "restart": 0.25}})
    assert recipe.model["reset_probability"] == 0.25
    assert "restart" not in recipe.model
    config = load_class("lstm").Config.model_validate({"vocabulary": 9, "restart": 0.25})  # a config.json of 0.5
    assert config.reset_probability == 0.25
    assert upgrade_saved({"model": {"waves": "halves"}})["model"] == {"position_order": "halves"}
    assert upgrade_saved({"model": {"place": "both"}})["model"] == {"state_position": "both"}
    assert upgrade_saved({"objective": {"kind": "neighbours"}})["objective"]["kind"] == "negative_sampling"
    masked = {"kind": "masked", "share": 0.3, "mask_share": 0.7, "random_share": 0.2, "short_share": 0.5}
    with pytest.warns(FutureWarning, match=r"objective\.share is now objective\.masking_rate"):
        recipe = make_recipe({"data": {"text": "x"}, "model": {"kind": "bert"}, "objective": masked})
    today = {"masking_rate": 0.3, "mask_fraction": 0.7, "random_fraction": 0.2, "short_fraction": 0.5}
    assert recipe.objective.items() >= today.items()
    assert upgrade_saved({"objective": masked})["objective"] == {"kind": "masked", **today}
    regions = upgrade_saved({"objective": {"kind": "masked_captions", "region_share": 0.2}})["objective"]
    assert regions == {"kind": "masked_captions", "region_masking_rate": 0.2}


def test_settings_that_were_renamed_still_work(tmp_path: Path) -> None:
    """Those of a saved recipe silently, those that users write with a note."""
    train = {"schedule": "stairs", "stairs_epochs": 2, "stairs_factor": 0.25}
    new = {"schedule": "step_decay", "step_decay_epochs": 2, "step_decay_factor": 0.25}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        saved = upgrade_saved({"train": train, "changes": [{"step": 3, "train": {"stairs_factor": 0.1}}]})
    assert saved == {"train": new, "changes": [{"step": 3, "train": {"step_decay_factor": 0.1}}]}
    with pytest.warns(FutureWarning) as noted:
        recipe = make_recipe({"data": {"text": "x"}, "model": {"kind": "lstm"}, "train": train})
    assert [str(each.message) for each in noted] == [
        "train.schedule = 'stairs' is now 'step_decay'",
        "train.stairs_epochs is now train.step_decay_epochs",
        "train.stairs_factor is now train.step_decay_factor",
    ]
    assert {name: value for name, value in recipe.train.model_dump().items() if name in new} == new


def test_changes_of_settings_have_names(tmp_path: Path) -> None:
    recipe = make_recipe({"data": {"text": "x"}, "model": {"kind": "lstm"}, "train": {"rate": 0.1}})
    record = RecipeRecord(recipe.model_copy(update={"data": recipe.data.absolute()}), "abc", None)
    assert find_changes(record, recipe) == []
    other = make_recipe({"data": {"text": "y"}, "model": {"kind": "lstm", "layers": 3}, "train": {"rate": 0.2}})
    assert find_changes(record, other) == ["data.text", "model.layers", "train.rate"]
    assert find_changes(record, other, data_sha256="abc") == ["model.layers", "train.rate"]
    assert find_changes(record, recipe, data_sha256="def") == ["data"]
    device = recipe.model_copy(update={"train": recipe.train.model_copy(update={"device": "cpu"})})
    assert find_changes(record, device) == [], "what is learnt does not depend on it"
    changed = record.change({"budget": "9min"}, step=4)
    assert find_changes(changed, recipe) == [], "as it was begun"
    assert find_changes(changed, changed.recipe) == [], "as it is now"
