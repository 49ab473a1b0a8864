"""Models of speech: they read recordings and write their text."""

from __future__ import annotations

from lmlab.models.defaults.system import ENCODER_MEAN, Settings, System


def _whisper(width: int, heads: int, layers: int, *, mels: int = 80, decoder_layers: int | None = None) -> Settings:
    """A published size (Radford et al. 2022, table 1): windows of 30 seconds, 448 target tokens."""
    values = {"width": width, "heads": heads, "layers": layers, "inner": 4 * width, "mels": mels, "dropout": 0.0}
    return {**values, "decoder_layers": decoder_layers or layers}


SPEECH = (
    System(
        "whisper",
        "lmlab.models.whisper:Whisper",
        2022,
        "Radford et al. 2022",
        "Transformer encoder–decoder from the spectrogram of a recording to its text",
        builds_on=("transformer",),
        does=("transcripts", "target text", "vectors"),
        sizes={
            "nano": {"width": 64, "heads": 2, "layers": 2, "inner": 256, "window": 448},
            "small-scale": {"width": 144, "heads": 4, "layers": 4, "decoder_layers": 2, "inner": 576},
            "tiny": _whisper(384, 6, 4),
            "base": _whisper(512, 8, 6),
            "small": _whisper(768, 12, 12),
            "medium": _whisper(1024, 16, 24),
            "large": _whisper(1280, 20, 32),
            "large-v3": _whisper(1280, 20, 32, mels=128),
            "large-v3-turbo": _whisper(1280, 20, 32, mels=128, decoder_layers=4),
        },
        default_size="small-scale",
        objective={"kind": "transcription", "smoothing": 0.1, "ctc": 0.5},
        reads=("speech",),
        tokenizer="bytes",
        frame={"tokens": "start b boundary"},
        training={
            **{"optimizer": "adamw", "rate": 1e-3, "beta2": 0.98, "clip": 1.0, "decay": 0.01},
            **{"schedule": "cosine", "warmup": 100, "batch": 8},
        },
        task=ENCODER_MEAN,
    ),
)
