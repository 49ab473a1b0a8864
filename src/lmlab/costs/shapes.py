"""Published systems: their shapes, for those that have no file yet, and what their papers say that they cost.

Formulas for a layer of width d with f inner units over T tokens (biases and norms included in the parameters):

    parameters  4d² + 4d (attention), 2df + f + d (feed-forward), 2d (each norm); cross-attention once more 4d² + 4d
    FLOPs       2 per weight and token, and 4Td for QKᵀ and its product with V
    activations (18d + 4f) · 2 bytes per token in half precision: Korthikanti et al. 2022, eq. 1, without the T × T
                weights, which fused attention does not keep
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from lmlab.config import suggest
from lmlab.costs.parameters import Parameters

MASKED = 0.15


class Shape(NamedTuple):
    """The dimensions of a Transformer."""

    source: str
    width: int
    layers: int  # of the encoder, or of a decoder alone
    inner: int
    vocabulary: int
    window: int
    positions: int  # learnt position vectors, per stack
    segments: int = 0
    decoder_layers: int = 0  # with cross-attention
    embedding_width: int = 0  # where it is not the width
    embedding_norm: bool = True
    final_norm: bool = False
    pooler: bool = False
    shared: bool = False  # all layers are one
    predicted: float = 1.0
    head: bool = False  # a dense layer before the scores, thrown away after pre-training
    generator: float = 0.0  # ELECTRA: width of the generator, as a share
    trained_window: int = 0  # mean length in training, where it is not the window

    def changed(self, settings: Mapping[str, Any]) -> Shape:
        """The shape with some dimensions replaced."""
        for key, value in settings.items():
            if key not in CHANGEABLE:
                raise ValueError(f"unknown setting model.{key}{suggest(key, CHANGEABLE)}")
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"model.{key} = {value!r}: give a whole number above 0")
        window = settings.get("window", self.window)
        positions = self.positions + window - self.window if self.positions else 0
        return self._replace(**{**settings, "positions": positions, "trained_window": 0}) if settings else self

    @property
    def mean_window(self) -> int:
        return self.trained_window or self.window

    @property
    def embedding(self) -> int:
        return self.embedding_width or self.width

    @property
    def unit(self) -> str:
        return "pair of a source and a target token" if self.decoder_layers else "token"

    def block(self) -> int:
        """Parameters of one layer, of the decoder where there is one."""
        d, f = self.width, self.inner
        return 4 * d * d + 2 * d * f + f + 9 * d + (4 * d * d + 6 * d if self.decoder_layers else 0)

    def parameters(self) -> Parameters:
        d, e = self.width, self.embedding
        stacks = 2 if self.decoder_layers else 1
        tables = self.vocabulary * e + stacks * self.positions * e + self.segments * e
        encoder = self._replace(decoder_layers=0).block()
        rest = encoder * (1 if self.shared else self.layers) + self.block() * self.decoder_layers
        rest += stacks * (2 * e * self.embedding_norm + 2 * d * self.final_norm)
        rest += (e * d + d) * (e != d) + (d * d + d) * self.pooler
        return Parameters(tables + rest, tables)

    def thrown_away(self) -> int:
        """Parameters of the heads and the generator that pre-training alone needs."""
        d, e = self.width, self.embedding
        head = d * e + 3 * e + self.vocabulary if self.head else 0
        return head if not self.generator else self._generator().parameters().non_embedding + head + d * d + d

    def forward_flops(self, window: int) -> float:
        """Per token; with a decoder per pair of a source and a target token."""
        d, f, e, V = self.width, self.inner, self.embedding, self.vocabulary
        layer = 2.0 * (4 * d * d + 2 * d * f) + 4.0 * window * d
        cross = 2.0 * 4 * d * d + 4.0 * window * d
        total = self.layers * layer + self.decoder_layers * (layer + cross) + 2.0 * e * d * (e != d)
        if self.generator:
            return total + 2.0 * d * d + self._generator().forward_flops(window)
        return total + self.predicted * 2.0 * (d * e * self.head + e * V)

    def activation_bytes(self, window: int) -> float:
        """Bytes per row that wait for the backward pass, in fp32."""
        layer = 18 * self.width + 4 * self.inner
        total = 4.0 * window * (self.layers * layer + self.decoder_layers * (layer + 13 * self.width))
        return total + (self._generator().activation_bytes(window) if self.generator else 0.0)

    def _generator(self) -> Shape:
        width = round(self.width * self.generator)
        return self._replace(
            width=width,
            inner=4 * width,
            embedding_width=self.embedding if self.embedding != width else 0,
            generator=0.0,
        )


CHANGEABLE = ("width", "layers", "inner", "vocabulary", "window", "decoder_layers", "embedding_width")


class Published(NamedTuple):
    """What a paper says, to set beside our own sum."""

    parameters: float
    source: str
    tokens: float | None = None
    flops: float | None = None  # as printed
    hardware: str | None = None
    hours: float | None = None
    by_time: bool = False  # the paper's FLOPs are time x devices x sustained rate, not a count of operations

    @property
    def seconds(self) -> float | None:
        return self.hours * 3600 if self.hours is not None else None


_VASWANI = "Vaswani et al. 2017, table 3"
_DEVLIN = "Devlin et al. 2019, section 3"
_LIU = "Liu et al. 2019 (RoBERTa), section 3"
_LAN = "Lan et al. 2020, table 1"
_CLARK = "Clark et al. 2020, table 6"
_LEWIS = "Lewis et al. 2020 (BART), section 2"
_CONNEAU = "Conneau et al. 2020 (XLM-R), section 3"
_BROWN = "Brown et al. 2020, table 2.1"


def _bert(source: str, width: int, layers: int, **more: Any) -> Shape:
    known: dict[str, Any] = {"vocabulary": 30522, "window": 512, "positions": 512, "segments": 2, "pooler": True}
    known |= {"predicted": MASKED, "head": True, "inner": 4 * width, **more}
    return Shape(source, width=width, layers=layers, **known)


def _roberta(source: str, width: int, layers: int, vocabulary: int) -> Shape:
    return _bert(source, width, layers, vocabulary=vocabulary, positions=514, segments=1)


def _albert(width: int, layers: int) -> Shape:
    return _bert(_LAN, width, layers, vocabulary=30000, embedding_width=128, shared=True)


def _gpt3(width: int, layers: int) -> Shape:
    return Shape(
        _BROWN, width, layers, 4 * width, 50257, window=2048, positions=2048, embedding_norm=False, final_norm=True
    )


def _pairs(source: str, width: int, layers: int, inner: int, vocabulary: int, window: int, **more: Any) -> Shape:
    return Shape(source, width, layers, inner, vocabulary, window, decoder_layers=layers, **more)


SHAPES: dict[str, dict[str, Shape]] = {
    "transformer": {
        # a batch held about 25,000 source and 25,000 target tokens of sentence pairs, some 30 tokens each
        "base": _pairs(_VASWANI, 512, 6, 2048, 37000, 512, positions=0, embedding_norm=False, trained_window=30),
        "big": _pairs(_VASWANI, 1024, 6, 4096, 37000, 512, positions=0, embedding_norm=False, trained_window=30),
    },
    "bert": {
        # 90% of the steps with 128 tokens and 10% with 512: 246 for the mean token
        "base": _bert(_DEVLIN, 768, 12, trained_window=246),
        "large": _bert(_DEVLIN, 1024, 24, trained_window=246),
    },
    "roberta": {"base": _roberta(_LIU, 768, 12, 50265), "large": _roberta(_LIU, 1024, 24, 50265)},
    "xlm-r": {"base": _roberta(_CONNEAU, 768, 12, 250002), "large": _roberta(_CONNEAU, 1024, 24, 250002)},
    "albert": {
        "base": _albert(768, 12),
        "large": _albert(1024, 24),
        "xlarge": _albert(2048, 24),
        "xxlarge": _albert(4096, 12),
    },
    "electra": {
        "base": _bert(_CLARK, 768, 12, pooler=False, generator=1 / 3),
        "small": _bert(_CLARK, 256, 12, pooler=False, generator=1 / 4, embedding_width=128, trained_window=128),
        "large": _bert(_CLARK, 1024, 24, pooler=False, generator=1 / 4),
    },
    "bart": {
        "base": _pairs(_LEWIS, 768, 6, 3072, 50265, 1024, positions=1026),
        "large": _pairs(_LEWIS, 1024, 12, 4096, 50265, 1024, positions=1026),
    },
    "gpt3": {
        "175B": _gpt3(12288, 96),
        "13B": _gpt3(5140, 40),
        "6.7B": _gpt3(4096, 32),
        "2.7B": _gpt3(2560, 32),
        "1.3B": _gpt3(2048, 24),
        "760M": _gpt3(1536, 24),
        "350M": _gpt3(1024, 24),
        "125M": _gpt3(768, 12),
    },
}

_BERT_TOKENS = 256 * (900_000 * 128 + 100_000 * 512)
_TABLE_D1 = "Brown et al. 2020, tables 2.1 and D.1"
PUBLISHED: dict[tuple[str, str], Published] = {
    ("transformer", "base"): Published(
        65e6, "Vaswani et al. 2017, tables 2 and 3, section 5.2", 100_000 * 25_000, 3.3e18, "p100x8", 12, by_time=True
    ),
    ("transformer", "big"): Published(
        213e6, "Vaswani et al. 2017, tables 2 and 3, section 5.2", 300_000 * 25_000, 2.3e19, "p100x8", 84, by_time=True
    ),
    ("bert", "base"): Published(
        110e6, "Devlin et al. 2019, section 3 and appendix A.2", _BERT_TOKENS, None, "tpuv2x16", 96
    ),
    ("bert", "large"): Published(
        340e6, "Devlin et al. 2019, section 3 and appendix A.2", _BERT_TOKENS, None, "tpuv2x64", 96
    ),
    ("roberta", "base"): Published(125e6, _LIU),
    ("roberta", "large"): Published(355e6, "Liu et al. 2019, section 5", 500_000 * 8192 * 512),
    ("xlm-r", "base"): Published(270e6, _CONNEAU),
    ("xlm-r", "large"): Published(550e6, _CONNEAU),
    ("albert", "base"): Published(12e6, _LAN),
    ("albert", "large"): Published(18e6, _LAN),
    ("albert", "xlarge"): Published(60e6, _LAN),
    ("albert", "xxlarge"): Published(235e6, _LAN),
    ("electra", "small"): Published(14e6, "Clark et al. 2020, table 1", 1_000_000 * 128 * 128, 1.4e18, "v100", 96),
    ("electra", "base"): Published(110e6, "Clark et al. 2020, tables 1 and 6", 766_000 * 256 * 512, 6.4e19),
    ("electra", "large"): Published(335e6, "Clark et al. 2020, tables 2 and 6", 1_750_000 * 2048 * 512, 3.1e21),
    ("bart", "base"): Published(139e6, "fairseq's release of BART"),
    ("bart", "large"): Published(406e6, "fairseq's release of BART"),
    ("gpt", "117M"): Published(117e6, "Radford et al. 2018"),
    ("gpt2", "124M"): Published(124e6, "OpenAI's release of GPT-2"),
    ("gpt2", "355M"): Published(355e6, "OpenAI's release of GPT-2"),
    ("gpt2", "774M"): Published(774e6, "OpenAI's release of GPT-2"),
    ("gpt2", "1.5B"): Published(1.5e9, "OpenAI's release of GPT-2"),
    ("gpt3", "175B"): Published(
        174.6e9, f"{_TABLE_D1}; hardware and days: Patterson et al. 2021, table 4", 300e9, 3.14e23, "v100x10000", 355.2
    ),
    ("gpt3", "13B"): Published(12.85e9, _TABLE_D1, 300e9, 2.31e22),
    ("gpt3", "6.7B"): Published(6.66e9, _TABLE_D1, 300e9, 1.20e22),
    ("gpt3", "2.7B"): Published(2.65e9, _TABLE_D1, 300e9, 4.77e21),
    ("gpt3", "1.3B"): Published(1.32e9, _TABLE_D1, 300e9, 2.38e21),
    ("gpt3", "760M"): Published(760e6, _TABLE_D1, 300e9, 1.37e21),
    ("gpt3", "350M"): Published(356e6, _TABLE_D1, 300e9, 6.41e20),
    ("gpt3", "125M"): Published(125e6, _TABLE_D1, 300e9, 2.25e20),
}
