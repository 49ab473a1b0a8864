"""Runs of Whisper with random weights and the marks of a published model, and a recording for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tokenizers as hf
import torch

from lmlab.data.readers.media import Sound
from lmlab.models.whisper import Whisper, WhisperConfig
from lmlab.runs.model_files import model_tensors, write_config
from lmlab.runs.storage import write_manifest, write_tensors
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.processors.sounds import SoundProcessor
from lmlab.tokenizers.speech_tokens import speech_frame

MARKS = (
    *("<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|de|>", "<|translate|>", "<|transcribe|>"),
    *("<|startoflm|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>"),
)
TIMES = 101
SOUND = Sound(np.random.default_rng(0).normal(0, 0.1, 16000).astype(np.float32), 8000)


def write_run(run: Path, *, multilingual: bool) -> Path:
    """A run with random weights and the marks of a published model, whose windows are two seconds long."""
    alphabet = sorted(hf.pre_tokenizers.ByteLevel.alphabet())
    engine = hf.Tokenizer(hf.models.BPE({sign: number for number, sign in enumerate(alphabet)}, []))
    engine.pre_tokenizer = hf.pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = hf.decoders.ByteLevel()
    engine.add_special_tokens(list(MARKS))
    tokenizer = Tokenizer(engine, boundary="<|endoftext|>", split_special_tokens=False)
    vocabulary = 256 + len(MARKS) + TIMES
    sizes = {
        "vocabulary": vocabulary,
        "width": 16,
        "heads": 2,
        "layers": 2,
        "decoder_layers": 1,
        "inner": 24,
        "mels": 8,
    }
    decoding = {"suppress": [3, 5], "suppress_first": [220, 256], "alignment_heads": [[0, 1]]}
    torch.manual_seed(0)
    model = Whisper(WhisperConfig(**sizes, **decoding, frames=200, window=24, dropout=0.0))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    run.mkdir()
    write_tensors(run / "model.safetensors", model_tensors(model))
    write_config(run, "whisper", model.config.model_dump())
    tokenizer.save(run / "tokenizer.json")
    speech_frame(tokenizer, multilingual=multilingual).save(run)
    SoundProcessor(mels=8, seconds=2.0).save(run / "processor.json")
    write_manifest(run)
    return run
