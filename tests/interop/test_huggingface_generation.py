"""Imported models write, read and score as in `transformers`: same prompt, same ids, whatever the tokenizer."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tokenizers as hf
import torch
from hf_references import TEXT, randomise, transformers
from tokenizers import decoders, normalizers, pre_tokenizers, processors
from tokenizers import models as engines
from tokenizers.trainers import BpeTrainer, UnigramTrainer, WordPieceTrainer

import lmlab
from lmlab.decoding.sampling import Sampling
from lmlab.interop.huggingface import export_run, import_run
from lmlab.language_model import LanguageModel
from lmlab.runs.storage import write_manifest
from lmlab.tokenizers.boundary import prompt_tokens
from lmlab.transfer.finetune import finetune
from stories import read_stories, read_vocabulary

PROMPTS = ["The planet Mars", "so does Venus.\n The sun", " round  the é 17", "foo bar <tool>Mars", "a<|endoftext|>b"]
TOKENS = 24
END = "<|endoftext|>"


def byte_level(size: int, specials: list[str], *, alphabet: bool = True, digits: bool = False) -> hf.Tokenizer:
    """BPE over bytes as GPT-2 has it; with single digits as SmolLM2 has it; perhaps without the bytes of no text."""
    engine = hf.Tokenizer(engines.BPE())
    level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(True), level]) if digits else level
    engine.decoder = decoders.ByteLevel()
    first = pre_tokenizers.ByteLevel.alphabet() if alphabet else []
    engine.train_from_iterator(TEXT, BpeTrainer(vocab_size=size, special_tokens=specials, initial_alphabet=first))
    return engine


def unigram(specials: list[str]) -> hf.Tokenizer:
    """SentencePiece's model with its space mark."""
    engine = hf.Tokenizer(engines.Unigram())
    engine.pre_tokenizer, engine.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    engine.train_from_iterator(TEXT, UnigramTrainer(vocab_size=60, special_tokens=specials, unk_token="<unk>"))
    return engine


def put_around(engine: hf.Tokenizer, single: str, pair: str) -> hf.Tokenizer:
    names = {step for step in f"{single} {pair}".replace(":1", "").split() if step[0] != "$"}
    engine.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[(name, engine.token_to_id(name)) for name in sorted(names)]
    )
    return engine


def fast(engine: hf.Tokenizer, **names: Any) -> Any:
    return transformers.PreTrainedTokenizerFast(tokenizer_object=engine, **names)


def plain_gpt2() -> Any:
    return fast(byte_level(300, [END]), bos_token=END, eos_token=END)


def gpt2_with_bos() -> Any:
    engine = byte_level(300, ["<s>", END])
    vocabulary = engine.get_vocab()
    return transformers.GPT2Tokenizer(
        vocab=vocabulary, merges=_merges(engine), bos_token="<s>", eos_token=END, unk_token=END, add_bos_token=True
    )


def _merges(engine: hf.Tokenizer) -> list[tuple[str, str]]:
    return [(left, right) for left, right in json.loads(engine.to_str())["model"]["merges"]]


def smol() -> Any:
    """As SmolLM2-Instruct: three special tokens, no byte that no text has, nothing put before a text."""
    engine = byte_level(150, [END, "<|im_start|>", "<|im_end|>"], alphabet=False, digits=True)
    return fast(engine, bos_token="<|im_start|>", eos_token="<|im_end|>", unk_token=END)


def with_added_tokens() -> Any:
    tokenizer = plain_gpt2()
    tokenizer.add_tokens(["foo bar", hf.AddedToken("Venus", single_word=True), hf.AddedToken("<tool>", lstrip=True)])
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|user|>"]})
    return tokenizer


def llama_with_unigram() -> Any:
    engine = put_around(unigram(["<unk>", "<s>", "</s>"]), "<s> $A", "<s> $A $B")
    return fast(engine, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def unmarked_unigram() -> Any:
    """`<s>` is a piece of the vocabulary that only the settings name; nothing is put before a text."""
    return fast(unigram(["<unk>", "<s>", "</s>"]), bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def strange_names() -> Any:
    """No name that is usual for what ends a text: lmlab would have to add one."""
    return fast(byte_level(290, ["<begin>", "<stop>"]), bos_token="<begin>", eos_token="<stop>")


@dataclass(frozen=True)
class Case:
    family: str
    tokenizer: Callable[[], Any]
    boundary: str | None
    """What stands before a text."""


CASES = {
    "gpt2, byte-level": Case("gpt2", plain_gpt2, None),
    "gpt2, add_bos_token": Case("gpt2", gpt2_with_bos, "<s>"),
    "gpt2, added tokens": Case("gpt2", with_added_tokens, None),
    "gpt2, strange names": Case("gpt2", strange_names, None),
    "llama, byte-level": Case("llama", smol, None),
    "llama, Unigram with <s>": Case("llama", llama_with_unigram, "<s>"),
    "llama, Unigram without <s>": Case("llama", unmarked_unigram, None),
    "llama, added tokens": Case("llama", with_added_tokens, None),
    "mistral, byte-level": Case("mistral", smol, None),
    "reformer, byte-level": Case("reformer", plain_gpt2, None),
}


def make_reference(family: str, tokenizer: Any) -> Any:
    """A random model for a tokenizer, with weights that write different tokens, and more rows than tokens."""
    ids = {f"{role}_token_id": getattr(tokenizer, f"{role}_token_id") for role in ("bos", "eos")}
    size: dict[str, Any] = {"vocab_size": len(tokenizer) + 7, **ids}
    torch.manual_seed(len(tokenizer))
    if family == "gpt2":
        config = transformers.GPT2Config(**size, n_embd=24, n_head=3, n_layer=2, n_positions=128)
        return randomise(transformers.GPT2LMHeadModel(config).eval())
    if family == "reformer":
        config = transformers.ReformerConfig(
            **size, hidden_size=24, num_attention_heads=3, attn_layers=["local"], attention_head_size=8,
            feed_forward_size=40, max_position_embeddings=128, axial_pos_embds=False, is_decoder=True,
            local_attn_chunk_length=16, local_attention_probs_dropout_prob=0.0, num_buckets=2,
        )  # fmt: skip
        return randomise(transformers.ReformerModelWithLMHead(config).eval())
    name = {"llama": "Llama", "mistral": "Mistral"}[family]
    config = getattr(transformers, f"{name}Config")(
        **size, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1,
        max_position_embeddings=128,
    )  # fmt: skip
    return randomise(getattr(transformers, f"{name}ForCausalLM")(config).eval())


def save(folder: Path, reference: Any, tokenizer: Any) -> Path:
    reference.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def written_there(reference: Any, tokenizer: Any, prompt: str, tokens: int = TOKENS) -> list[int]:
    given = tokenizer(prompt, return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        found = reference.generate(given, attention_mask=torch.ones_like(given), do_sample=False, max_new_tokens=tokens)
    return list(found[0, given.shape[1] :].tolist())


def written_here(model: LanguageModel, prompt: str, tokens: int = TOKENS) -> list[int]:
    steps = model.writer.write(prompt, sampling=Sampling(temperature=0.0), tokens=tokens)
    return [written.next.token for (written,) in steps]


@pytest.mark.parametrize("name", CASES)
def test_greedy_ids_are_theirs(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    tokenizer = case.tokenizer()
    reference = make_reference(case.family, tokenizer)
    import_run(save(tmp_path / "hf", reference, tokenizer), tmp_path / "run")
    model = lmlab.load(tmp_path / "run")
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path / "hf")
    for prompt in PROMPTS:
        given = theirs(prompt)["input_ids"]
        assert model.frame.row(a=model.text_tokenizer.encode(prompt))["tokens"] == given, prompt
        assert written_here(model, prompt) == written_there(reference, theirs, prompt), prompt
    assert model.writer.end == tokenizer.eos_token_id
    assert model.text_tokenizer.vocabulary == len(tokenizer), "no token was added"
    before = [] if case.boundary is None else [tokenizer.convert_tokens_to_ids(case.boundary)]
    assert model.frame.row()["tokens"] == before
    with_it = model.with_boundary().frame.row(a=[5])["tokens"]
    assert with_it == [tokenizer.bos_token_id, 5], "the option puts the token there that begins texts"
    assert model.with_boundary().without_boundary().frame.row(a=[5])["tokens"] == [5]


@pytest.mark.parametrize("name", CASES)
def test_an_empty_prompt_begins_with_a_token_that_the_model_knows(name: str, tmp_path: Path) -> None:
    tokenizer = CASES[name].tokenizer()
    reference = make_reference(CASES[name].family, tokenizer)
    import_run(save(tmp_path / "hf", reference, tokenizer), tmp_path / "run")
    start = torch.tensor([[tokenizer.bos_token_id]])
    with torch.inference_mode():
        found = reference.generate(start, attention_mask=start * 0 + 1, do_sample=False, max_new_tokens=TOKENS)
    assert written_here(lmlab.load(tmp_path / "run"), "") == found[0, 1:].tolist()


@pytest.mark.parametrize("name", ["gpt2, byte-level", "gpt2, add_bos_token", "llama, Unigram with <s>"])
def test_scores_are_theirs_for_every_token_that_they_predict(name: str, tmp_path: Path) -> None:
    tokenizer = CASES[name].tokenizer()
    reference = make_reference(CASES[name].family, tokenizer)
    import_run(save(tmp_path / "hf", reference, tokenizer), tmp_path / "run")
    text = TEXT[0] * 9  # longer than the window
    given = tokenizer(text, return_tensors="pt")["input_ids"][:, :128]
    with torch.inference_mode():
        nats = -reference(given).logits.log_softmax(-1)[0, :-1].gather(1, given[0, 1:, None])[:, 0]
        first = -reference(torch.tensor([[tokenizer.bos_token_id]])).logits.log_softmax(-1)[0, -1]
    ours = lmlab.load(tmp_path / "run").score(text).token_nats[0]
    if CASES[name].boundary is None:
        assert ours[0] == pytest.approx(float(first[given[0, 0]]), abs=1e-3)
        ours = ours[1:]
    assert ours[: len(nats)] == pytest.approx(nats.numpy(), abs=1e-3)


@pytest.mark.parametrize("name", ["gpt2, added tokens", "llama, byte-level", "llama, Unigram with <s>"])
def test_tokens_survive_the_way_there_and_back(name: str, tmp_path: Path) -> None:
    """Imported, exported, and imported again: the same ids, the same special tokens, the same text."""
    tokenizer = CASES[name].tokenizer()
    reference = make_reference(CASES[name].family, tokenizer)
    import_run(save(tmp_path / "hf", reference, tokenizer), tmp_path / "run")
    export_run(tmp_path / "run", tmp_path / "out")
    import_run(tmp_path / "out", tmp_path / "back")
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path / "out")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    assert (theirs.bos_token, theirs.eos_token) == (tokenizer.bos_token, tokenizer.eos_token)
    for prompt in PROMPTS:
        assert theirs(prompt)["input_ids"] == tokenizer(prompt)["input_ids"]
        assert written_there(again, theirs, prompt) == written_there(reference, tokenizer, prompt)
        assert written_here(lmlab.load(tmp_path / "back"), prompt) == written_there(reference, tokenizer, prompt)
    for name in ("tokenizer.json", "tokenizer_options.json", "frame.json", "model.safetensors"):
        assert (tmp_path / "back" / name).read_bytes() == (tmp_path / "run" / name).read_bytes(), name


def test_runs_that_earlier_versions_imported_are_read_as_before(tmp_path: Path) -> None:
    """They have no frame and no options of the tokenizer: the boundary before every text, special tokens split."""
    tokenizer = plain_gpt2()
    import_run(save(tmp_path / "hf", make_reference("gpt2", tokenizer), tokenizer), tmp_path / "run")
    for name in ("frame.json", "tokenizer_options.json"):
        (tmp_path / "run" / name).unlink()
    write_manifest(tmp_path / "run")
    model = lmlab.load(tmp_path / "run")
    assert model.frame.row(a=[5])["tokens"] == [tokenizer.eos_token_id, 5]
    assert tokenizer.eos_token_id not in model.text_tokenizer.encode(f"a{END}b")
    assert model.generate("The planet", tokens=5) is not None


def test_a_tokenizer_that_names_no_special_token_still_continues_a_prompt(tmp_path: Path) -> None:
    """No token is read that the model was not trained with: an empty prompt is an error."""
    tokenizer = fast(byte_level(280, []))
    reference = make_reference("gpt2", tokenizer)
    import_run(save(tmp_path / "hf", reference, tokenizer), tmp_path / "run")
    model = lmlab.load(tmp_path / "run")
    for prompt in PROMPTS[:3]:
        assert written_here(model, prompt) == written_there(reference, tokenizer, prompt)
    with pytest.raises(ValueError, match="no token begins a text"):
        model.generate("")
    with pytest.raises(ValueError, match="no token begins a text"):
        model.score("The planet")


@pytest.mark.parametrize("files", ["added_tokens.json", "tokenizer_config.json"])
def test_old_folders_keep_added_tokens_in_a_file_of_their_own(files: str, tmp_path: Path) -> None:
    folder = tmp_path / "hf"
    tokenizer = plain_gpt2()
    save(folder, make_reference("gpt2", tokenizer), tokenizer)
    content = json.loads((folder / "tokenizer.json").read_text())["model"]
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").write_text(json.dumps(content["vocab"]))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(" ".join(pair) for pair in content["merges"]))
    size = len(content["vocab"])
    names = {"bos_token": END, "eos_token": END, "additional_special_tokens": ["<|user|>"]}
    added = {"foo bar": size, "<|user|>": size + 1}
    if files == "added_tokens.json":
        (folder / files).write_text(json.dumps(added))
    else:
        names["added_tokens_decoder"] = {  # type: ignore[assignment]
            str(number): {"content": name, "special": name.startswith("<"), "normalized": name[0] != "<"}
            for name, number in added.items()
        }
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GPT2Tokenizer", **names}))
    import_run(folder, tmp_path / "run")
    ours = lmlab.load(tmp_path / "run").text_tokenizer
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    for text in ("a foo bar<|user|>b", f"the{END}planet"):
        assert ours.encode(text) == theirs(text)["input_ids"]
    assert size in ours.encode("a foo bar<|user|>b")


def test_vectors_are_theirs_and_an_empty_text_has_none(tmp_path: Path) -> None:
    tokenizer = plain_gpt2()
    reference = make_reference("gpt2", tokenizer)
    import_run(save(tmp_path / "hf", reference, tokenizer), tmp_path / "run")
    model = lmlab.load(tmp_path / "run")
    given = tokenizer("The planet Mars", return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        vectors = reference.transformer(given).last_hidden_state[0]
    empty, full = model.embed(["", "The planet Mars"])
    assert len(empty.vectors) == 0
    assert full.vectors == pytest.approx(vectors.numpy(), abs=1e-4)
    assert not model.embed([""], pool="mean").any()


def save_stories(folder: Path, source: Path, *, around: bool) -> Any:
    """The real small Llama as transformers saves it, with its vocabulary as Unigram and `<s>` as bos_token."""
    ours: Any = read_stories(source / "stories260K.bin")
    config = transformers.LlamaConfig(
        vocab_size=512, hidden_size=64, intermediate_size=172, num_hidden_layers=5, num_attention_heads=8,
        num_key_value_heads=4, max_position_embeddings=512, rms_norm_eps=1e-5, tie_word_embeddings=True,
        bos_token_id=1, eos_token_id=2, rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )  # fmt: skip
    model, state = transformers.LlamaForCausalLM(config).eval(), ours.state_dict()
    theirs = {"model.embed_tokens.weight": state["embedding.weight"], "model.norm.weight": state["norm.weight"]}
    for i in range(5):
        here, there = f"blocks.{i}.", f"model.layers.{i}."
        key, value = state[f"{here}attention.key_value.weight"].chunk(2)
        gate, up = state[f"{here}feed_forward.expand.weight"].chunk(2)
        parts = {
            "input_layernorm": state[f"{here}attention_norm.weight"],
            "post_attention_layernorm": state[f"{here}feed_forward_norm.weight"],
            "self_attn.q_proj": state[f"{here}attention.query.weight"],
            "self_attn.k_proj": key,
            "self_attn.v_proj": value,
            "self_attn.o_proj": state[f"{here}attention.projection.weight"],
            "mlp.gate_proj": gate,
            "mlp.up_proj": up,
            "mlp.down_proj": state[f"{here}feed_forward.contract.weight"],
        }
        theirs |= {f"{there}{name}.weight": tensor for name, tensor in parts.items()}
    missing = model.load_state_dict(theirs, strict=False).missing_keys
    assert missing == ["lm_head.weight"]
    pieces = [(piece.decode().replace(" ", "▁"), score) for piece, score in read_vocabulary(source / "tok512.bin")]
    pieces[1], pieces[2] = ("<s>", 0.0), ("</s>", 0.0)
    engine = hf.Tokenizer(engines.Unigram(pieces, unk_id=0, byte_fallback=True))
    engine.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    engine.decoder = decoders.Sequence(steps)
    if around:
        put_around(engine, "<s> $A", "<s> $A $B")
    save(folder, model, fast(engine, bos_token="<s>", eos_token="</s>", unk_token="<unk>"))
    return model


@pytest.mark.parametrize("around", [True, False])
def test_a_real_llama_writes_its_golden_text(around: bool, shared_data: Callable[[str], Path], tmp_path: Path) -> None:
    source = shared_data("llama")
    reference = save_stories(tmp_path / "hf", source, around=around)
    import_run(tmp_path / "hf", tmp_path / "run")
    model = lmlab.load(tmp_path / "run")
    golden = (source / "golden.txt").read_text(encoding="utf-8")
    assert model.generate("", tokens=200, temperature=0.0) == golden
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path / "hf")
    for prompt in ("Once upon a time, there was a little girl", "Lily's dog <s> ran"):
        assert written_here(model, prompt, 60) == written_there(reference, theirs, prompt, 60)


def test_a_sentencepiece_model_alone_writes_as_there(shared_data: Callable[[str], Path], tmp_path: Path) -> None:
    """Folders of the first Llama have `tokenizer.model` only, and `add_bos_token` says what stands before a text."""
    pytest.importorskip("sentencepiece")
    config = transformers.LlamaConfig(
        vocab_size=1000, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3,
        num_key_value_heads=1, max_position_embeddings=128, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    torch.manual_seed(0)
    reference = randomise(transformers.LlamaForCausalLM(config).eval())
    for adds in (True, False):
        folder = tmp_path / f"hf-{adds}"
        reference.save_pretrained(folder)
        shutil.copy(shared_data("sentencepiece") / "test_sentencepiece.model", folder / "tokenizer.model")
        (folder / "tokenizer_config.json").write_text(json.dumps({"add_bos_token": adds}))
        import_run(folder, tmp_path / f"run-{adds}")
        model = lmlab.load(tmp_path / f"run-{adds}")
        for prompt in ("I saw a girl with a telescope.", "This is a test"):
            ids = ([1] if adds else []) + model.text_tokenizer.encode(prompt)
            given = torch.tensor([ids])
            with torch.inference_mode():
                found = reference.generate(given, attention_mask=given * 0 + 1, do_sample=False, max_new_tokens=20)
            assert written_here(model, prompt, 20) == found[0, len(ids) :].tolist()


def test_add_bos_token_beside_a_tokenizer_file_has_no_effect(tmp_path: Path) -> None:
    """`transformers` 5 lets the post-processor of tokenizer.json decide alone."""
    folder, tokenizer = tmp_path / "hf", plain_gpt2()
    reference = make_reference("gpt2", tokenizer)
    reference.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "add_bos_token": True}))
    import_run(folder, tmp_path / "run")
    model, theirs = lmlab.load(tmp_path / "run"), transformers.AutoTokenizer.from_pretrained(folder)
    assert prompt_tokens(model.frame, model.text_tokenizer.encode("It was")) == theirs("It was").input_ids


@pytest.mark.parametrize("name", ["gpt2, byte-level", "llama, Unigram with <s>"])
def test_a_task_reads_before_a_text_what_the_model_was_trained_with(name: str, tmp_path: Path) -> None:
    case, tokenizer = CASES[name], CASES[name].tokenizer()
    import_run(save(tmp_path / "hf", make_reference(case.family, tokenizer), tokenizer), tmp_path / "run")
    rows = [f"Venus is bright {number}\t{('yes', 'no')[number % 2]}" for number in range(12)]
    (tmp_path / "data.tsv").write_text("\n".join(["text\tlabel", *rows]))
    settings: dict[str, Any] = {"budget": "1steps", "batch": 2}
    done = finetune(
        tmp_path / "run", tmp_path / "data.tsv", output=tmp_path / "new", how="frozen", controls=False, train=settings
    )
    task = lmlab.load(done.path).predictor.task
    (row,) = task.frame.rows([{"a": [5, 6]}])
    before = [] if case.boundary is None else [tokenizer.convert_tokens_to_ids(case.boundary)]
    assert row.inputs["tokens"].pieces[:-1] == [*before, 5, 6]


def bart_tokenizer() -> Any:
    engine = byte_level(300, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    engine.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return fast(engine, bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>", mask_token="<mask>",
                cls_token="<s>", sep_token="</s>")  # fmt: skip


def marian_tokenizer() -> Any:
    engine = put_around(unigram(["<unk>", "<pad>", "</s>"]), "$A </s>", "$A $B </s>")
    tokenizer = fast(engine, eos_token="</s>", pad_token="<pad>", unk_token="<unk>")
    tokenizer.add_tokens([">>de<<", "foo bar"])
    return tokenizer


@pytest.mark.parametrize("family", ["bart", "marian"])
def test_an_encoder_decoder_writes_as_there(family: str, tmp_path: Path) -> None:
    tokenizer = {"bart": bart_tokenizer, "marian": marian_tokenizer}[family]()
    pad, end = tokenizer.pad_token_id, tokenizer.eos_token_id
    values = {
        "vocab_size": len(tokenizer) + 3, "d_model": 24, "encoder_layers": 1, "decoder_layers": 2,
        "encoder_attention_heads": 3, "decoder_attention_heads": 3, "encoder_ffn_dim": 40, "decoder_ffn_dim": 40,
        "max_position_embeddings": 96, "pad_token_id": pad, "bos_token_id": 0, "eos_token_id": end,
        "forced_eos_token_id": None, "decoder_start_token_id": end if family == "bart" else pad,
    }  # fmt: skip
    torch.manual_seed(3)
    config = getattr(transformers, "BartConfig" if family == "bart" else "MarianConfig")(**values)
    kind = transformers.BartForConditionalGeneration if family == "bart" else transformers.MarianMTModel
    reference = randomise(kind(config).eval())
    import_run(save(tmp_path / "hf", reference, tokenizer), tmp_path / "run")
    model = lmlab.load(tmp_path / "run")
    for text in ("The planet Mars", ">>de<< so does foo bar.", "the</s>sun and<mask>Venus"):
        given = tokenizer(text, return_tensors="pt")["input_ids"]
        assert model.frame.row(a=model.text_tokenizer.encode(text))["source"] == given[0].tolist()
        with torch.inference_mode():
            found = reference.generate(
                given, attention_mask=given * 0 + 1, do_sample=False, num_beams=1, max_new_tokens=20
            )
        (translation,) = model.translator.translate([text], beams=1, tokens=20)[0]
        assert translation.tokens == [token for token in found[0, 1:].tolist() if token != end]


def wordpiece() -> Any:
    engine = hf.Tokenizer(engines.WordPiece(unk_token="[UNK]"))
    engine.normalizer = normalizers.BertNormalizer(lowercase=True)
    engine.pre_tokenizer, engine.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    engine.train_from_iterator(TEXT, WordPieceTrainer(vocab_size=120, special_tokens=specials))
    put_around(engine, "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1")
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), specials, strict=True))
    return fast(engine, **names)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_an_encoder_reads_special_and_added_tokens_as_there(family: str, tmp_path: Path) -> None:
    tokenizer = wordpiece() if family == "bert" else bart_tokenizer()
    tokenizer.add_tokens(["foo bar", hf.AddedToken("Neptune", normalized=True), hf.AddedToken("<x>", rstrip=True)])
    size = {"vocab_size": len(tokenizer), "hidden_size": 24, "num_attention_heads": 3, "num_hidden_layers": 1,
            "intermediate_size": 40, "max_position_embeddings": 64, "pad_token_id": tokenizer.pad_token_id}  # fmt: skip
    name = {"bert": "Bert", "roberta": "Roberta"}[family]
    reference = getattr(transformers, f"{name}ForMaskedLM")(getattr(transformers, f"{name}Config")(**size)).eval()
    import_run(save(tmp_path / "hf", reference, tokenizer), tmp_path / "run")
    model = lmlab.load(tmp_path / "run")
    mask, sep = tokenizer.mask_token, tokenizer.sep_token
    for text in (f"the sun {sep} and Mars", f"a {mask}", "Foo BAR foo bar, NEPTUNE neptune Neptune", "a<x>  b", "Mars"):
        given = tokenizer(text, return_tensors="pt")
        assert model.frame.row(a=model.text_tokenizer.encode(text))["tokens"] == given["input_ids"][0].tolist(), text
        with torch.inference_mode():
            vectors = getattr(reference, family)(**given).last_hidden_state[0, 1:-1]
        (ours,) = model.embed([text])
        assert ours.vectors == pytest.approx(vectors.numpy(), abs=1e-4)
