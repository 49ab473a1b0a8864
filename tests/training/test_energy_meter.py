"""The cost of a run: its meters, where it is written, and what codecarbon measures."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from lmlab.costs.parameters import Parameters, count_parameters
from lmlab.language_model import load
from lmlab.runs.recipe import make_recipe
from lmlab.runs.run import resume, start
from lmlab.runs.storage import read_json
from lmlab.training import energy_meter
from lmlab.training.energy_meter import Cost, EnergyMeter, codecarbon, total_cost

TEXT = "".join(f"Line {i} of {i * 7 % 11} has {i % 13} words.\n" for i in range(200))


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def recipe(text: Path, kind: str = "lstm", **train: Any) -> Any:
    values = {"budget": "4steps", "batch": 2, "window": 8, "evaluations": 1, **train}
    return make_recipe(
        {
            "data": {"text": str(text)},
            "tokenizer": {"spec": "characters"},
            "model": {"kind": kind, "size": "tiny"},
            "train": values,
        }
    )


def lines(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("kind", ["lstm", "ngram"])
def test_the_last_line_of_metrics_is_the_cost(kind: str, text: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    outcome = start(recipe(text, kind, country="Sweden"), run)
    price = lines(run)[-1]
    expected = count_parameters(load(run).model)
    assert price["parameters"] == {**expected._asdict(), "non_embedding": expected.non_embedding}
    assert (outcome.parameters, outcome.embedding_parameters) == expected
    assert price["flops"] == outcome.progress.flops
    assert price["cost"]["joules"] == pytest.approx(Cost(*outcome.progress.cost).joules)
    assert price["cost"]["grams"] == pytest.approx(price["cost"]["joules"] / 3.6e6 * 41) == pytest.approx(outcome.grams)
    assert price["cost"]["country"] == "SE"
    card = (run / "README.md").read_text()
    for part in (f"{expected.embedding:,} embedding", price["cost"]["energy_method"], "Sweden", "CPU s"):
        assert part in card


def test_a_finished_run_is_metered_once_and_an_extended_one_again(text: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    start(recipe(text), run)
    first = lines(run)
    resume(run)
    assert lines(run) == first, "nothing was done, nothing is added"
    resume(run, settings={"budget": "6steps"})
    priced = [line for line in lines(run) if "parameters" in line]
    assert [line["step"] for line in priced] == [4, 6]
    assert priced[1]["cost"]["seconds"] > priced[0]["cost"]["seconds"], "the whole run is counted"


def test_an_old_checkpoint_without_gpu_seconds_is_resumed(text: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    start(recipe(text), run)
    place = run / "last" / "progress.json"
    progress = read_json(place)
    progress["cost"] = progress["cost"][:3]
    place.write_text(json.dumps(progress))
    from lmlab.runs.storage import write_manifest

    write_manifest(run / "last")
    assert resume(run, settings={"budget": "6steps"}).progress.step == 6


def test_an_unknown_country_is_found_before_anything_is_made(text: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"train\.country.*did you mean 'sweden'"):
        recipe(text, country="Swedn")
    assert not (tmp_path / "run").exists()


def test_stated_watts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(energy_meter, "RAPL", Path("/nowhere"))
    monkeypatch.setenv("LMLAB_WATTS", "20")
    meter = EnergyMeter()
    sum(i * i for i in range(200_000))
    cost = meter.lap()
    assert cost.cpu_seconds > 0
    assert cost.joules == pytest.approx(20 * cost.cpu_seconds)
    assert meter.method == "CPU seconds x 20 W"
    gpu = EnergyMeter(SimpleNamespace(type="mps"))  # type: ignore[arg-type]
    cost = gpu.lap()
    assert gpu.method == "CPU seconds x 20 W + GPU seconds x 15 W"
    assert cost.joules == pytest.approx(20 * cost.cpu_seconds + 15 * cost.gpu_seconds)
    monkeypatch.setenv("LMLAB_WATTS", "many")
    with pytest.raises(ValueError, match="LMLAB_WATTS=many"):
        EnergyMeter()


def test_rapl_counters_are_read_and_wrap_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for number, name in enumerate(("package-0", "psys", "package-1")):
        folder = tmp_path / f"intel-rapl:{number}"
        folder.mkdir()
        for file, value in (("name", name), ("energy_uj", "900"), ("max_energy_range_uj", "1000")):
            (folder / file).write_text(value)
    monkeypatch.setattr(energy_meter, "RAPL", tmp_path)
    meter = EnergyMeter()
    assert meter.method == "RAPL"
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("950")
    (tmp_path / "intel-rapl:1" / "energy_uj").write_text("999")
    (tmp_path / "intel-rapl:2" / "energy_uj").write_text("100")
    assert meter.lap().joules == pytest.approx((50 + 200) / 1e6), "package 1 went past its end"


def test_nvml_adds_the_energy_of_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([1000, 1000, 3500])
    library = ModuleType("pynvml")
    library.nvmlInit = lambda: None  # type: ignore[attr-defined]
    library.nvmlDeviceGetHandleByUUID = lambda name: {"GPU-abc": 7}[name]  # type: ignore[attr-defined]
    library.nvmlDeviceGetTotalEnergyConsumption = lambda handle: next(readings)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pynvml", library)
    import torch

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="abc"))
    monkeypatch.setattr(energy_meter, "RAPL", Path("/nowhere"))
    monkeypatch.setenv("LMLAB_WATTS", "0")
    meter = EnergyMeter(torch.device("cuda"))
    cost = meter.lap()
    assert meter.method == "CPU seconds x 0 W + NVML"
    assert cost.joules == 2.5
    assert cost.gpu_seconds == cost.seconds


def test_costs_add_up() -> None:
    assert Cost(1, 2, 3).plus(Cost(4, 5, 6, 7)) == (5, 7, 9, 7)
    tag = total_cost(Cost(1, 2, 3.6e6), parameters=Parameters(10, 4), flops=5.0, method="by hand")
    assert tag["parameters"] == {"total": 10, "embedding": 4, "non_embedding": 6}
    assert tag["cost"]["grams"] == tag["cost"]["grams_per_kwh"]


def test_codecarbon_measures_too_if_asked_for(monkeypatch: pytest.MonkeyPatch, text: Path, tmp_path: Path) -> None:
    """With a stand-in for codecarbon that always says 2 Wh and 1 g."""
    asked: dict[str, Any] = {}

    class Tracker:
        def __init__(self, **options: Any) -> None:
            asked.update(options)
            self.final_emissions_data = SimpleNamespace(energy_consumed=0.002)

        def start(self) -> None:
            asked["started"] = True

        def stop(self) -> float:
            return 0.001

    monkeypatch.delenv("LMLAB_CODECARBON", raising=False)
    monkeypatch.delenv("LMLAB_SECOND_OPINION", raising=False)
    with codecarbon() as measured:
        pass
    assert measured.text == ""
    monkeypatch.setenv("LMLAB_CODECARBON", "1")
    monkeypatch.setitem(sys.modules, "codecarbon", None)
    with pytest.raises(ValueError, match=r"lmlab\[energy\]"):
        start(recipe(text), tmp_path / "first")
    module = ModuleType("codecarbon")
    module.OfflineEmissionsTracker = Tracker  # type: ignore[attr-defined]
    module.__version__ = "3.0"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "codecarbon", module)
    start(recipe(text, country="FR"), tmp_path / "run")
    assert asked["started"]
    assert asked["country_iso_code"] == "FRA"
    assert "| codecarbon | 2 Wh, 1 g CO2e (codecarbon 3.0" in (tmp_path / "run" / "README.md").read_text()
    monkeypatch.setenv("LMLAB_CODECARBON", "oracle")
    with pytest.raises(ValueError, match="give 1"), codecarbon():
        pass


def test_the_old_name_of_the_variable_still_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LMLAB_CODECARBON", raising=False)
    monkeypatch.setenv("LMLAB_SECOND_OPINION", "codecarbon")
    monkeypatch.setitem(sys.modules, "codecarbon", None)
    with (
        pytest.warns(FutureWarning, match="is now LMLAB_CODECARBON=1"),
        pytest.raises(ValueError, match=r"lmlab\[energy\]"),
        codecarbon(),
    ):
        pass
    monkeypatch.setenv("LMLAB_SECOND_OPINION", "oracle")
    with pytest.raises(ValueError, match="give codecarbon"), codecarbon():
        pass


def test_codecarbon_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("codecarbon")
    monkeypatch.setenv("LMLAB_CODECARBON", "1")
    with codecarbon() as measured:
        sum(i * i for i in range(1_000_000))
    assert "Wh" in measured.text


def test_scoring_has_its_cost(text: Path, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from lmlab.cli import app

    start(recipe(text), tmp_path / "run")
    arguments = ["score", str(tmp_path / "run"), str(text), "--country", "PL"]
    cost = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)["cost"]
    assert cost["seconds"] > 0
    assert cost["grams"] == pytest.approx(cost["joules"] / 3.6e6 * 662)
    shown = CliRunner().invoke(app, arguments).output
    assert " J (" in shown
    assert "g CO2e (PL)" in shown
