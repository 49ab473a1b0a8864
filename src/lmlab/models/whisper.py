"""Whisper: a Transformer that reads the spectrogram of a recording and writes its text.

Radford et al. 2022, "Robust Speech Recognition via Large-Scale Weak Supervision", section 2.2.

    x = GELU(Conv(log-mel));  x = GELU(Conv of stride 2 (x)) + sinusoids
    encoder, each block: x = x + Attention(LN(x));  x = x + FeedForward(LN(x));  after the last: x = LN(x)
    y = E(target so far) + learnt positions
    decoder, each block: y = y + CausalAttention(LN(y));  y = y + Attention(LN(y) to x);  y = y + FeedForward(LN(y))
    P(next) = softmax(E LN(y))

New against the Transformer of 2017: two convolutions in place of source embeddings, pre-norm, GELU, learnt positions of
the target, and keys without a bias. Shapes: B batch, M mel bands, F frames, S = F / 2 positions, T target tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self, cast

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from lmlab.layers.attention.beams import Slots
from lmlab.layers.attention.multi_head import Encoded
from lmlab.layers.dropout import Dropout
from lmlab.layers.kernels.linear import Linear, linear
from lmlab.layers.kernels.packing import pack_tokens
from lmlab.layers.padding import NoPadding, Padding
from lmlab.layers.positions import LearnedPositions, check_window
from lmlab.layers.softmax import Softmax
from lmlab.layers.watching import record_layer, watching_layers
from lmlab.models.abilities import State
from lmlab.models.flops import row_lengths
from lmlab.models.model import EncoderDecoder, ModelConfig, Output, by_depth
from lmlab.models.states import Decoding
from lmlab.models.transformer import (
    DecoderBlock,
    EncodedSource,
    PreNormDecoderBlock,
    PreNormEncoderBlock,
    Source,
    StacksConfig,
    initialise,
)


class WhisperConfig(StacksConfig):
    """The size of a Whisper, and what its published weights say about decoding."""

    mels: int = Field(80, ge=1, description="mel bands of the spectrogram")
    frames: int = Field(3000, ge=2, description="the most spectrogram frames of a recording; 100 are one second")
    window: int = Field(448, ge=2, description="context length: the most tokens of a target")
    activation: Literal["relu", "gelu", "silu"] = Field(
        "gelu", description="activation function of the feed-forward layers"
    )
    norm: Literal["post", "pre"] = Field("pre", description="only pre-norm: LayerNorm before each sublayer")
    scale: bool = Field(False, description="multiply embeddings by the square root of the width")
    suppress: list[int] = Field([], description="tokens that are never written, such as names of sounds")
    suppress_first: list[int] = Field([], description="tokens that are not written first: the space and the end")
    alignment_heads: list[list[int]] | None = Field(
        None, description="[block, head] pairs whose cross-attention gives word timings; None: the upper half"
    )

    @classmethod
    def from_corpus(cls, corpus: Any) -> dict[str, Any]:
        """The vocabulary, and the bands and frames of the corpus' sound processor."""
        return {**super().from_corpus(corpus), "mels": corpus.media.mels, "frames": corpus.media.frames}

    @model_validator(mode="after")
    def _heads_exist(self) -> Self:
        if self.norm != "pre":
            raise ValueError("norm = 'post': Whisper is pre-norm; leave it out")
        blocks = self.decoder_layers or self.layers
        for pair in self.alignment_heads or []:
            if len(pair) != 2 or not (0 <= pair[0] < blocks and 0 <= pair[1] < self.heads):
                raise ValueError(f"alignment_heads has {pair}: give [block, head] pairs of {blocks} × {self.heads}")
        for token in (*self.suppress, *self.suppress_first):
            if not 0 <= token < self.vocabulary:
                raise ValueError(f"suppress has the token {token}, and the vocabulary has {self.vocabulary}")
        return self


class KeysWithoutBias(Linear):
    """The matrices of queries (if any), keys and values as one product; b has no entries for the keys.

    q·(k + b) = q·k + q·b, and a term that is the same for all keys changes no weight of the softmax.
    """

    def __init__(self, width: int, parts: int) -> None:
        super().__init__(width, parts * width)
        self.bias = nn.Parameter(torch.zeros((parts - 1) * width))

    def forward(self, x: Tensor) -> Tensor:
        before, values = self.bias[: -self.in_features], self.bias[-self.in_features :]
        whole = torch.cat((before, torch.zeros_like(values), values))
        return linear(x, self.weight, whole, self.prepared)


class EncoderBlock(PreNormEncoderBlock):
    """x = x + Attention(LN(x)); x = x + FeedForward(LN(x))."""

    def __init__(self, config: StacksConfig) -> None:
        super().__init__(config)
        self.attention.query_key_value = KeysWithoutBias(config.width, 3)


class WritingBlock(PreNormDecoderBlock):
    """y = y + CausalAttention(LN(y)); y = y + Attention(LN(y) to the sound); y = y + FeedForward(LN(y))."""

    def __init__(self, config: StacksConfig) -> None:
        super().__init__(config)
        self.attention.query_key_value = KeysWithoutBias(config.width, 3)
        self.cross_attention.key_value = KeysWithoutBias(config.width, 2)


class SoundEncoder(nn.Module):
    """Two convolutions, fixed positions, blocks and a norm."""

    positions: Tensor

    def __init__(self, config: WhisperConfig) -> None:
        super().__init__()
        self.first = nn.Conv1d(config.mels, config.width, kernel_size=3, padding=1)
        self.second = nn.Conv1d(config.width, config.width, kernel_size=3, stride=2, padding=1)
        self.register_buffer("positions", sinusoids(math.ceil(config.frames / 2), config.width))
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(EncoderBlock(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)

    def embed(self, sound: Tensor, lengths: Tensor | None) -> Tensor:
        """Spectrograms [B, M, F] -> vectors [B, S, D]; frames from `lengths` on count as if they were not there."""
        sound = sound.to(self.first.weight.dtype)
        if lengths is None:
            x = F.gelu(self.first(sound))
        else:
            past = torch.arange(sound.shape[2], device=sound.device) >= lengths[:, None]
            x = F.gelu(self.first(sound.masked_fill(past[:, None], 0))).masked_fill(past[:, None], 0)
        x = F.gelu(self.second(x)).transpose(1, 2)
        return cast(Tensor, self.dropout(x + self.positions[: x.shape[1]]))


class TextDecoder(nn.Module):
    """Learnt positions, blocks and a norm."""

    def __init__(self, config: WhisperConfig) -> None:
        super().__init__()
        self.positions = LearnedPositions(config.window, config.width)
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(WritingBlock(config) for _ in range(config.decoder_layers or config.layers))
        self.norm = nn.LayerNorm(config.width)


class Whisper(EncoderDecoder):
    """An encoder of sound and a decoder of text."""

    Config: ClassVar[type[ModelConfig]] = WhisperConfig
    main_input: ClassVar[str] = "sound"

    config: WhisperConfig

    def __init__(self, config: WhisperConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.encoder = SoundEncoder(config)
        self.decoder = TextDecoder(config)
        self.output = Softmax(config.width, config.vocabulary, bias=False, tied=self.embedding)
        self.apply(initialise)

    @property
    def window(self) -> int:
        return self.config.window

    @property
    def source_window(self) -> int:
        """The most frames of a recording."""
        return self.config.frames

    def blank_inputs(self, rows: int, window: int) -> dict[str, Tensor]:
        sound = torch.zeros(rows, self.config.mels, self._frames_of(window), device=self.device)
        return {"sound": sound, "tokens": torch.zeros(rows, window, dtype=torch.long, device=self.device)}

    def encode(self, *, sound: Tensor, lengths: Tensor | None = None) -> EncodedSource:
        """Spectrograms [B, M, F], row i of lengths[i] frames -> the keys and values of every decoder block."""
        x, padding = self._read(sound, lengths)
        keys_values = (cast(DecoderBlock, block).cross_attention.remember(x, padding) for block in self.decoder.blocks)
        return EncodedSource(tuple(keys_values), _mask_of(padding))

    def _read(self, sound: Tensor, lengths: Tensor | None) -> tuple[Tensor, Padding]:
        check_sound(sound, self.config)
        embedded = self.encoder.embed(sound, lengths)
        padding = pack_tokens(embedded[:, :, 0], None if lengths is None else (lengths + 1) // 2)
        x = padding.pack(embedded)
        for block in self.encoder.blocks:
            record_layer(x, unpack=padding.unpack)
            x = block(x, padding)
        x = cast(Tensor, self.encoder.norm(x))
        record_layer(x, unpack=padding.unpack)
        return x, padding

    def layers(self, **inputs: Any) -> list[Tensor]:
        """Those of the encoder alone: no keys and values for a decoder are made."""
        with watching_layers() as layers:
            self._read(inputs["sound"], inputs.get("lengths"))
        return layers

    def forward(
        self,
        tokens: Tensor,
        *,
        sound: Tensor | None = None,
        lengths: Tensor | None = None,
        target_lengths: Tensor | None = None,
        state: State = None,
    ) -> Output:
        start = 0 if state is None else state.decoder.length
        check_window(start, tokens.shape[1], self.config.window)
        padding = pack_tokens(tokens, target_lengths) if state is None else NoPadding()
        positions = padding.position_vectors(self.decoder.positions(start, tokens.shape[1]))
        y = self.decoder.dropout(self.embedding(padding.pack(tokens)) + positions)
        if state is None:
            if sound is None:
                raise ValueError("Whisper needs a recording: give sound=, or a state from begin()")
            x, sources = self._read(sound, lengths)
            known: Sequence[Source] = [Encoded(x, sources)] * len(self.decoder.blocks)
            mask = _mask_of(sources)
            slots: list[Slots] | list[None] = [None] * len(self.decoder.blocks)
        else:
            known, mask = state.encoded
            cache, slots = state.decoder.advance(tokens.shape[1], sources=len(state.encoded.keys_values[0]))
            state = Decoding(state.encoded, cache)
        for block, each, own in zip(self.decoder.blocks, known, slots, strict=True):
            y = block(y, padding, each, mask, own)
        return Output(padding.unpack(self.decoder.norm(y)), state)

    def begin(self, encoded: EncodedSource, *, beams: int = 1) -> Decoding:
        return encoded.begin(beams=beams)

    def timing_heads(self) -> list[tuple[int, int]]:
        """Those of the settings; without them all heads of the upper half of the decoder."""
        blocks, heads = len(self.decoder.blocks), self.config.heads
        if self.config.alignment_heads is not None:
            return [(block, head) for block, head in self.config.alignment_heads]
        return [(block, head) for block in range(blocks // 2, blocks) for head in range(heads)]

    def depths(self) -> list[list[nn.Parameter]]:
        """The convolutions are read as the embeddings of the sound; the decoder's blocks are above the encoder's."""
        tables = (self.embedding, self.encoder.first, self.encoder.second, self.decoder.positions)
        stages = [[block] for side in (self.encoder, self.decoder) for block in side.blocks]
        stages[len(self.encoder.blocks) - 1].append(self.encoder.norm)
        stages[-1].append(self.decoder.norm)
        return by_depth(self, tables, *stages)

    def body_flops(self, window: int, *, fraction: float = 1.0, memory_length: int = 0) -> float:
        """Of the encoder for each of `window` positions, which are two frames each."""
        return self._encoder_flops(2 * window, window, window * window) / window

    def pair_flops(self, source: int, target: int) -> float:
        """Of a recording of `source` frames and a target of `target` tokens."""
        S = math.ceil(source / 2)
        return self._encoder_flops(source, S, S * S) + self.config.decoder_flops(S, target, target * (target + S))

    def pretraining_flops(self, window: int, *, predicted: float = 1.0) -> float:
        """Per target token, where the longest text has the longest recording, and others in proportion."""
        return self.pair_flops(self._frames_of(window), window) / window + self.head_flops()

    def _frames_of(self, tokens: int) -> int:
        return max(2, min(self.config.frames, math.ceil(self.config.frames * tokens / self.config.window)))

    def reading_flops(
        self, inputs: Mapping[str, Tensor], *, positions: int | None = None, memory_length: int = 0
    ) -> float:
        if "tokens" in inputs:
            return self.writing_flops(inputs)
        rows, _, frames = inputs["sound"].shape
        return self._encoder_flops(rows * frames, self._positions(inputs), rows * math.ceil(frames / 2) ** 2)

    def writing_flops(self, inputs: Mapping[str, Tensor]) -> float:
        """The convolutions and attention compute padding, the rest does not."""
        rows, T = inputs["tokens"].shape
        S, target = math.ceil(inputs["sound"].shape[2] / 2), sum(row_lengths(inputs, lengths="target_lengths"))
        sound = {name: value for name, value in inputs.items() if name != "tokens"}
        return self.reading_flops(sound) + self.config.decoder_flops(
            self._positions(inputs), target, rows * T * (T + S)
        )

    def _positions(self, inputs: Mapping[str, Tensor]) -> int:
        """The number of encoder positions of all recordings of a batch, without padding."""
        rows, _, frames = inputs["sound"].shape
        lengths = inputs["lengths"].tolist() if "lengths" in inputs else [frames] * rows
        return sum(math.ceil(length / 2) for length in lengths)

    def _encoder_flops(self, frames: int, positions: int, pairs: int) -> float:
        """Of F frames, S positions and P pairs of a query and a key, with widths d, f (inner) and m (mels).

        The convolutions: 6F(md + d²/2). Each block: S(8d² + 4df) + 4Pd.
        """
        d, m = float(self.config.width), self.config.mels
        convolutions = 6 * frames * m * d + 6 * math.ceil(frames / 2) * d * d
        return convolutions + self.config.encoder_flops(positions, pairs)


def check_sound(sound: Tensor, config: WhisperConfig) -> None:
    """A ValueError where spectrograms have other bands than the model, or more frames than it has positions for."""
    if sound.ndim != 3 or sound.shape[1] != config.mels:
        raise ValueError(f"spectrograms of shape {list(sound.shape)}: this model reads [B, {config.mels}, F]")
    if sound.shape[2] > config.frames:
        raise ValueError(
            f"a recording of {sound.shape[2]} frames: this model reads at most {config.frames}; cut it into windows"
        )


def _mask_of(padding: Padding) -> Tensor | None:
    """[B, 1, 1, S], False at padding; None where there is none."""
    return None if padding.mask is None else padding.mask[:, None, None]


def sinusoids(length: int, width: int) -> Tensor:
    """[sin(p ω_i); cos(p ω_i)] with ω_i = 10000^(−i / (d/2 − 1)), as in the published code."""
    if width % 2 or width < 4:
        raise ValueError(f"model.width = {width}: the encoder's positions need an even width of at least 4")
    speeds = torch.exp(torch.arange(width // 2) * (-math.log(10000.0) / (width // 2 - 1)))
    angles = torch.arange(length)[:, None] * speeds
    return torch.cat((angles.sin(), angles.cos()), dim=1)
