"""One server for all tests that change nothing of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve: pip install 'lmlab[serve]'")
pytest.importorskip("uvicorn", reason="needs the extra serve: pip install 'lmlab[serve]'")

from serving import Running, serving, tiny_models


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    return tiny_models(tmp_path_factory.mktemp("runs"))  # type: ignore[return-value]


@pytest.fixture(scope="session")
def server(models: dict[str, object]) -> Iterator[Running]:
    with serving(models) as running:  # type: ignore[arg-type]
        yield running
