"""Requests made up from our own description of the API: none may be an error of ours, or hang."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from serving import Running

from patience import PATIENCE

schemathesis = pytest.importorskip("schemathesis")
hypothesis = pytest.importorskip("hypothesis")

CASES = 25
PATHS = [
    "/v1/completions",
    "/v1/embeddings",
    "/v1/fill",
    "/v1/translate",
    "/v1/predict",
    "/tokenize",
    "/detokenize",
    "/tokenizer_info",
    "/v1/models/{name}",
]


@pytest.mark.parametrize("path", PATHS)
def test_made_up_requests_are_answered_or_refused(server: Running, path: str) -> None:
    schema = schemathesis.openapi.from_url(f"{server.address}/openapi.json")
    seen: list[int] = []
    for method in schema[path]:
        operation = schema[path][method]
        for mode in schemathesis.GenerationMode:

            @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
            @hypothesis.settings(
                max_examples=CASES,
                deadline=None,
                database=None,
                derandomize=True,
                suppress_health_check=list(hypothesis.HealthCheck),
            )
            def check(case: Any) -> None:
                answer = case.call(base_url=server.address, timeout=PATIENCE)
                seen.append(answer.status_code)
                assert answer.status_code < 500, (case.body, answer.text)
                if answer.status_code >= 400:
                    assert answer.json()["error"]["message"]

            with suppress(hypothesis.errors.Unsatisfiable):  # there is no wrong name of a model
                check()
    assert len(seen) > CASES / 2
    assert all(served.engine.failed is None for served in server.runs.served.values())
