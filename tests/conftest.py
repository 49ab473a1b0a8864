"""What several tests share: one thread, unless more are asked for from outside, and the way to the shared data."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests run side by side

hypothesis.settings.register_profile(  # an example may take as long as it does: the machine may be slow, or busy
    "patient",
    hypothesis.settings.default,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("patient")

DATA = Path(os.environ.get("LMLAB_DATA", Path(__file__).parents[2] / "shared" / "data"))


@pytest.fixture(autouse=True, scope="session")
def _private_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ["LMLAB_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True, scope="module")
def _threads_as_asked_for() -> Iterator[None]:
    """A test that changes the number of threads, and leaves it so, would take it from all that follow."""
    yield
    if (torch := sys.modules.get("torch")) is not None:
        assert torch.get_num_threads() == int(os.environ["OMP_NUM_THREADS"])


@pytest.fixture(scope="session")
def shared_data() -> Callable[[str], Path]:
    """The folder of a real corpus or fixture; the test is skipped where there is none."""

    def find(name: str) -> Path:
        folder = DATA / name
        if not folder.is_dir():
            pytest.skip(f"needs {name} in LMLAB_DATA (looked in {DATA})")
        return folder

    return find
