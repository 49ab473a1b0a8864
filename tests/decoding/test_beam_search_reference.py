"""Beam search against `generate(num_beams=k)` of transformers, for models converted from there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from lmlab.decoding.beam_search import beam_search
from lmlab.interop.huggingface import read_model

transformers = pytest.importorskip("transformers")

BOUNDARY, PAD, VOCABULARY = 2, 1, 23
READY = 3.5
"""By how much the score of the boundary is raised."""


def shaken(model: Any, seed: int) -> Any:
    """The model with random weights that are large enough for texts to differ."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.data.normal_(std=0.3, generator=generator)
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


def same(found: Any, expected: Any) -> bool:
    """Whether texts ended at different places, which makes the comparison worth something; it must hold anyway."""
    for ours, theirs in zip(found, expected, strict=True):
        assert [hypothesis.tokens for hypothesis in ours] == [text for text, _ in theirs]
        assert [hypothesis.score for hypothesis in ours] == pytest.approx([score for _, score in theirs], abs=2e-4)
    return len({len(text) for each in expected for text, _ in each if text[-1] == BOUNDARY}) > 1


def ours_of(theirs: Any, folder: Path) -> Any:
    """Their model converted into ours."""
    theirs.save_pretrained(folder)
    return read_model(folder).eval()


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_a_left_to_right_model_finds_what_transformers_finds(alpha: float, tmp_path: Path) -> None:
    telling = 0
    for seed in range(12):
        theirs, beams = make_gpt2(seed), 2 + seed % 4
        prompt = torch.randint(3, VOCABULARY, (3, 4), generator=torch.Generator().manual_seed(seed))
        mask = torch.ones_like(prompt)
        expected = reference(theirs, beams, 20, alpha, prompt=4, input_ids=prompt, attention_mask=mask)
        model = ours_of(theirs, tmp_path)
        options = {"tokens": 20, "beams": beams, "boundary": BOUNDARY, "length_penalty": alpha}
        telling += same(beam_search(model, prompt, penalty="power", **options), expected)
    assert telling >= 8


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_an_encoder_decoder_finds_what_transformers_finds(alpha: float, tmp_path: Path) -> None:
    telling = 0
    for seed in range(12):
        theirs, beams, generator = make_bart(seed), 2 + seed % 4, torch.Generator().manual_seed(seed)
        source, lengths = torch.randint(3, VOCABULARY, (4, 7), generator=generator), torch.tensor([7, 3, 5, 1])
        mask = (torch.arange(7) < lengths[:, None]).long()
        no_repeat, shortest = (0, 2, 3)[seed % 3], seed % 4
        settings = {"no_repeat_ngram_size": no_repeat, "min_new_tokens": shortest}
        expected = reference(
            theirs, beams, 20, alpha, prompt=1, input_ids=source, attention_mask=mask, settings=settings
        )
        model = ours_of(theirs, tmp_path)
        with torch.inference_mode():
            found = beam_search(
                model,
                torch.full((4, 1), BOUNDARY),
                tokens=20,
                beams=beams,
                boundary=BOUNDARY,
                length_penalty=alpha,
                penalty="power",
                no_repeat=no_repeat,
                shortest=shortest,
                state=model.begin(model.encode(source=source, lengths=lengths)),
            )
        telling += same(found, expected)
    assert telling >= 8


def test_one_beam_is_their_greedy_search(tmp_path: Path) -> None:
    for seed in range(6):
        theirs, generator = make_bart(50 + seed), torch.Generator().manual_seed(seed)
        source = torch.randint(3, VOCABULARY, (5, 6), generator=generator)
        model = ours_of(theirs, tmp_path)
        out = theirs.generate(source, max_new_tokens=15, do_sample=False, num_beams=1, eos_token_id=BOUNDARY)
        expected = [row[: row.index(BOUNDARY) + 1] if BOUNDARY in row else row for row in out[:, 1:].tolist()]
        with torch.inference_mode():
            state = model.begin(model.encode(source=source))
            found = beam_search(model, torch.full((5, 1), BOUNDARY), tokens=15, beams=1, boundary=BOUNDARY, state=state)
        assert [each[0].tokens for each in found] == expected
