"""Transcription: the alignment loss against the sum over all paths, and the control that ignores the sound."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

from lmlab.data.loaders.recordings import SpeechRows
from lmlab.models.whisper import Whisper, WhisperConfig
from lmlab.objectives.objective import IGNORE
from lmlab.objectives.transcription import Transcription, TranscriptionConfig

BLANK = 0


def make() -> Whisper:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"width": 8, "heads": 2, "layers": 1, "inner": 16, "mels": 4, "frames": 12, "window": 9}
    model = Whisper(WhisperConfig(vocabulary=4, dropout=0.0, **sizes)).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return model


def rows(prompt: int = 1) -> SpeechRows:
    """Texts 1 2 and 3 3 between boundaries, of 8 and 10 frames."""
    sound = np.random.default_rng(0).normal(size=(2, 4, 10)).astype(np.float32)
    before = [[BLANK] * prompt] * 2
    target = np.concatenate([np.array(before), np.array([[1, 2, BLANK], [3, 3, BLANK]])], axis=1)
    return SpeechRows(sound, np.array([8, 10]), target, np.array([2 + prompt, 2 + prompt]), prompt)


def text_of(path: tuple[int, ...]) -> list[int]:
    """Repeated tokens once, then without blanks."""
    return [token for token, _ in itertools.groupby(path) if token != BLANK]


@pytest.mark.parametrize("prompt", [1, 3])
@torch.no_grad()
def test_the_alignment_loss_is_the_sum_over_all_paths(prompt: int) -> None:
    model, objective = make(), Transcription(TranscriptionConfig(ctc=0.5, masks=0))
    raw = rows(prompt)
    found = objective.loss(model, {}, objective.batch(raw)).sums["ctc"]
    expected = 0.0
    for row, (text, positions) in enumerate((([1, 2], 4), ([3, 3], 5))):
        sound = torch.from_numpy(raw.sound[row : row + 1, :, : 2 * positions])
        logs = model.logits(model.layers(sound=sound)[-1])[0].double().log_softmax(-1)
        paths = itertools.product(range(4), repeat=positions)
        total = sum(
            math.exp(sum(float(logs[place, token]) for place, token in enumerate(path)))
            for path in paths
            if text_of(path) == text
        )
        expected -= math.log(total)
    assert float(found) == pytest.approx(expected, rel=1e-4)


def test_it_is_a_term_of_the_loss_and_of_its_cost() -> None:
    model = make()
    plain, both = (Transcription(TranscriptionConfig(ctc=weight, masks=0)) for weight in (0.0, 0.5))
    assert plain.loss_weights == {"target": 1.0}
    assert both.loss_weights == {"target": 1.0, "ctc": 0.5}
    batch = both.batch(rows())
    more = both.batch_flops(model, batch) - plain.batch_flops(model, batch)
    assert more == 3 * 2 * 5 * model.head_flops()
    both.loss(model.train(), {}, batch).sums["ctc"].backward()
    assert all(parameter.grad is not None for parameter in model.encoder.parameters())


def test_the_control_reads_silence() -> None:
    """All recordings are the same for it; the usual objective keeps them, and masks parts of them in training."""
    silent, usual = (Transcription(TranscriptionConfig(silent=value)) for value in (True, False))
    raw = rows()
    assert not silent.batch(raw).inputs["sound"].any()
    assert torch.equal(usual.batch(raw).inputs["sound"], torch.from_numpy(raw.sound))
    masked = usual.mask(torch.from_numpy(raw.sound), torch.from_numpy(raw.lengths))
    assert 0 < int((masked == 0).sum()) <= masked.numel()


def test_only_tokens_of_the_text_are_replaced():
    """Rows: two marks, then three tokens of text; the second target is the first that is predicted."""
    tokens = torch.tensor([[1, 2, 10, 11, 12]]).repeat(2000, 1)
    targets = torch.tensor([[IGNORE, 10, 11, 12, 1]]).repeat(2000, 1)
    torch.manual_seed(0)
    noisy = Transcription(TranscriptionConfig(token_noise=0.3)).replace_tokens(tokens, targets, vocabulary=1000)
    assert noisy.shape == tokens.shape
    changed = (noisy != tokens).float().mean(0)
    assert changed[:2].tolist() == [0, 0]
    assert ((changed[2:] - 0.3).abs() < 0.05).all()
    assert int(noisy.max()) > 900
    assert not torch.equal(noisy[:1000], noisy[1000:])


def test_without_noise_nothing_is_replaced():
    tokens = torch.arange(20).view(2, 10)
    kept = Transcription(TranscriptionConfig()).replace_tokens(tokens, tokens, vocabulary=50)
    assert torch.equal(kept, tokens)
