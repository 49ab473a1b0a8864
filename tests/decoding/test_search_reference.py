"""Beam search against `generate(num_beams=k)` of transformers, given the very same models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lmlab.decoding.search import beam_search
from lmlab.interop.huggingface import read_model
from lmlab.models.model import Decoding, EncoderDecoder

transformers = pytest.importorskip("transformers")

BOUNDARY, PAD, VOCABULARY = 2, 1, 23
READY = 1.5
"""By how much the score of the boundary is raised."""


class Reread:
    """A model of transformers behind our contract: its state is all tokens read so far, it keeps no cache."""

    window = None
    vocabulary = VOCABULARY

    def __init__(self, model: Any) -> None:
        self.model = model

    def start(self, batch_size: int, *, source: Tensor | None = None, lengths: Tensor | None = None) -> Any:
        nothing = torch.zeros(batch_size, 0, dtype=torch.long)
        return nothing if source is None else Decoding((source, lengths), nothing)

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        if not isinstance(state, Decoding):
            state = torch.cat([state, tokens], 1)
            return self.model(state).logits[:, -1], state
        (source, lengths), before = state
        text = torch.cat([before, tokens], 1)
        beams = len(text) // len(source)
        mask = (torch.arange(source.shape[1]) < lengths[:, None]).long()
        rows = {"input_ids": source, "attention_mask": mask}
        rows = {name: value.repeat_interleave(beams, 0) for name, value in rows.items()}
        logits = self.model(**rows, decoder_input_ids=text, use_cache=False).logits[:, -1]
        return logits, Decoding((source, lengths), text)


def shaken(model: Any, seed: int) -> Any:
    """The model with random weights that are large enough for texts to differ."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.data.normal_(std=0.35, generator=generator)
    return model.eval()


def make_gpt2(seed: int) -> Any:
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_embd=16, n_head=2, n_layer=2, n_positions=64, bos_token_id=0, eos_token_id=BOUNDARY
    )
    model = shaken(transformers.GPT2LMHeadModel(config), seed)
    push = model.transformer.ln_f.bias.data.fill_(1.0)  # so that texts end, sooner or later
    model.transformer.wte.weight.data[BOUNDARY] += READY * push / push.dot(push)
    return model


def make_bart(seed: int) -> Any:
    config = transformers.BartConfig(
        vocab_size=VOCABULARY,
        d_model=16,
        encoder_layers=1,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        max_position_embeddings=64,
        decoder_start_token_id=BOUNDARY,
        forced_eos_token_id=None,
    )
    model = shaken(transformers.BartForConditionalGeneration(config), seed)
    model.final_logits_bias[0, BOUNDARY] = READY
    return model


def reference(model: Any, beams: int, tokens: int, alpha: float, **options: Any) -> list[list[tuple[list[int], float]]]:
    """What transformers finds: for each text the `beams` best, cut after the boundary, with their scores."""
    prompt = options.pop("prompt")
    settings = transformers.GenerationConfig(
        num_beams=beams,
        num_return_sequences=beams,
        max_new_tokens=tokens,
        length_penalty=alpha,
        early_stopping="never",
        do_sample=False,
        eos_token_id=BOUNDARY,
        pad_token_id=PAD,
        decoder_start_token_id=BOUNDARY,
        return_dict_in_generate=True,
        output_scores=True,
        **options.pop("settings", {}),
    )
    out = model.generate(**options, generation_config=settings)
    texts = []
    for row in out.sequences[:, prompt:].tolist():
        texts.append(row[: row.index(BOUNDARY) + 1] if BOUNDARY in row else row)
    pairs = list(zip(texts, out.sequences_scores.tolist(), strict=True))
    return [pairs[i : i + beams] for i in range(0, len(pairs), beams)]


def same(found: Any, expected: Any) -> None:
    """The same texts and scores, of which some end and some end later than others."""
    assert len({len(text) for each in expected for text, _ in each if text[-1] == BOUNDARY}) > 1
    for ours, theirs in zip(found, expected, strict=True):
        assert [hypothesis.tokens for hypothesis in ours] == [text for text, _ in theirs]
        assert [hypothesis.score for hypothesis in ours] == pytest.approx([score for _, score in theirs], abs=2e-4)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("seed", range(12))
def test_a_left_to_right_model_finds_what_transformers_finds(seed: int, alpha: float) -> None:
    model = make_gpt2(seed)
    prompt = torch.randint(3, VOCABULARY, (3, 4), generator=torch.Generator().manual_seed(seed))
    mask = torch.ones_like(prompt)
    beams, tokens = 2 + seed % 4, 12
    expected = reference(model, beams, tokens, alpha, prompt=4, input_ids=prompt, attention_mask=mask)
    same(
        beam_search(
            Reread(model),
            prompt,
            tokens=tokens,
            beams=beams,
            boundary=BOUNDARY,
            length_penalty=alpha,
            penalty="power",
        ),
        expected,
    )


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("seed", range(12))
def test_an_encoder_decoder_finds_what_transformers_finds(seed: int, alpha: float) -> None:
    model, generator = make_bart(seed), torch.Generator().manual_seed(seed)
    source = torch.randint(3, VOCABULARY, (4, 7), generator=generator)
    lengths = torch.tensor([7, 3, 5, 1])
    mask = (torch.arange(7) < lengths[:, None]).long()
    beams, tokens = 2 + seed % 4, 12
    settings = {"no_repeat_ngram_size": seed % 3 and 2, "min_new_tokens": seed % 4}
    expected = reference(
        model, beams, tokens, alpha, prompt=1, input_ids=source, attention_mask=mask, settings=settings
    )
    ours = Reread(model)
    found = beam_search(
        ours,
        torch.full((4, 1), BOUNDARY),
        tokens=tokens,
        beams=beams,
        boundary=BOUNDARY,
        length_penalty=alpha,
        penalty="power",
        no_repeat=seed % 3 and 2,
        shortest=seed % 4,
        state=ours.start(4, source=source, lengths=lengths),
    )
    same(found, expected)


@pytest.mark.parametrize("seed", range(10))
def test_converted_encoder_decoders_find_what_transformers_finds(seed: int, tmp_path: Path) -> None:
    theirs, generator = make_bart(100 + seed), torch.Generator().manual_seed(seed)
    theirs.save_pretrained(tmp_path)
    ours = read_model(tmp_path).eval()
    assert isinstance(ours, EncoderDecoder)
    source = torch.randint(3, VOCABULARY, (5, 9), generator=generator)
    lengths = torch.tensor([9, 2, 6, 4, 1])
    mask = (torch.arange(9) < lengths[:, None]).long()
    beams, alpha = 1 + seed % 5, (0.0, 1.0)[seed % 2]
    settings = {"no_repeat_ngram_size": (seed % 4 == 3) * 3, "min_new_tokens": seed % 3}
    if beams > 1:
        expected = reference(
            theirs, beams, 20, alpha, prompt=1, input_ids=source, attention_mask=mask, settings=settings
        )
    with torch.inference_mode():
        found = beam_search(
            ours,
            torch.full((5, 1), BOUNDARY),
            tokens=20,
            beams=beams,
            boundary=BOUNDARY,
            length_penalty=alpha,
            penalty="power",
            no_repeat=(seed % 4 == 3) * 3,
            shortest=seed % 3,
            state=ours.start(5, source=source, lengths=lengths),
        )
    if beams == 1:
        out = theirs.generate(source, attention_mask=mask, max_new_tokens=20, do_sample=False, num_beams=1, **settings)
        expected_texts = [row[: row.index(BOUNDARY) + 1] if BOUNDARY in row else row for row in out[:, 1:].tolist()]
        assert [each[0].tokens for each in found] == expected_texts
    else:
        same(found, expected)


@pytest.mark.parametrize("seed", range(10))
def test_converted_left_to_right_models_find_what_transformers_finds(seed: int, tmp_path: Path) -> None:
    theirs = make_gpt2(200 + seed)
    theirs.save_pretrained(tmp_path)
    ours = read_model(tmp_path).eval()
    prompt = torch.randint(3, VOCABULARY, (4, 5), generator=torch.Generator().manual_seed(seed))
    mask = torch.ones_like(prompt)
    beams, alpha = 2 + seed % 4, (1.0, 0.0)[seed % 2]
    expected = reference(theirs, beams, 25, alpha, prompt=5, input_ids=prompt, attention_mask=mask)
    options = {"tokens": 25, "beams": beams, "boundary": BOUNDARY, "length_penalty": alpha}
    same(beam_search(ours, prompt, penalty="power", **options), expected)
