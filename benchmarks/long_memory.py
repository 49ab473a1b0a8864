"""How much memory a pass takes: run in a process of its own, the peak less what was there before."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lmlab.models import create

SIZE = {"vocabulary": 256, "width": 256, "heads": 4, "dropout": 0.0}


def make(kind: str, *, layers: int, window: int, hashes: int = 4) -> nn.Module:
    """A Reformer, its local attention left out or by turns, or a GPT-2, of the same width."""
    torch.manual_seed(0)
    if kind == "gpt2":
        return create("gpt2", {**SIZE, "layers": layers, "window": window})
    attention = {"reformer": ["lsh"], "reformer-local": ["local", "lsh"]}[kind]
    settings = {"inner": 1024, "hashes": hashes, "attention": attention, "chunk": 64, "local_chunk": 64}
    return create("reformer", {**SIZE, **settings, "layers": layers, "window": window})


def forward(model: nn.Module, tokens: torch.Tensor) -> None:
    """Hidden vectors of a text, without gradients."""
    with torch.inference_mode():
        model.eval()(tokens)


def learn(model: Any, tokens: torch.Tensor) -> None:
    """The loss of the next token and its gradients."""
    hidden = model.train()(tokens[:, :-1]).hidden
    model.total_nll(hidden.flatten(0, 1), tokens[:, 1:].flatten()).backward()


ENVIRONMENT = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(2**16), "MALLOC_TRIM_THRESHOLD_": "0"}
"""What is freed goes back at once, so that the peak is of what is used and not of what the allocator keeps."""

PASSES: dict[str, Callable[[Any, torch.Tensor], None]] = {"forward": forward, "learn": learn}


def megabytes(what: str, kind: str, *, layers: int, length: int, threads: int = 1) -> float:
    """The peak of one pass over `length` tokens, beyond the weights and (learning) their gradients."""
    given = json.dumps({"what": what, "kind": kind, "layers": layers, "length": length, "threads": threads})
    done = subprocess.run(
        [sys.executable, __file__, given], check=True, capture_output=True, text=True, env=ENVIRONMENT
    )
    return float(done.stdout)


def _measure(what: str, kind: str, layers: int, length: int, threads: int) -> float:
    torch.set_num_threads(threads)
    model = make(kind, layers=layers, window=length)
    PASSES[what](model, torch.zeros(1, 130, dtype=torch.long))  # kernels, gradients and the allocator are there now
    model.zero_grad(set_to_none=False)  # they stay, so that the peak is beyond them whenever it comes
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = _status("VmRSS")
    PASSES[what](model, torch.randint(256, (1, length)))
    return _status("VmHWM") - before


def _status(name: str) -> float:
    """Megabytes of what Linux says about this process."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith(f"{name}:")).split()[1]) / 1024


if __name__ == "__main__":
    print(_measure(**json.loads(sys.argv[1])))
