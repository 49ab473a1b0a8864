"""LLaMA there and here: outputs of their own, texts that begin with <s>, and configurations of all versions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hf_references import make_run, random_reference, transformers
from tokenizers import Tokenizer as Engine
from tokenizers import models as engines
from tokenizers import pre_tokenizers, processors

import lmlab
from lmlab.interop.huggingface import export_run, import_run, read_model


def change(folder: Path, *without: str, **values: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    kept = {name: value for name, value in config.items() if name not in without}
    (folder / "config.json").write_text(json.dumps(kept | values))


@pytest.mark.parametrize("bias", [False, True])
def test_an_output_of_its_own_goes_there_and_comes_back(bias: bool, tmp_path: Path) -> None:
    run, folder, back = (tmp_path / name for name in ("run", "hf", "back"))
    model, tokenizer = make_run(run, "llama", "bpe:290", tied=False, bias=bias, heads=4, key_value_heads=2)
    export_run(run, folder)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    assert type(theirs).__name__ == ("Qwen2ForCausalLM" if bias else "LlamaForCausalLM")
    text = "the planet Mars goes 17 times round the sun"
    # AutoTokenizer cuts the texts of every qwen2 as Qwen's own, whatever tokenizer.json says
    reader = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    assert reader(text)["input_ids"] == tokenizer.encode(text)
    tokens = torch.tensor([tokenizer.encode(text)])
    with torch.inference_mode():
        hidden = model(tokens).hidden
        assert (model.logits(hidden) - theirs(tokens).logits).abs().max() <= 1e-4
    import_run(folder, back)
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        assert (back / name).read_bytes() == (run / name).read_bytes(), name


def test_a_missing_output_is_not_taken_for_a_tied_one(tmp_path: Path) -> None:
    reference = random_reference("llama", 1, "LlamaModel")
    reference.config.architectures = ["LlamaForCausalLM"]
    reference.save_pretrained(tmp_path)
    change(tmp_path, architectures=["LlamaForCausalLM"], tie_word_embeddings=False)
    with pytest.raises(ValueError, match=r"missing lm_head\.weight"):
        read_model(tmp_path)


def test_the_base_is_read_wherever_a_version_writes_it(tmp_path: Path) -> None:
    random_reference("llama", 1, "LlamaForCausalLM").save_pretrained(tmp_path)
    model: Any = read_model(tmp_path)
    base = json.loads((tmp_path / "config.json").read_text())["rope_parameters"]["rope_theta"]
    assert model.config.base == base
    change(tmp_path, "rope_parameters", rope_theta=base + 1, rope_scaling=None)
    model = read_model(tmp_path)
    assert model.config.base == base + 1


def test_as_many_heads_of_keys_as_of_queries_are_assumed(tmp_path: Path) -> None:
    seed = next(seed for seed in range(50) if _groups(seed) > 1)
    random_reference("llama", seed, "LlamaForCausalLM").save_pretrained(tmp_path)
    change(tmp_path, "num_key_value_heads")
    with pytest.raises(ValueError, match=r"k_proj\.weight is \["):
        read_model(tmp_path)


def _groups(seed: int) -> int:
    config = random_reference("llama", seed).config
    return int(config.num_attention_heads // config.num_key_value_heads)


def test_a_text_begins_with_their_first_token_and_ends_with_their_last(tmp_path: Path) -> None:
    """<s> stands before a text and </s> after it; the tokenizer of a folder says so by what it puts there."""
    reference = random_reference("llama", 2, "LlamaForCausalLM")
    reference.save_pretrained(tmp_path / "hf")
    pieces = ["<unk>", "<s>", "</s>", "w0", "w1", "w2"]
    engine = Engine(engines.WordLevel({piece: number for number, piece in enumerate(pieces)}, unk_token="<unk>"))
    engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    engine.add_special_tokens(["<s>", "</s>"])
    engine.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)]
    )
    engine.save(str(tmp_path / "hf" / "tokenizer.json"))
    import_run(tmp_path / "hf", tmp_path / "run")
    model = lmlab.load(tmp_path / "run")
    assert model.frame.row(a=[3, 4])["tokens"] == [1, 3, 4]
    assert model.writer.end == 2
    with torch.inference_mode():
        nats = -reference(torch.tensor([[1, 3]])).logits.log_softmax(-1)[0, [0, 1], [3, 5]]
    scored = model.score("w0 w2")
    assert scored.token_nats[0] == pytest.approx(nats.numpy(), abs=1e-3)
