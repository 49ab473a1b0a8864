"""Start-up: `lmlab --help` and `lmlab list` against importing typer and rich; the first token against `transformers`.

    python benchmarks/startup.py [--repeats 7]

Whole processes, interleaved, median wall time. First token: both load a GPT-2 of 4 layers, width 256, 8,192 types, from
safetensors with its tokenizer and write one token after a prompt.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PEER_HELP = "import typer, rich.console, rich.table, rich.panel"
LMLAB = "from lmlab.cli import main; main()"
PEER_TOKEN = """
import sys
from transformers import GPT2LMHeadModel, PreTrainedTokenizerFast
model = GPT2LMHeadModel.from_pretrained(sys.argv[1])
tokenizer = PreTrainedTokenizerFast(tokenizer_file=sys.argv[1] + "/tokenizer.json")
ids = tokenizer("The quick brown", return_tensors="pt").input_ids
print(tokenizer.decode(model.generate(ids, max_new_tokens=1, do_sample=False, pad_token_id=0)[0]))
"""


def make_models(folder: Path) -> None:
    """A run directory and a transformers directory of the same shape, with the same tokenizer."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    from lmlab.data.readers.builtin_corpus import builtin_documents
    from lmlab.models import create
    from lmlab.runs.model_files import model_tensors, write_config
    from lmlab.runs.storage import write_manifest, write_tensors
    from lmlab.tokenizers import train

    torch.manual_seed(0)
    tokenizer = train("bpe:8192", [text for _, text in builtin_documents()])
    ours, theirs = folder / "ours", folder / "theirs"
    ours.mkdir()
    shape = {"vocabulary": tokenizer.vocabulary, "width": 256, "heads": 4, "layers": 4, "window": 256}
    model = create("gpt2", shape)
    write_tensors(ours / "model.safetensors", model_tensors(model))
    write_config(ours, "gpt2", model.config.model_dump())
    tokenizer.save(ours / "tokenizer.json")
    write_manifest(ours)
    size = {"vocab_size": tokenizer.vocabulary, "n_embd": 256, "n_head": 4, "n_layer": 4, "n_positions": 256}
    GPT2LMHeadModel(GPT2Config(**size, bos_token_id=0, eos_token_id=0)).save_pretrained(theirs)
    tokenizer.save(theirs / "tokenizer.json")


def timed(command: list[str]) -> float:
    start = time.perf_counter()
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    subprocess.run(command, check=True, capture_output=True, env=environment)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_models(folder)
        python = [sys.executable, "-c"]
        generate = ["generate", str(folder / "ours"), "The quick brown", "--tokens", "1", "--temperature", "0"]
        pairs = {
            "lmlab --help / import typer and rich": ([*python, LMLAB, "--help"], [*python, PEER_HELP]),
            "lmlab list / import typer and rich": ([*python, LMLAB, "list"], [*python, PEER_HELP]),
            "first token / transformers": ([*python, LMLAB, *generate], [*python, PEER_TOKEN, str(folder / "theirs")]),
        }
        for title, (ours, theirs) in pairs.items():
            times = [(timed(ours), timed(theirs)) for _ in range(repeats + 1)][1:]
            mine, peer = (statistics.median(column) for column in zip(*times, strict=True))
            print(f"{title}: {mine:.2f} s / {peer:.2f} s = {mine / peer:.2f}")


if __name__ == "__main__":
    main()
