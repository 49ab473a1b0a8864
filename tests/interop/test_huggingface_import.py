"""Models of `transformers`, of every family and many shapes, compute the same after they have been read."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hf_references import FAMILIES, outputs, random_reference, transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer as Engine
from tokenizers import models as engines

import lmlab
from lmlab.interop.huggingface import import_run, read_model
from lmlab.interop.huggingface.families import FAMILIES as TABLES
from lmlab.models.abilities import Detects, FillsMasks, ScoresSentencePairs, ability

CONFIGURATIONS = dict.fromkeys(FAMILIES, 100) | {"bart": 40, "marian": 40}


def agree(reference: Any, folder: Path, *, seed: int = 0) -> int:
    """How many outputs were compared, each within 1e-4."""
    model = read_model(folder)
    compared = 0
    with torch.inference_mode():
        for name, theirs, ours in outputs(reference, model, seed=seed):
            assert ours.shape == theirs.shape, name
            assert (ours - theirs).abs().max() <= 1e-4, f"{type(reference).__name__} {reference.config}: {name}"
            compared += 1
    return compared


def test_every_table_has_a_reference() -> None:
    """`transformers` has no Transformer-XL any more (test_huggingface_xl.py); others have tests of their own."""
    assert set(FAMILIES) == set(TABLES) - {
        "transfo-xl",
        "vit",
        "clip",
        "whisper",
        "visual_bert",
        "decision_transformer",
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_random_configurations_compute_the_same(family: str, tmp_path: Path) -> None:
    seen = set()
    for seed in range(CONFIGURATIONS[family]):
        reference = random_reference(family, seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        reference.config.architectures = [type(reference).__name__]
        reference.config.save_pretrained(folder)
        save_file(
            {name: tensor.clone() for name, tensor in reference.state_dict().items()}, folder / "model.safetensors"
        )
        assert agree(reference, folder, seed=seed) >= 1
        seen.add(type(reference).__name__)
    assert seen == {architecture.name for architecture in TABLES[family].architectures}


@pytest.mark.parametrize("family", FAMILIES)
def test_what_save_pretrained_writes_is_read(family: str, tmp_path: Path) -> None:
    """Tied tensors are there once; and in several files with an index."""
    for seed in range(3):
        reference = random_reference(family, seed)
        reference.save_pretrained(tmp_path / f"whole{seed}")
        assert agree(reference, tmp_path / f"whole{seed}")
        reference.save_pretrained(tmp_path / f"shards{seed}", max_shard_size=500)
        assert len(list((tmp_path / f"shards{seed}").glob("*.safetensors"))) > 1
        assert agree(reference, tmp_path / f"shards{seed}")


def test_half_precision_is_read_as_single(tmp_path: Path) -> None:
    reference = random_reference("bert", 3, "BertForMaskedLM").half()
    reference.save_pretrained(tmp_path)
    assert agree(reference.float(), tmp_path)


def test_a_pickle_of_tensors_is_read(tmp_path: Path) -> None:
    reference = random_reference("gpt2", 5, "GPT2LMHeadModel")
    reference.config.save_pretrained(tmp_path)
    torch.save(reference.state_dict(), tmp_path / "pytorch_model.bin")
    assert agree(reference, tmp_path)


def test_names_of_old_versions_are_known(tmp_path: Path) -> None:
    """BERT as published: gamma and beta, position numbers, and the tied decoder once more."""
    reference = random_reference("bert", 4, "BertForPreTraining")
    reference.save_pretrained(tmp_path)
    tensors = {}
    for name, tensor in load_file(tmp_path / "model.safetensors").items():
        old = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        tensors[old] = tensor
    tensors["bert.embeddings.position_ids"] = torch.arange(5)[None]
    tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].clone()
    save_file(tensors, tmp_path / "model.safetensors")
    assert any("gamma" in name for name in tensors)
    assert agree(reference, tmp_path)


def test_gpt2_as_published_has_no_prefix_and_its_masks(tmp_path: Path) -> None:
    reference = random_reference("gpt2", 6, "GPT2LMHeadModel")
    reference.save_pretrained(tmp_path)
    tensors = {name.removeprefix("transformer."): t for name, t in load_file(tmp_path / "model.safetensors").items()}
    tensors["h.0.attn.bias"] = torch.ones(1, 1, 5, 5)
    tensors["lm_head.weight"] = tensors["wte.weight"].clone()
    save_file(tensors, tmp_path / "model.safetensors")
    assert agree(reference, tmp_path)


def test_parts_that_are_missing_are_reported(tmp_path: Path) -> None:
    reference = random_reference("bert", 7, "BertModel")
    reference.save_pretrained(tmp_path)
    model = read_model(tmp_path)
    hidden = model(torch.zeros(1, 3, dtype=torch.long)).hidden
    assert ability(model, FillsMasks) is None
    assert ability(model, ScoresSentencePairs) is None
    assert model.pool(hidden).shape == (1, reference.config.hidden_size)


def test_an_electra_without_its_detector(tmp_path: Path) -> None:
    random_reference("electra", 7, "ElectraModel").save_pretrained(tmp_path)
    model = read_model(tmp_path)
    assert ability(model, Detects) is None


def test_different_dropouts_are_reported(tmp_path: Path) -> None:
    config = transformers.GPT2Config(vocab_size=30, n_embd=6, n_head=2, n_layer=1, n_positions=8, attn_pdrop=0.3)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path)
    with pytest.warns(UserWarning, match=r"attn_pdrop = 0\.3 and resid_pdrop = 0\.1"):
        assert read_model(tmp_path).config.dropout == 0.1


# Tokenizers


def save_gpt2(folder: Path, *, vocabulary: int) -> Any:
    config = transformers.GPT2Config(
        vocab_size=vocabulary, n_embd=6, n_head=2, n_layer=1, n_positions=8, bos_token_id=None, eos_token_id=None
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    model.save_pretrained(folder)
    return model


def test_a_run_from_vocabulary_and_merges(tmp_path: Path) -> None:
    """The files of GPT-2; the model may have more rows than there are tokens."""
    vocabulary = {letter: i for i, letter in enumerate("abcdefghij")} | {"Ġ": 10, "ab": 11, "<|endoftext|>": 12}
    reference = save_gpt2(tmp_path / "hf", vocabulary=16)
    (tmp_path / "hf/vocab.json").write_text(json.dumps(vocabulary))
    (tmp_path / "hf/merges.txt").write_text("#version: 0.2\na b\n")
    import_run(tmp_path / "hf", tmp_path / "run")
    model = lmlab.load(tmp_path / "run")
    assert model.tokenizer.encode("ab ba") == [11, 10, 1, 0]
    assert (model.tokenizer.boundary, model.tokenizer.vocabulary, model.model.vocabulary) == (12, 13, 16)
    assert len(model.next("ab", top=16)) == 16
    model.generate("ab", tokens=20, temperature=3.0)
    with torch.inference_mode():
        logits = reference(torch.tensor([[12, 11, 10, 1, 0]])).logits[0].double().log_softmax(-1)
        alone = reference(torch.tensor([[11, 10, 1, 0]])).logits[0].double().log_softmax(-1)
    after = -sum(logits[i, token].item() for i, token in enumerate([11, 10, 1, 0]))
    first, rest = logits[0, 11].item(), sum(alone[i, token].item() for i, token in enumerate([10, 1, 0]))
    assert model.score("ab ba").nats == pytest.approx(-first - rest, abs=1e-4)  # GPT-2's tokenizer puts nothing there
    assert model.with_boundary().score("ab ba").nats == pytest.approx(after, abs=1e-4)


@pytest.mark.parametrize("lower", [True, False])
def test_a_wordpiece_vocabulary_is_cased_as_its_settings_say(lower: bool, tmp_path: Path) -> None:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "sun", "##s", "é", "e"]
    random_reference("bert", 1, "BertForMaskedLM").save_pretrained(tmp_path / "hf")
    (tmp_path / "hf/vocab.txt").write_text("\n".join(pieces), encoding="utf-8")
    (tmp_path / "hf/tokenizer_config.json").write_text(json.dumps({"do_lower_case": lower}))
    import_run(tmp_path / "hf", tmp_path / "run")
    tokenizer = lmlab.load(tmp_path / "run").tokenizer
    reference = transformers.BertTokenizer(vocab=str(tmp_path / "hf/vocab.txt"), do_lower_case=lower)
    for text in ("The suns é", "the sun", "THE É sunss"):
        assert tokenizer.encode(text) == reference(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.special("mask") == 4


def test_robertas_vocabulary_has_its_special_tokens(tmp_path: Path) -> None:
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "a", "b", "Ġ", "ab", "<mask>"]
    random_reference("roberta", 1, "RobertaForMaskedLM").save_pretrained(tmp_path / "hf")
    (tmp_path / "hf/vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}))
    (tmp_path / "hf/merges.txt").write_text("#version: 0.2\na b\n")
    import_run(tmp_path / "hf", tmp_path / "run")
    tokenizer = lmlab.load(tmp_path / "run").tokenizer
    assert [tokenizer.special(role) for role in ("cls", "pad", "sep", "mask")] == [0, 1, 2, 8]
    assert tokenizer.boundary == 2
    assert tokenizer.decode([0, 7, 6, 4, 2]) == "ab a"


def test_the_first_gpt_needs_no_further_token(tmp_path: Path) -> None:
    """Its vocabulary has nothing between documents but the end of a paragraph."""
    pieces = ["<unk>", "a", "b", "a</w>", "b</w>", "ab</w>", "\n</w>"]
    config = transformers.OpenAIGPTConfig(vocab_size=7, n_embd=6, n_head=2, n_layer=1, n_positions=8)
    transformers.OpenAIGPTLMHeadModel(config).save_pretrained(tmp_path / "hf")
    (tmp_path / "hf/vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}))
    (tmp_path / "hf/merges.txt").write_text("#version: 0.2\na b</w>\n")
    import_run(tmp_path / "hf", tmp_path / "run")
    model = lmlab.load(tmp_path / "run")
    assert (model.tokenizer.boundary, model.tokenizer.vocabulary) == (6, 7)
    assert model.tokenizer.encode("AB a") == [5, 3]
    assert model.score("ab a").tokens == 2


def test_the_published_vocabularies_of_gpt_and_gpt2(shared_data: Callable[[str], Path], tmp_path: Path) -> None:
    """As many tokens as the published models have rows, and the numbers that `transformers` gives."""
    text = "Hello, World! It's naïve:\n 3 cafés…"
    for kind, name, files, rows in (
        ("gpt1", "OpenAIGPT", ("encoder_bpe_40000.json", "vocab_40000.bpe"), 40478),
        ("gpt2", "GPT2", ("encoder.json", "vocab.bpe"), 50257),
    ):
        config = getattr(transformers, f"{name}Config")(vocab_size=rows, n_embd=4, n_head=2, n_layer=1, n_positions=8)
        folder = tmp_path / kind
        getattr(transformers, f"{name}LMHeadModel")(config).save_pretrained(folder)
        for file, usual in zip(files, ("vocab.json", "merges.txt"), strict=True):
            (folder / usual).write_bytes((shared_data("tokenizers") / kind / file).read_bytes())
        import_run(folder, tmp_path / f"{kind}-run")
        tokenizer = lmlab.load(tmp_path / f"{kind}-run").tokenizer
        assert tokenizer.vocabulary == rows
        vocabulary, merges = (str(folder / file) for file in ("vocab.json", "merges.txt"))
        reference = getattr(transformers, f"{name}Tokenizer")(vocab=vocabulary, merges=merges)
        assert tokenizer.encode(text) == reference(text)["input_ids"]


def test_another_tokenizer_can_be_given(tmp_path: Path) -> None:
    save_gpt2(tmp_path / "hf", vocabulary=5)
    engine = Engine(engines.WordLevel({"<unk>": 0, "</s>": 1, "a": 2, "b": 3}, unk_token="<unk>"))
    engine.save(str(tmp_path / "words.json"))
    tokenizer = lmlab.tokenizers.Tokenizer.load(tmp_path / "words.json")
    import_run(tmp_path / "hf", tmp_path / "run", tokenizer=tokenizer)
    assert lmlab.load(tmp_path / "run").tokenizer.fingerprint == tokenizer.fingerprint


def test_many_rows_without_a_token_are_worth_a_warning(tmp_path: Path) -> None:
    save_gpt2(tmp_path / "hf", vocabulary=600)
    Engine(engines.WordLevel({"<unk>": 0, "</s>": 1}, unk_token="<unk>")).save(str(tmp_path / "hf/tokenizer.json"))
    with pytest.warns(UserWarning, match="600 tokens, but the tokenizer only 2"):
        import_run(tmp_path / "hf", tmp_path / "run")
    save_gpt2(tmp_path / "near", vocabulary=8)
    Engine(engines.WordLevel({"<unk>": 0, "</s>": 1}, unk_token="<unk>")).save(str(tmp_path / "near/tokenizer.json"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        import_run(tmp_path / "near", tmp_path / "near-run")
