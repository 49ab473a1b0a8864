"""The studio's routes tell what the library says, whatever the run."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lmlab
from lmlab.analysis.attention import read_attention
from lmlab.layers.watching import watching
from lmlab.studio.app import OLD_ROUTES
from lmlab.studio.run_store import RunStore
from lmlab.studio.views.runs import Tail, thin, to_point
from studio_texts import HARM, WEIRD

TEXT = "The cat number 7 sat"
NAMES = ["bert", "counts", "demo/gpt2", "demo/lstm", "en-de", "labels", WEIRD]


@pytest.fixture(scope="module")
def client(client_of: Callable[..., Any]) -> Any:
    return client_of()


def ask(client: Any, name: str, **body: Any) -> Any:
    response = client.post(f"/studio/api/{name}", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def test_every_run_is_listed_with_what_it_does(client: Any) -> None:
    runs = {run["name"]: run for run in client.get("/studio/api/runs").json()["runs"]}
    assert list(runs) == NAMES
    assert runs["counts"]["does"] == ["next token"]
    assert "masks" in runs["bert"]["does"]
    assert "target text" in runs["en-de"]["does"]
    assert runs["labels"]["task"] == "classification"
    assert all(run["weights"] and run["status"] == "ready" for run in runs.values())


def test_a_run_has_its_card_and_its_settings_but_no_path(client: Any, studio_runs: Path) -> None:
    found = client.get("/studio/api/run", params={"run": "demo/gpt2"}).json()
    assert "gpt2" in found["card"]
    assert found["settings"]["model"]["heads"] == 2
    assert str(studio_runs.parent) not in json.dumps(found["settings"])


def test_one_run_alone_is_a_run_store(studio_runs: Path) -> None:
    assert list(RunStore(studio_runs / "demo" / "lstm").paths()) == ["lstm"]


@pytest.mark.parametrize("run", ["counts", "demo/lstm", "demo/gpt2", WEIRD])
def test_next_tokens_are_those_of_the_library(client: Any, studio_runs: Path, run: str) -> None:
    (found,) = ask(client, "next", runs=[run], text=TEXT, top=5)["runs"]
    expected = lmlab.load(studio_runs / run).next(TEXT, top=5)
    assert [each["probability"] for each in found["tokens"]] == pytest.approx([p for _, p in expected])
    pieces = [each["piece"] for each in found["tokens"]]
    assert [a for a, (b, _) in zip(pieces, expected, strict=True) if a != b] in ([], ["■ end"])
    assert [each["sampled"] for each in found["tokens"]] == pytest.approx([p for _, p in expected])


def test_temperature_and_nucleus_change_the_sampled_probabilities(client: Any) -> None:
    (found,) = ask(client, "next", runs=["demo/gpt2"], text=TEXT, top=100, temperature=0.5, top_p=0.15)["runs"]
    tokens = found["tokens"]
    squares = [each["probability"] ** 2 for each in tokens]  # softmax(logits / 0.5) is proportional to p²
    kept = [each for each in tokens if each["sampled"] > 0]
    assert found["kept"] == len(kept) < 100
    total = sum(squares[: len(kept)])
    assert [each["sampled"] for each in kept] == pytest.approx(
        [each / total for each in squares[: len(kept)]], rel=1e-4
    )


def test_what_a_token_adds_is_text(client: Any, studio_runs: Path) -> None:
    (found,) = ask(client, "next", runs=["demo/gpt2"], text=TEXT, top=20)["runs"]
    tokenizer = lmlab.load(studio_runs / "demo/gpt2").text_tokenizer
    ids = tokenizer.encode(TEXT)
    for each in found["tokens"]:
        if each["adds"]:
            assert tokenizer.decode([*ids, each["token"]]) == TEXT + each["adds"]


@pytest.mark.parametrize("run", ["counts", "demo/gpt2", "bert", WEIRD])
def test_surprisal_adds_up_to_the_score(client: Any, studio_runs: Path, run: str) -> None:
    text = "The cat sat.\nOnce  upon a time "
    (found,) = ask(client, "surprisal", runs=[run], text=text)["runs"]
    score = lmlab.load(studio_runs / run).score(text)
    assert found["bits"] == pytest.approx(score.bits)
    assert sum(each["bits"] for each in found["tokens"]) == pytest.approx(score.bits)
    assert sum(each["bits"] for each in found["words"]) == pytest.approx(score.bits)
    assert len(found["words"]) == 7


def test_a_run_that_cannot_is_reported_beside_those_that_can(client: Any) -> None:
    found = ask(client, "attribution", runs=["counts", "demo/gpt2"], text=TEXT)
    assert [each["run"] for each in found["runs"]] == ["demo/gpt2"]
    (refused,) = found["refused"]
    assert refused["run"] == "counts"
    assert "no gradients" in refused["why"]
    response = client.post("/studio/api/attribution", json={"runs": ["counts"], "text": TEXT})
    assert response.status_code == 400
    assert refused["why"] in response.text


def test_a_pinned_branch_is_searched_on_and_scored(client: Any, studio_runs: Path) -> None:
    plain, pinned = ask(client, "search", run="demo/gpt2", text=TEXT, tokens=3, beams=2, pins=[[40, 41]])["searches"]
    trees: list[Any] = []
    model = lmlab.load(studio_runs / "demo/gpt2")
    model.generate(TEXT, tokens=3, beams=2, trace=trees.append)
    assert plain["results"] == [
        {key: pytest.approx(value) if isinstance(value, float) else value for key, value in each.items()}
        for each in trees[0].as_dict()["results"]
    ]
    assert [each["token"] for each in pinned["forced"]] == [40, 41]
    tokenizer = model.text_tokenizer
    ids = tokenizer.encode(TEXT)
    nats = model.scorer.rule.nats([np.array([*ids, 40, 41])], batch=1, progress=None)[0]
    assert pinned["forced_total"] == pytest.approx(-float(nats[-2:].sum()))


def test_a_forced_word_has_the_tokens_that_it_has_there(client: Any, studio_runs: Path) -> None:
    found = ask(client, "tokens", run="demo/gpt2", after="The cat", text=" sat")["tokens"]
    tokenizer = lmlab.load(studio_runs / "demo/gpt2").text_tokenizer
    assert [each["token"] for each in found] == tokenizer.encode("The cat sat")[len(tokenizer.encode("The cat")) :]


@pytest.mark.parametrize("jointly", [False, True])
def test_masks_are_filled_as_by_the_library(client: Any, studio_runs: Path, jointly: bool) -> None:
    text = "The cat [MASK] on the [MASK]."
    found = client.post("/v1/fill", json={"model": "bert", "text": text, "top": 3, "jointly": jointly}).json()
    expected = lmlab.load(studio_runs / "bert").fill(text, top=3, jointly=jointly)
    assert [each["text"] for each in found["fillings"]] == [each.text for each in expected.fillings]
    assert len(found["candidates"]) == 2


def test_a_translation_comes_with_its_alignment(client: Any, studio_runs: Path) -> None:
    found = ask(client, "translate", run="en-de", text="somebody saw day 3", beams=2)
    assert found["translations"][0]["text"] == lmlab.load(studio_runs / "en-de").translate(
        "somebody saw day 3", beams=2
    )
    assert all(math.isclose(sum(row), 1, rel_tol=1e-4) for row in found["alignment"]["weights"])


def test_a_fine_tuned_run_predicts(client: Any, studio_runs: Path) -> None:
    (found,) = client.post("/v1/predict", json={"model": "labels", "input": "a good film"}).json()["data"]
    expected = lmlab.load(studio_runs / "labels").classify("a good film")
    assert found["value"] == expected.value
    assert set(found["scores"]) == {HARM, "bad"}
    assert client.get("/studio/api/task", params={"run": "labels"}).json()["kind"] == "classification"


@pytest.mark.parametrize(("run", "kind"), [("demo/gpt2", "self"), ("bert", "self"), ("en-de", "cross")])
def test_attention_travels_in_half_precision(client: Any, studio_runs: Path, run: str, kind: str) -> None:
    body = {"run": run, "text": "somebody saw day 3"}
    about = ask(client, "attention", **body)["kinds"][kind]
    expected = read_attention(lmlab.load(studio_runs / run), body["text"])[kind].weights
    assert (about["layers"], about["heads"]) == expected.shape[:2]
    response = client.post("/studio/api/attention/layer", json={**body, "kind": kind, "layer": about["layers"] - 1})
    shape = tuple(map(int, response.headers["x-shape"].split(",")))
    found = np.frombuffer(response.content, "<f2").reshape(shape)
    assert np.allclose(found, expected[-1], atol=1e-3)


def test_a_masked_token_changes_what_is_seen(client: Any, studio_runs: Path) -> None:
    body = {"run": "bert", "text": "The cat sat on the mat"}
    whole = ask(client, "attention", **body)["kinds"]["self"]
    hidden = ask(client, "attention", **body, masked=[2])["kinds"]["self"]
    mask = lmlab.load(studio_runs / "bert").text_tokenizer
    assert hidden["queries"][2] == mask.show(mask.special("mask"))
    assert hidden["queries"][:2] == whole["queries"][:2]
    assert hidden["does"] != whole["does"]


def test_a_model_without_a_mask_reads_the_text_without_the_token(client: Any, studio_runs: Path) -> None:
    body = {"run": "demo/gpt2", "text": "The cat sat on the mat"}
    whole = ask(client, "attention", **body)["kinds"]["self"]
    about = ask(client, "attention", **body, masked=[3, 1])["kinds"]["self"]
    assert about["removed"] == [1, 3]
    assert about["queries"] == whole["queries"]
    response = client.post("/studio/api/attention/layer", json={**body, "masked": [3, 1], "layer": 1})
    found = np.frombuffer(response.content, "<f2").reshape(tuple(map(int, response.headers["x-shape"].split(","))))
    model = lmlab.load(studio_runs / "demo/gpt2")
    ids = [*model.frame.row()["tokens"], *model.text_tokenizer.encode(body["text"])]
    kept = [n for n in range(len(ids)) if n not in (1, 3)]
    with torch.inference_mode(), watching(model.model, "blocks.1.attention.probabilities") as seen:
        model.model(torch.tensor([[ids[n] for n in kept]]))
    (expected,) = seen["blocks.1.attention.probabilities"]
    assert np.allclose(found[:, kept][:, :, kept], expected[0].numpy(), atol=1e-3)
    assert not found[:, [1, 3]].any()
    assert not found[:, :, [1, 3]].any()


@pytest.mark.parametrize(("run", "text"), [("bert", "The cat sat"), ("demo/gpt2", "a cat " * 18)])
def test_all_heads_are_sent_in_small(client: Any, studio_runs: Path, run: str, text: str) -> None:
    response = client.post("/studio/api/attention/heads", json={"run": run, "text": text})
    shape = tuple(map(int, response.headers["x-shape"].split(",")))
    found = np.frombuffer(response.content, np.uint8).reshape(shape)
    weights = read_attention(lmlab.load(studio_runs / run), text)["self"].weights
    tokens = weights.shape[2]
    assert shape == (*weights.shape[:2], min(tokens, 32), min(tokens, 32))
    ends = [(n * tokens // shape[2], (n + 1) * tokens // shape[2]) for n in range(shape[2])]
    for i, (top, bottom) in enumerate(ends):
        for j, (left, right) in enumerate(ends):
            most = weights[:, :, top:bottom, left:right].max(axis=(2, 3))
            assert np.allclose(found[:, :, i, j], 255 * np.sqrt(most), atol=0.51)


@pytest.mark.parametrize(
    ("route", "body", "reported"),
    [
        ("next", {"runs": ["bert"], "text": "a"}, "bert is a masked language model"),
        ("next", {"runs": ["demo/lst"], "text": "a"}, "demo/lstm"),
        ("next", {"runs": [], "text": "a"}, "runs"),
        ("next", {"runs": ["counts"], "temperature": 0}, "temperature"),
        ("next", {"runs": ["counts"], "txt": "a"}, "txt"),
        ("surprisal", {"runs": ["counts"], "text": ""}, "no text to score"),
        ("search", {"run": "counts", "pins": [[99999]]}, "vocabulary"),
        ("attention", {"run": "demo/lstm", "text": "a"}, "no attention"),
        ("attention", {"run": "bert", "text": "a", "masked": [99]}, "masked = [99]"),
        ("attention", {"run": "demo/gpt2", "text": "a", "masked": [0, 1]}, "at least one token must be left"),
        ("attention/heads", {"run": "bert", "text": "a", "kind": "cross"}, "no cross attention"),
        ("attention/layer", {"run": "bert", "text": "a", "layer": 9}, "layer = 9"),
        ("attention/layer", {"run": "bert", "text": "a", "kind": "cross"}, "no cross attention"),
    ],
)
def test_what_cannot_be_done_is_one_line(client: Any, route: str, body: dict[str, Any], reported: str) -> None:
    response = client.post(f"/studio/api/{route}", json=body)
    assert response.status_code == 400
    message = response.json()["error"]["message"]
    assert reported in message
    assert "\n" not in message


def test_a_tail_gives_each_line_once_and_begins_again_with_a_new_file(tmp_path: Path) -> None:
    path, tail = tmp_path / "metrics.jsonl", Tail(tmp_path)
    assert tail.more() == ([], False)
    line = {"step": 1, "tokens": 8, "bits_per_byte": 2.0, "cost": {"seconds": 1.0, "joules": 3.0}}
    path.write_text(json.dumps(line) + "\n" + '{"step": 2')
    points, again = tail.more()
    assert again
    assert [(point["step"], point["train"], point["joules"]) for point in points] == [(1, 2.0, 3.0)]
    with path.open("a") as file:
        file.write(', "loss": 1.5, "tokens": 9}\n{"no": "curve"}\n')
    points, again = tail.more()
    assert not again
    assert [(point["step"], point["train"], point["unit"]) for point in points] == [(2, 1.5, "nats per prediction")]
    path.write_text(json.dumps(line) + "\n")
    assert tail.more() == ([to_point(line)], True)


def test_a_long_curve_is_thinned_but_keeps_every_validation() -> None:
    points = [{"step": n, "valid": 1.0 if n % 1000 == 7 else None} for n in range(20_000)]
    kept = thin(points)
    assert len(kept) < 1600
    assert [each["step"] for each in kept if each["valid"]] == list(range(7, 20_000, 1000))


def test_curves_of_a_run_are_its_metrics(client: Any, studio_runs: Path) -> None:
    (found,) = client.get("/studio/api/curves", params={"run": "demo/gpt2"}).json()["curves"]
    lines = [json.loads(line) for line in (studio_runs / "demo/gpt2/metrics.jsonl").read_text().splitlines()]
    valid = [line["valid_bits_per_byte"] for line in lines if "valid_bits_per_byte" in line]
    assert [point["valid"] for point in found["points"] if point["valid"] is not None] == valid


@pytest.mark.parametrize(("old", "new"), OLD_ROUTES.items())
def test_routes_that_were_renamed_redirect(client: Any, old: str, new: str) -> None:
    response = client.post(f"/studio/api/{old}", json={}, follow_redirects=False)
    assert (response.status_code, response.headers["location"]) == (307, f"/studio/api/{new}")


def test_all_tabs_share_one_scan_of_the_folder(studio_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, scans, now = RunStore(studio_runs), list[int](), 100.0
    summaries = store.summaries
    monkeypatch.setattr(store, "summaries", lambda: (scans.append(1), summaries())[1])
    monkeypatch.setattr("lmlab.studio.run_store.time.monotonic", lambda: now)
    assert [store.recent() == summaries() for _ in range(5)] == [True] * 5
    assert len(scans) == 1
    now += 1.0
    store.recent()
    assert len(scans) == 2
