"""lm-evaluation-harness over the server equals our own scorer, item by item, without a tokenizer of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from serving import Running, serving

from lmlab.decoding.scorer import ChainRule
from lmlab.prompting.asking import continuation_nats

pytest.importorskip("lm_eval", reason="needs lm-evaluation-harness: pip install 'lm-eval[api]'")

ITEMS = [
    {"question": "the cat sat on", "choices": ["the mat .", "the log .", "a dog"], "gold": 0},
    {"question": "the dog sat on", "choices": ["the mat .", "the log .", "a café"], "gold": 1},
    {"question": "a cat and a dog", "choices": ["ran to the mat .", "sat", "costs 5 € 😀"], "gold": 0},
    {"question": "the naïve café", "choices": ["costs 5 €", "sat on the log .", "dog"], "gold": 0},
]


@pytest.mark.parametrize("kind", ["ngram", "gpt2", "lstm"])
def test_the_harness_agrees_item_by_item(models: dict[str, Any], kind: str, tmp_path: Path) -> None:
    with serving({kind: models[kind]}) as server:
        samples = evaluate(server, kind, tmp_path)
    lm = models[kind]
    rule = ChainRule(lm.writer.model, lm.frame)
    for sample in samples:
        item = ITEMS[sample["doc_id"]]
        pairs = [(str(item["question"]), f" {choice}") for choice in item["choices"]]  # type: ignore[union-attr]
        expected = [-nats for nats, _ in continuation_nats(lm, rule, pairs)]
        reported = [float(response[0][0]) for response in sample["resps"]]
        assert reported == pytest.approx(expected, abs=1e-3)
        assert sample["acc"] == float(max(range(3), key=expected.__getitem__) == item["gold"])
    assert len(samples) == len(ITEMS)


def evaluate(server: Running, kind: str, tmp_path: Path) -> list[dict[str, Any]]:
    """What the harness says of each item."""
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    (tmp_path / "items.jsonl").write_text("".join(json.dumps(item) + "\n" for item in ITEMS))
    (tmp_path / "ours.yaml").write_text(
        "task: ours\ndataset_path: json\n"
        f"dataset_kwargs:\n  data_files:\n    test: {tmp_path}/items.jsonl\n  cache_dir: {tmp_path}/cache\n"
        'test_split: test\noutput_type: multiple_choice\ndoc_to_text: "{{question}}"\n'
        'doc_to_choice: "{{choices}}"\ndoc_to_target: gold\nmetric_list:\n  - metric: acc\n'
    )
    found: dict[str, Any] = (
        simple_evaluate(
            model="local-completions",
            model_args={
                "model": kind,
                "base_url": f"{server.address}/v1/completions",
                "num_concurrent": 1,
                "max_retries": 1,
            },
            tasks=["ours"],
            task_manager=TaskManager(include_path=str(tmp_path), include_defaults=False),
            log_samples=True,
            bootstrap_iters=0,
        )
        or {}
    )
    samples: list[dict[str, Any]] = found["samples"]["ours"]
    return samples
