"""Runs of ours open in `transformers` and compute the same there, and come back bit by bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hf_references import ROLES, TEXT, make_run, scores, transformers
from safetensors import safe_open

import lmlab
from encoders import filler, score_pairs
from lmlab.interop.huggingface import export_run, import_run, read_model
from tolerances import of_blocks

HALVES = {"position_order": "halves", "bias": True, "start": 7}
RUNS: dict[str, tuple[str, str, tuple[str, ...], dict[str, Any]]] = {
    # the class that must open it: kind, tokenizer, roles, settings
    "GPT2LMHeadModel": ("gpt2", "bpe:300", (), {}),
    "GPT2LMHeadModel words": ("gpt2", "words", (), {}),
    "GPT2LMHeadModel bytes": ("gpt2", "bytes", (), {}),
    "GPT2LMHeadModel characters": ("gpt2", "characters", (), {"dropout": 0.3}),
    "OpenAIGPTLMHeadModel": ("gpt", "unigram:300", (), {}),
    "LlamaForCausalLM": ("llama", "bpe:300", (), {}),
    "BertForPreTraining": ("bert", "wordpiece:200", ROLES, {}),
    "BertForMaskedLM": ("bert", "wordpiece:200,cased", ROLES, {"pairs": False, "gelu": "tanh", "inner": 37}),
    "BertForMaskedLM multilingual": ("mbert", "wordpiece:200", ROLES, {"pairs": False, "pooler": False}),
    "BertModel": ("bert", "bpe:300", ROLES, {"head": False, "pairs": False, "attention_dropout": 0.2}),
    "BertForNextSentencePrediction": ("bert", "wordpiece:200", ROLES, {"head": False}),
    "XLNetLMHeadModel": ("xlnet", "unigram:300", ROLES, {}),
    "XLNetModel": ("xlnet", "bpe:300", ROLES, {"head": False, "memory": 3, "activation": "relu"}),
    "RobertaForMaskedLM": ("roberta", "bpe:300", ROLES, {}),
    "RobertaForMaskedLM first padding": ("roberta", "wordpiece:200", ROLES, {}),
    "RobertaForMaskedLM no offset": ("roberta", "bpe:300", ROLES, {"offset": 0}),
    "XLMRobertaForMaskedLM": ("xlm-r", "unigram:300", ROLES, {}),
    "AlbertForPreTraining": ("albert", "unigram:300", ROLES, {}),
    "AlbertModel": ("albert", "wordpiece:200", ROLES, {"head": False, "pairs": False}),
    "ElectraForPreTraining": ("electra", "wordpiece:200", ROLES, {"parts": "discriminator"}),
    "ElectraForMaskedLM": ("electra", "wordpiece:200", ROLES, {"parts": "generator"}),
    "ElectraForPreTraining both": ("electra", "wordpiece:200", ROLES, {}),
    "BartForConditionalGeneration": ("bart", "bpe:300", ("pad", "mask"), {}),
    "MarianMTModel": ("transformer", "bpe:300", ("pad",), {}),
    "MarianMTModel halves": (
        "transformer",
        "bpe:300",
        ("pad",),
        {"position_order": "halves", "bias": True, "start": 7},
    ),
}


pytestmark = pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning")


def compute(model: Any, tokens: torch.Tensor, *, theirs: bool) -> torch.Tensor:
    """The main output of a model of either side."""
    if hasattr(model.config, "decoder_layers"):
        if theirs:
            return model(input_ids=tokens, decoder_input_ids=tokens[:, :5]).logits
        return model.logits(model(tokens[:, :5], source=tokens).hidden)
    if theirs:
        found = model(tokens)
        return next(found[key] for key in ("prediction_logits", "logits", "last_hidden_state") if key in found)
    hidden = model(tokens).hidden
    if getattr(model.config, "parts", "") in ("both", "discriminator"):
        return model.main.discriminator_head(hidden)
    if getattr(model.config, "head", True):
        return model.output.logits(hidden) if model.stateful else scores(model, hidden)
    return score_pairs(model, hidden) if getattr(model.config, "pairs", False) else hidden


@pytest.mark.parametrize("case", RUNS)
def test_transformers_opens_a_run_and_it_comes_back_bit_by_bit(case: str, tmp_path: Path) -> None:
    kind, spec, roles, values = RUNS[case]
    run, folder, back = (tmp_path / name for name in ("run", "hf", "back"))
    model, tokenizer = make_run(run, kind, spec, roles=roles, **values)
    export_run(run, folder)

    config = transformers.AutoConfig.from_pretrained(folder)
    assert config.architectures == [case.split()[0]]
    with safe_open(folder / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}
        assert not any(name.endswith(("lm_head.weight", "decoder.weight")) for name in file.keys())  # noqa: SIM118
    theirs, report = getattr(transformers, config.architectures[0]).from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"]
    assert all("pooler" in name for name in report["unexpected_keys"]), report

    text = TEXT[3] + "Neptune, é"
    reader = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer.encode(text)
    assert reader(text, add_special_tokens=False)["input_ids"] == ids
    assert reader.decode(ids, skip_special_tokens=True) == tokenizer.decode(ids)

    tokens = torch.tensor([ids[:17], ids[-17:]])
    with torch.inference_mode():
        ours = compute(model, tokens, theirs=False)
        assert (ours - compute(theirs.eval(), tokens, theirs=True)).abs().max() <= 1e-4

        read = reader("the sun and Venus", return_tensors="pt")
        if not hasattr(config, "decoder_layers") and kind != "xlnet":  # whose <cls> is of a segment of its own
            plain = next(value for value in theirs(read["input_ids"]).values() if value is not None)
            rounding = of_blocks(config.num_hidden_layers, width=config.hidden_size)
            given = next(iter(theirs(**read).values()))  # with a mask, for which torch may have another kernel
            torch.testing.assert_close(given, plain, rtol=rounding, atol=rounding)  # it is fit for them

    import_run(folder, back)
    for name in ("config.json", "model.safetensors", "tokenizer.json", "manifest.json"):
        assert (back / name).read_bytes() == (run / name).read_bytes(), name


@pytest.mark.parametrize("kind", ["transformer-xl"])
def test_what_transformers_has_no_more_comes_back_too(kind: str, tmp_path: Path) -> None:
    make_run(tmp_path / "run", kind, "bpe:300")
    export_run(tmp_path / "run", tmp_path / "hf")
    import_run(tmp_path / "hf", tmp_path / "back")
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        assert (tmp_path / "back" / name).read_bytes() == (tmp_path / "run" / name).read_bytes(), name


@pytest.mark.parametrize(
    ("kind", "spec", "auto"),
    [
        ("gpt2", "bpe:300", "AutoModelForCausalLM"),
        ("bert", "wordpiece:200", "AutoModelForMaskedLM"),
        ("electra", "wordpiece:200", "AutoModel"),
        ("bart", "bpe:300", "AutoModelForSeq2SeqLM"),
    ],
)
def test_the_auto_classes_open_it(kind: str, spec: str, auto: str, tmp_path: Path) -> None:
    make_run(tmp_path / "run", kind, spec, roles=ROLES)
    export_run(tmp_path / "run", tmp_path / "hf")
    model = getattr(transformers, auto).from_pretrained(tmp_path / "hf")
    assert sum(parameter.numel() for parameter in model.parameters()) > 0


def test_their_tokenizer_puts_the_tokens_of_the_family_around_a_text(tmp_path: Path) -> None:
    for kind, spec in (("bert", "wordpiece:200"), ("roberta", "bpe:300"), ("bart", "bpe:300"), ("gpt2", "bpe:300")):
        _, tokenizer = make_run(tmp_path / kind, kind, spec, roles=() if kind == "gpt2" else ROLES)
        export_run(tmp_path / kind, tmp_path / f"{kind}-hf")
        reader = transformers.AutoTokenizer.from_pretrained(tmp_path / f"{kind}-hf")
        a, b = tokenizer.encode("the sun"), tokenizer.encode("and Venus")
        if kind == "gpt2":
            assert reader("the sun")["input_ids"] == a
            assert reader.eos_token_id == tokenizer.boundary
            continue
        if kind == "bart":
            assert reader("the sun")["input_ids"] == [*a, tokenizer.boundary]
            continue
        cls, sep = tokenizer.special("cls"), tokenizer.special("sep")
        assert reader("the sun")["input_ids"] == [cls, *a, sep]
        middle = [sep, sep] if kind == "roberta" else [sep]
        assert reader("the sun", "and Venus")["input_ids"] == [cls, *a, *middle, *b, sep]
        assert (reader.mask_token_id, reader.pad_token_id) == (tokenizer.special("mask"), tokenizer.special("pad"))


def test_token_types_of_a_pair(tmp_path: Path) -> None:
    _, tokenizer = make_run(tmp_path / "run", "bert", "wordpiece:200", roles=ROLES)
    export_run(tmp_path / "run", tmp_path / "hf")
    reader = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    a, b = (len(tokenizer.encode(text)) for text in ("the sun", "and Venus"))
    assert reader("the sun", "and Venus")["token_type_ids"] == [0] * (a + 2) + [1] * (b + 1)


def test_a_gpt2_goes_on_writing_there_as_here(tmp_path: Path) -> None:
    make_run(tmp_path / "run", "gpt2", "bpe:300")
    export_run(tmp_path / "run", tmp_path / "hf")
    ours = lmlab.load(tmp_path / "run")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hf").eval()
    prompt = [ours.tokenizer.boundary, *ours.tokenizer.encode("The planet")]
    written = theirs.generate(torch.tensor([prompt]), max_new_tokens=12, do_sample=False)[0, len(prompt) :].tolist()
    text = ours.generate("The planet", tokens=12, temperature=0.0)
    assert ours.tokenizer.decode([token for token in written if token != ours.tokenizer.boundary]) == text


def test_padding_that_is_no_token_of_a_text(tmp_path: Path) -> None:
    """RoBERTa's positions skip the padding token: every token of our vocabulary must be read as itself."""
    model, tokenizer = make_run(tmp_path / "run", "roberta", "bpe:300", roles=ROLES)
    export_run(tmp_path / "run", tmp_path / "hf")
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "hf").eval()
    tokens = torch.tensor([[0, 1, 2, 1, 5, 1, 1]])
    with torch.inference_mode():
        assert (theirs(tokens).logits - scores(model, model(tokens).hidden)).abs().max() <= 1e-4
    padded = torch.tensor([[7, 1, 9, tokenizer.special("pad"), tokenizer.special("pad")]])
    mask = (padded != tokenizer.special("pad")).long()
    with torch.inference_mode():
        found = theirs(padded, attention_mask=mask).logits[:, :3]
        assert (found - scores(model, model(padded[:, :3]).hidden)).abs().max() <= 1e-4


def test_both_parts_of_electra_are_two_folders(tmp_path: Path) -> None:
    model, _ = make_run(tmp_path / "run", "electra", "wordpiece:200", roles=ROLES)
    export_run(tmp_path / "run", tmp_path / "hf")
    generator = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "hf/generator").eval()
    tokens = torch.tensor([[5, 6, 7, 8, 9]])
    with torch.inference_mode():
        expected = filler(model).logits(model.generator(tokens).hidden)
        assert (generator(tokens).logits - expected).abs().max() <= 1e-4
    (tmp_path / "hf/generator").rename(tmp_path / "alone")
    assert read_model(tmp_path / "alone").config.parts == "generator"
    with pytest.warns(UserWarning, match="has lost its folder generator"):
        assert read_model(tmp_path / "hf").config.parts == "discriminator"


def test_one_copy_of_alberts_block(tmp_path: Path) -> None:
    make_run(tmp_path / "run", "albert", "wordpiece:200", roles=ROLES, layers=3)
    export_run(tmp_path / "run", tmp_path / "hf")
    with safe_open(tmp_path / "hf/model.safetensors", "pt") as file:
        names = [name for name in file.keys() if name.endswith("ffn.weight")]  # noqa: SIM118
    assert names == ["albert.encoder.albert_layer_groups.0.albert_layers.0.ffn.weight"]
    assert json.loads((tmp_path / "hf/config.json").read_text())["num_hidden_layers"] == 3


@pytest.mark.parametrize("kind", ["bert", "roberta", "electra"])
def test_a_changed_configuration_goes_before_what_we_remember(kind: str, tmp_path: Path) -> None:
    model, _ = make_run(tmp_path / "run", kind, "wordpiece:200", roles=ROLES)
    export_run(tmp_path / "run", tmp_path / "hf")
    config = json.loads((tmp_path / "hf/config.json").read_text())
    (tmp_path / "hf/config.json").write_text(json.dumps({**config, "hidden_dropout_prob": 0.25}))
    with pytest.warns(UserWarning, match="belongs to another config"):
        changed = read_model(tmp_path / "hf")
    assert changed.config.dropout == 0.25
    tokens = torch.tensor([[5, 1, 7, 8]])
    with torch.inference_mode():
        assert torch.equal(changed(tokens).hidden, model(tokens).hidden)


def test_a_model_that_transformers_saves_again_is_still_ours(tmp_path: Path) -> None:
    """RUN -> HF -> transformers -> RUN, without our `lmlab.json`."""
    model, tokenizer = make_run(tmp_path / "run", "bert", "wordpiece:200", roles=ROLES)
    export_run(tmp_path / "run", tmp_path / "hf")
    transformers.BertForPreTraining.from_pretrained(tmp_path / "hf").save_pretrained(tmp_path / "again")
    transformers.AutoTokenizer.from_pretrained(tmp_path / "hf").save_pretrained(tmp_path / "again")
    import_run(tmp_path / "again", tmp_path / "back")
    back = lmlab.load(tmp_path / "back")
    assert back.tokenizer.encode(TEXT[0]) == tokenizer.encode(TEXT[0])
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), back.model.parameters(), strict=True))
