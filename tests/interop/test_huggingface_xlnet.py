"""XLNet there and here where half of a batch is read backwards (`bi_data`), with a memory of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hf_references import make_run, random_reference, randomise, transformers

from lmlab.interop.huggingface import export_run, import_run, read_model
from lmlab.layers.attention.two_stream import permutation_masks
from lmlab.models.abilities import FillsInOrder, require
from lmlab.runs.storage import read_json


@pytest.mark.parametrize("seed", range(4))
def test_the_second_half_of_a_batch_is_read_backwards(seed: int, tmp_path: Path) -> None:
    """Theirs negates the distances of the second half of the rows; ours those of the rows in `backwards`."""
    config = random_reference("xlnet", seed, "XLNetLMHeadModel").config
    config.bi_data, config.mem_len = True, (None, 3, 20, 5)[seed]
    torch.manual_seed(seed)
    theirs = randomise(transformers.XLNetLMHeadModel(config).eval())
    theirs.save_pretrained(tmp_path)
    model: Any = read_model(tmp_path).eval()
    filler: Any = require(model, FillsInOrder)

    batch, length, asked = 4, 7, 3
    backwards = torch.tensor([False, False, True, True])
    at = torch.rand(batch, length).argsort(1)[:, :asked]
    order = torch.zeros(batch, length, dtype=torch.long).scatter(1, at, torch.rand(at.shape).argsort(1) + 1)
    hidden = ~permutation_masks(order, at)[0] | (torch.eye(length, dtype=torch.bool) & (order > 0)[..., None])
    mapping = torch.nn.functional.one_hot(at, length).float()
    kinds = torch.randint(3, (batch, length))
    mems, state = None, None
    for text in torch.randint(config.vocab_size, (3, batch, length)):
        with torch.inference_mode():
            given = theirs(text, perm_mask=hidden.float(), target_mapping=mapping, token_type_ids=kinds, mems=mems)
            inputs = {"tokens": text, "order": order, "at": at, "segments": kinds}
            found = filler.read_in_order(**inputs, backwards=backwards, state=state)
            scores = filler.logits(found.hidden)
            forwards = filler.read_in_order(**inputs, state=state)
        assert (scores - given.logits).abs().max() <= 1e-4
        torch.testing.assert_close(forwards.hidden[:2], found.hidden[:2])
        assert (forwards.hidden[2:] - found.hidden[2:]).abs().max() > 1e-3
        if not model.memory:  # theirs then keeps everything
            return
        mems, state = given.mems, found.state


def test_what_was_trained_both_ways_is_read_forwards(tmp_path: Path) -> None:
    """The setting says how it was trained, and theirs needs even batches for it."""
    make_run(tmp_path / "run", "xlnet", "unigram:300", roles=("pad", "cls", "sep", "mask"))
    export_run(tmp_path / "run", tmp_path / "hf")
    config = read_json(tmp_path / "hf" / "config.json")
    assert config["bi_data"] is False
    (tmp_path / "hf" / "config.json").write_text(json.dumps(config | {"bi_data": True}))
    (tmp_path / "hf" / "lmlab.json").unlink()
    import_run(tmp_path / "hf", tmp_path / "back")
    back, run = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("back", "run"))
    assert back == run
