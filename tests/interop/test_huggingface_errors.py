"""Folders that are damaged, incomplete or of another kind: each a clear error, and nothing half written."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hf_references import FAMILIES, make_run, random_reference, transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer as Engine
from tokenizers import models as engines

from lmlab.interop.huggingface import export_run, import_run, read_checkpoint, read_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A whole BERT."""
    path = tmp_path / "hf"
    random_reference("bert", 2, "BertForMaskedLM").save_pretrained(path)
    save_tokenizer(path, 12)
    return path


def save_tokenizer(path: Path, size: int) -> None:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{i}" for i in range(size))][:size]
    engine = Engine(engines.WordLevel({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    engine.save(str(path / "tokenizer.json"))


def change_config(path: Path, **values: Any) -> None:
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, **values}))


def change_tensors(path: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    tensors = load_file(path / "model.safetensors")
    change(tensors)
    save_file(tensors, path / "model.safetensors")


def refuse(path: Path, *words: str) -> None:
    """Importing is refused with these words, and leaves nothing behind."""
    before = sorted(path.parent.iterdir())
    first, *more = words
    with pytest.raises(ValueError, match=re.escape(first)) as error:
        import_run(path, path.parent / "run")
    for word in more:
        assert word in str(error.value)
    assert sorted(path.parent.iterdir()) == before


def test_the_whole_folder_is_read(folder: Path) -> None:
    import_run(folder, folder.parent / "run")
    assert sorted(path.name for path in folder.parent.iterdir()) == ["hf", "run"]


def test_every_missing_unexpected_and_misshapen_tensor_is_named(folder: Path) -> None:
    def spoil(tensors: dict[str, torch.Tensor]) -> None:
        del tensors["bert.encoder.layer.0.attention.self.key.weight"]
        del tensors["cls.predictions.bias"]
        tensors["classifier.weight"] = torch.zeros(2, 2)
        tensors["bert.encoder.layer.7.output.dense.bias"] = torch.zeros(2)
        tensors["bert.embeddings.LayerNorm.bias"] = torch.zeros(3)
        tensors["bert.encoder.layer.0.output.dense.bias"] = tensors["bert.encoder.layer.0.output.dense.bias"].int()

    change_tensors(folder, spoil)
    refuse(
        folder,
        "missing bert.encoder.layer.0.attention.self.key.weight, cls.predictions.bias",
        "unexpected bert.encoder.layer.7.output.dense.bias, classifier.weight",
        "bert.embeddings.LayerNorm.bias is [3], not [",
        "bert.encoder.layer.0.output.dense.bias holds int32, not floating-point numbers",
    )


def test_a_head_that_the_architecture_promises_is_missed(folder: Path) -> None:
    change_tensors(folder, lambda tensors: [tensors.pop(name) for name in list(tensors) if name.startswith("cls.")])
    refuse(folder, "missing", "cls.predictions.transform.dense.weight")
    change_config(folder, architectures=["BertModel"])
    import_run(folder, folder.parent / "run")


def test_weights_of_another_size(folder: Path) -> None:
    change_config(folder, vocab_size=5)
    refuse(folder, "bert.embeddings.word_embeddings.weight is [", "not [5, ")


def test_untied_scores_are_refused(folder: Path) -> None:
    def untie(tensors: dict[str, torch.Tensor]) -> None:
        tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"] + 1

    change_tensors(folder, untie)
    refuse(folder, "cls.predictions.decoder.weight differs from bert.embeddings.word_embeddings.weight")


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        ("hidden_act", "relu", "'gelu'"),
        ("position_embedding_type", "relative_key", "'absolute'"),
        ("is_decoder", True, "False"),
        ("add_cross_attention", True, "False"),
        ("tie_word_embeddings", False, "True"),
        ("pruned_heads", {"0": [1]}, "{}"),
        ("quantization_config", {"bits": 8}, "None"),
        ("auto_map", {"AutoModel": "code.Model"}, "None"),
    ],
)
def test_options_that_lmlab_does_not_have_are_refused_by_name(
    option: str, value: Any, allowed: str, folder: Path
) -> None:
    change_config(folder, **{option: value})
    refuse(folder, f"{option} = {value!r} is not supported (allowed: {allowed}")


@pytest.mark.parametrize(
    ("family", "option", "value"),
    [
        ("gpt2", "activation_function", "gelu"),
        ("gpt2", "scale_attn_by_inverse_layer_idx", True),
        ("gpt2", "scale_attn_weights", False),
        ("gpt2", "n_inner", 7),
        ("gpt2", "layer_norm_epsilon", 1e-6),
        ("llama", "rope_scaling", {"rope_type": "llama3", "factor": 8.0}),
        ("llama", "rope_scaling", {"type": "linear", "factor": 2.0}),
        ("llama", "attention_bias", True),
        ("llama", "head_dim", 3),
        ("mistral", "sliding_window", 3),
        ("qwen2", "use_sliding_window", True),
        ("openai-gpt", "afn", "swish"),
        ("xlnet", "attn_type", "uni"),
        ("xlnet", "clamp_len", 5),
        ("xlnet", "d_head", 3),
        ("roberta", "hidden_act", "gelu_new"),
        ("albert", "num_hidden_groups", 2),
        ("albert", "inner_group_num", 2),
        ("electra", "position_embedding_type", "relative_key_query"),
        ("bart", "decoder_ffn_dim", 1),
        ("bart", "activation_function", "tanh"),
        ("marian", "share_encoder_decoder_embeddings", False),
    ],
)
def test_options_of_each_family(family: str, option: str, value: Any, tmp_path: Path) -> None:
    random_reference(family, 1).save_pretrained(tmp_path / "hf")
    change_config(tmp_path / "hf", **{option: value})
    refuse(tmp_path / "hf", f"{option} = {value!r} is not supported")


def test_options_of_training_alone_are_only_reported(tmp_path: Path) -> None:
    random_reference("bart", 1).save_pretrained(tmp_path / "hf")
    change_config(tmp_path / "hf", activation_dropout=0.1)
    with pytest.warns(UserWarning, match=r"activation_dropout = 0\.1 is left out"):
        read_model(tmp_path / "hf")


@pytest.mark.filterwarnings("ignore:.*matters only for training")
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("value", [None, "much", -1, 0, {"a": 1}])
def test_nonsense_in_a_configuration_is_an_error_not_a_crash(family: str, value: Any, tmp_path: Path) -> None:
    random_reference(family, 0).save_pretrained(tmp_path)
    original = (tmp_path / "config.json").read_text()
    refused = 0
    for name in json.loads(original):
        change_config(tmp_path, **{name: value})
        try:
            read_checkpoint(tmp_path)
        except ValueError:
            refused += 1
        (tmp_path / "config.json").write_text(original)
    assert refused >= 5


def test_unknown_architectures_name_the_nearest(folder: Path) -> None:
    change_config(folder, architectures=["BertForSequenceClassifying"])
    refuse(folder, "unknown architecture 'BertForSequenceClassifying' of bert", "did you mean", "save_pretrained")
    change_config(folder, model_type="berd", architectures=["BerdModel"])
    refuse(folder, "unknown model_type 'berd'; did you mean 'bert'?", "gpt2")
    change_config(folder, model_type=None, architectures=["BertModell"])
    refuse(folder, "unknown architecture 'BertModell'; did you mean 'BertModel'?")
    change_config(folder, architectures=None)
    refuse(folder, "it names no model_type")
    (folder / "config.json").write_text("[1, 2]")
    refuse(folder, "config.json is damaged")
    (folder / "config.json").write_text('{"model_type": ')
    refuse(folder, "config.json is damaged")
    (folder / "config.json").unlink()
    refuse(folder, "has no config.json")


def test_a_setting_that_is_needed_is_missed(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    del config["hidden_size"]
    (folder / "config.json").write_text(json.dumps(config))
    refuse(folder, "config.json lacks hidden_size, which a bert needs")


@pytest.mark.parametrize("keep", [0, 5, 100, -1])
def test_truncated_weights(keep: int, folder: Path) -> None:
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[:keep])
    refuse(folder, "model.safetensors is damaged")


def test_missing_weights_and_those_of_other_frameworks(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "tf_model.h5")
    refuse(folder, "has no weights", "model.safetensors", "tf_model.h5 (TensorFlow)")


def test_shards_that_are_missing_or_wrong(tmp_path: Path) -> None:
    path = tmp_path / "hf"
    random_reference("gpt2", 1).save_pretrained(path, max_shard_size=500)
    index = path / "model.safetensors.index.json"
    original = json.loads(index.read_text())
    files = sorted(set(original["weight_map"].values()))
    (path / files[1]).rename(tmp_path / "away")
    with pytest.raises(ValueError, match=f"{files[1]} is missing"):
        read_model(path)
    (tmp_path / "away").rename(path / files[1])
    name = next(name for name, file in original["weight_map"].items() if file == files[0])
    index.write_text(json.dumps({"weight_map": {**original["weight_map"], name: files[1]}}))
    with pytest.raises(ValueError, match=f"{files[1]} lacks tensors that .* says it has: {name}"):
        read_model(path)
    index.write_text(json.dumps({"weight_map": {name: "../secret.safetensors"}}))
    with pytest.raises(ValueError, match="outside its folder"):
        read_model(path)
    index.write_text("{}")
    with pytest.raises(ValueError, match="has no weight_map"):
        read_model(path)


class Exploit:
    """A pickle that would make a file when read carelessly."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (self.path, "w")


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_a_pickle_that_runs_code_is_refused_and_does_not_run(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"weight": torch.zeros(2), "code": Exploit(folder / "ran")}, folder / "pytorch_model.bin")
    refuse(folder, "pytorch_model.bin is a pickle that holds more than tensors", "safe_serialization=True")
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Exploit(folder / "ran")))
    refuse(folder, "pytorch_model.bin")
    assert not (folder / "ran").exists()
    torch.save([1, 2], folder / "pytorch_model.bin")
    refuse(folder, "no plain table of tensors")
    (folder / "pytorch_model.bin").write_bytes(b"PK\x03\x04 nothing")
    refuse(folder, "pytorch_model.bin is damaged")


def test_tokenizers_that_do_not_fit(folder: Path) -> None:
    rows = json.loads((folder / "config.json").read_text())["vocab_size"]
    save_tokenizer(folder, rows + 1)
    refuse(folder, f"has {rows + 1} tokens, but the model only {rows}", "belongs to another model", "--tokenizer")
    (folder / "tokenizer.json").write_text("{}")
    refuse(folder, "is not a tokenizer")
    (folder / "tokenizer.json").unlink()
    refuse(folder, "has no tokenizer", "--tokenizer")
    (folder / "spiece.model").write_bytes(b"x")
    refuse(folder, "only as spiece.model", "AutoTokenizer")


def test_a_vocabulary_without_a_boundary_and_no_room_for_one(tmp_path: Path) -> None:
    config = transformers.GPT2Config(vocab_size=3, n_embd=6, n_head=2, n_layer=1, n_positions=8)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path / "hf")
    Engine(engines.WordLevel({"a": 0, "b": 1, "c": 2}, unk_token="a")).save(str(tmp_path / "hf/tokenizer.json"))
    refuse(tmp_path / "hf", "'<|endoftext|>', which lmlab adds", "resize_token_embeddings")


def test_nothing_is_overwritten_unless_asked(folder: Path) -> None:
    run = folder.parent / "run"
    import_run(folder, run)
    before = (run / "model.safetensors").read_bytes()
    with pytest.raises(ValueError, match="exists already; choose another name, or replace it with --overwrite"):
        import_run(folder, run)
    change_tensors(
        folder, lambda tensors: tensors.update({"cls.predictions.bias": tensors["cls.predictions.bias"] + 1})
    )
    import_run(folder, run, overwrite=True)
    assert (run / "model.safetensors").read_bytes() != before
    (folder / "model.safetensors").write_bytes(b"")
    now = (run / "model.safetensors").read_bytes()
    with pytest.raises(ValueError, match="damaged"):
        import_run(folder, run, overwrite=True)
    assert (run / "model.safetensors").read_bytes() == now, "what was there stays when the new one fails"
    other = folder.parent / "thesis"
    other.mkdir()
    (other / "chapter.txt").write_text("years of work")
    with pytest.raises(ValueError, match="neither a run nor a folder that lmlab has exported"):
        import_run(folder, other, overwrite=True)
    assert sorted(path.name for path in folder.parent.iterdir()) == ["hf", "run", "thesis"]


def test_what_transformers_cannot_say_is_not_written(tmp_path: Path) -> None:
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("bert", {"direction": "left-to-right"}, "direction = 'left-to-right' cannot be written"),
        ("electra", {"gelu": "tanh"}, "gelu = 'tanh' cannot be written for transformers"),
        ("roberta", {"pooler": True, "pairs": True}, "pairs = True cannot be written"),
        ("albert", {"head": False}, "transformers has no albert with"),
        ("transformer", {"norm": "pre"}, "norm = 'pre' cannot be written"),
        ("lstm", {}, "transformers has no model like lstm; these can be written for it: albert, bart, bert"),
    ]
    for number, (kind, values, message) in enumerate(cases):
        make_run(tmp_path / f"run{number}", kind, "bytes", roles=("pad", "cls", "sep", "mask"), **values)
        with pytest.raises(ValueError, match=re.escape(message)):
            export_run(tmp_path / f"run{number}", tmp_path / "hf")
        assert not (tmp_path / "hf").exists()


def test_a_damaged_memory_of_ours(tmp_path: Path) -> None:
    make_run(tmp_path / "run", "gpt2", "bytes")
    export_run(tmp_path / "run", tmp_path / "hf")
    (tmp_path / "hf/lmlab.json").write_text("{}")
    with pytest.raises(ValueError, match=r"lmlab\.json is damaged"):
        read_model(tmp_path / "hf")
    (tmp_path / "hf/lmlab.json").write_text('{"kind": "gtp2", "model": {}}')
    with pytest.raises(ValueError, match="did you mean 'gpt2'"):
        read_model(tmp_path / "hf")
