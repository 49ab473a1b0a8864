"""Watching holds for the one who watches: other threads see nothing and take the fast path."""

from __future__ import annotations

import threading

import pytest
import torch

from lmlab.layers.attention import multi_head
from lmlab.layers.watching import is_watched, watching
from lmlab.models import create
from patience import PATIENCE

PLACE = "blocks.1.attention.probabilities"


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return create("gpt2", {"vocabulary": 20, "width": 8, "heads": 2, "layers": 2, "window": 16}, size="tiny").eval()


def test_names_show_what_they_give() -> None:
    network, tokens = model(), torch.arange(6)[None]
    with watching(network, PLACE, "blocks.0") as seen, watching(network, "blocks.0") as inner:
        assert is_watched()
        network(tokens)
    assert not is_watched()
    network(tokens)
    assert [weights.shape for weights in seen[PLACE]] == [(1, 2, 6, 6)]
    assert [x.shape for x in seen["blocks.0"]] == [(1, 6, 8)]
    assert inner["blocks.0"][0] is seen["blocks.0"][0]
    assert not any(module._forward_hooks for module in network.modules())


def test_unknown_names_are_reported() -> None:
    with pytest.raises(ValueError, match=r"the model has no part 'block\.0'.*blocks\.0"), watching(model(), "block.0"):
        pass


def test_one_thread_watches_while_another_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    network, tokens = model(), torch.arange(6)[None]
    inside, done = threading.Event(), threading.Event()
    open_calls: list[str] = []
    plain = multi_head.attention_weights

    def note(*given: torch.Tensor, **settings: bool) -> torch.Tensor:
        open_calls.append(threading.current_thread().name)
        return plain(*given, **settings)

    monkeypatch.setattr(multi_head, "attention_weights", note)
    seen_elsewhere: dict[str, list[torch.Tensor]] = {}

    def other() -> None:
        inside.wait(PATIENCE)
        with torch.no_grad(), watching(network, "norm") as seen:
            pass
        with torch.no_grad():
            network(tokens)
        assert not is_watched()
        seen_elsewhere.update(seen)
        done.set()

    thread = threading.Thread(target=other, name="other")
    thread.start()
    with torch.no_grad(), watching(network, PLACE) as seen:
        inside.set()
        assert done.wait(PATIENCE)
        assert seen[PLACE] == []
        network(tokens)
    thread.join()
    assert len(seen[PLACE]) == 1
    assert seen_elsewhere == {"norm": []}
    assert open_calls == [threading.current_thread().name]
