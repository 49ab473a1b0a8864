"""`lmlab doctor` says what is there, and names the line that installs what is not."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import torch

from lmlab.cli import diagnosis
from lmlab.cli.diagnosis import EXTRAS, examine


def by_name() -> dict[str, diagnosis.Finding]:
    return {each.name: each for each in examine()}


def test_what_it_finds_is_so(run_command) -> None:
    said = run_command("doctor", "--json")
    assert said.code == 0
    found = json.loads(said.out)
    assert found["works"]
    values = {each["name"]: each for each in found["findings"]}
    assert values["torch"]["value"] == torch.__version__
    assert values["threads"]["value"].startswith(f"{torch.get_num_threads()} of ")
    assert values["vision"]["state"] == "ok"
    assert metadata.version("pillow") in values["vision"]["value"]
    assert set(EXTRAS) <= values.keys()


def test_what_is_missing_is_no_fault_and_the_line_that_installs_it_is_named(
    run_command, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = metadata.version

    def without(name: str) -> str:
        if name == "pillow":
            raise metadata.PackageNotFoundError(name)
        return "0.0.1" if name == "sacrebleu" else version(name)

    monkeypatch.setattr(metadata, "version", without)
    monkeypatch.setattr(diagnosis.shutil, "which", lambda name: None)
    said = run_command("doctor")
    assert said.code == 0, "extras and programs are optional"
    assert "pip install 'lmlab[vision]'" in said.out
    assert "pip install 'lmlab[eval]'" in said.out, "too old is as good as missing"
    assert "pip install 'lmlab[vision,rl,eval" in said.out
    assert "apt-get install chromium" in said.out or sys.platform != "linux"


def test_what_everything_needs_is_a_problem(run_command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    version = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "0.1" if name == "safetensors" else version(name))
    monkeypatch.setenv("LMLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(diagnosis, "LOW_DISK", 1 << 80)
    found = by_name()
    assert found["safetensors"].remedy.startswith("pip install 'safetensors>=")
    assert found["cache"].state == "problem"
    assert str(tmp_path / "cache") in found["cache"].value
    assert run_command("doctor").code == 1


def test_a_check_that_fails_is_one_problem_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def check_ports() -> None:
        raise OSError("no interface")

    monkeypatch.setattr(diagnosis, "CHECKS", (check_ports, *diagnosis.CHECKS))
    found = by_name()
    assert found["ports"].state == "problem"
    assert "no interface" in found["ports"].value
    assert found["torch"].state == "ok"


def test_it_imports_no_package_of_an_extra() -> None:
    code = "import sys; from lmlab.cli.diagnosis import examine; examine(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"PIL", "fastapi", "symusic", "gymnasium", "sklearn", "matplotlib", "h5py", "sentencepiece", "sacrebleu"}
    assert heavy & set(done.stdout.split()) == set()


def test_kernels_are_measured_and_remembered(run_command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LMLAB_CACHE", str(tmp_path / "cache"))
    assert by_name()["choice of kernels"].value == "defaults"
    said = run_command("doctor", "--calibrate", "--json")
    assert said.code == 0
    values = {each["name"]: each for each in json.loads(said.out)["findings"]}
    assert values["choice of kernels"]["value"].startswith("measured: few_prepared ")
    assert (tmp_path / "cache" / "kernels.json").is_file()
