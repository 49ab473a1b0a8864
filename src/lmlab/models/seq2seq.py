"""Sequence to sequence: one recurrent net reads the source, another writes the target from where the first ended.

Sutskever et al. 2014, "Sequence to Sequence Learning with Neural Networks"; with attention Bahdanau et al. 2015,
"Neural Machine Translation by Jointly Learning to Align and Translate", in the order of Luong et al. 2015, "Effective
Approaches to Attention-based Neural Machine Translation":

    h_i = Encoder(x_1 … x_n)_i            s_0 = h_n, or tanh(W [→h_n; ←h_1])
    s_t = Decoder(y_t, s_{t−1})           with input feeding Decoder([y_t; h̃_{t−1}], s_{t−1})
    a_t = Σ_i softmax_i(score(s_t, h_i)) h_i
    h̃_t = tanh(Wc [a_t; s_t])
    P(y_{t+1} | y_1 … y_t, x) = softmax(V h̃_t + c)

Without attention h̃_t = s_t: all that the decoder knows of the source has to fit into s_0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from lmlab.layers.alignment import ALIGNMENTS, Alignment
from lmlab.layers.dropout import Dropout
from lmlab.layers.kernels.linear import Linear
from lmlab.layers.padding import PaddingMask, has_padding
from lmlab.layers.recurrent import ElmanLayer, GRULayer, Layer, LayerState, LSTMLayer, RecurrentStack
from lmlab.layers.recurrent_encoder import RecurrentEncoder
from lmlab.layers.softmax import Softmax
from lmlab.layers.watching import record_layer, watching_layers
from lmlab.models.abilities import State
from lmlab.models.flops import row_lengths
from lmlab.models.model import EncoderDecoder, ModelConfig, Output, TokenModelConfig, by_depth
from lmlab.models.states import Decoding, map_state, rows_of

CELLS: dict[str, type[Layer]] = {"rnn": ElmanLayer, "gru": GRULayer, "lstm": LSTMLayer}


class Seq2SeqConfig(TokenModelConfig):
    """Settings of a recurrent encoder-decoder."""

    source_vocabulary: int | None = Field(
        None, ge=2, description="vocabulary size of the source, if it has its own tokenizer; None: shared"
    )
    cell: Literal["rnn", "gru", "lstm"] = Field("lstm", description="recurrent cell of encoder and decoder")
    width: int = Field(256, ge=1, description="embedding size: width of the token vectors")
    hidden: int = Field(256, ge=1, description="hidden size: width of the decoder's states")
    encoder_hidden: int | None = Field(
        None, ge=1, description="hidden size of the encoder per direction; None: both directions together have `hidden`"
    )
    layers: int = Field(1, ge=1, description="recurrent layers of the encoder, and of the decoder")
    bidirectional: bool = Field(True, description="bidirectional encoder")
    attention: Literal["none", "dot", "multiplicative", "additive"] = Field(
        "multiplicative", description="attention score of a decoder state s and a source state h: sᵀh, sᵀWh, vᵀtanh(…)"
    )
    feeding: bool = Field(
        False, description="input feeding: the decoder also reads its previous attention output; slower"
    )
    sampling: float = Field(
        0.0,
        ge=0,
        le=1,
        description="scheduled sampling: fraction of the model's own predictions as decoder inputs in training; slower",
    )
    dropout: float = Field(
        0.0, ge=0, lt=1, description="dropout probability, on all connections except the recurrent ones"
    )
    tied: bool = Field(False, description="weight tying: the output layer shares the target embeddings' matrix")

    @model_validator(mode="after")
    def _widths_fit(self) -> Seq2SeqConfig:
        if self.bidirectional and self.encoder_hidden is None and self.hidden % 2:
            raise ValueError(f"hidden = {self.hidden} cannot be split between two directions; give an even number")
        if self.attention == "dot" and self.encoded != self.hidden:
            raise ValueError(
                f"dot attention needs encoder and decoder states of equal width, not {self.encoded} and {self.hidden}: "
                f"omit encoder_hidden, or set attention = 'multiplicative'"
            )
        if self.feeding and self.attention == "none":
            raise ValueError("input feeding needs attention; choose an attention, or set feeding = false")
        return self

    @property
    def reader(self) -> int:
        """Width of the encoder's states in each direction."""
        return self.encoder_hidden or self.hidden // (2 if self.bidirectional else 1)

    @property
    def encoded(self) -> int:
        """Width of what the encoder says of each token."""
        return self.reader * (2 if self.bidirectional else 1)


class EncodedSource(NamedTuple):
    """What the decoder knows of the sources."""

    first: tuple[LayerState, ...]  # its own states before the first token, [B, H] for each layer
    values: Tensor | None = None  # h [B, S, M]; None without attention
    keys: Tensor | None = None  # what the scores need of h [B, S, ·]
    mask: Tensor | None = None  # [B, 1, S], False at padding


class Writing(NamedTuple):
    """Where the decoder is."""

    states: tuple[LayerState, ...]  # of each layer
    fed: Tensor | None  # with input feeding, the last h̃ [B, D]


class Bridge(nn.Module):
    """From where the encoder ended to where the decoder begins, when their states have not the same form.

    h_0 = tanh(W [→h; ←h]) as in Bahdanau et al. 2015, and of an LSTM c_0 = W' [→c; ←c].
    """

    def __init__(self, config: Seq2SeqConfig) -> None:
        super().__init__()
        self.hidden = Linear(config.encoded, config.hidden)
        self.cell = Linear(config.encoded, config.hidden) if config.cell == "lstm" else None

    def forward(self, end: LayerState) -> LayerState:
        if self.cell is None:
            return torch.tanh(self.hidden(end))
        h, c = end
        return torch.tanh(self.hidden(h)), self.cell(c)


class Seq2Seq(EncoderDecoder):
    """Encoder, bridge, decoder, attention, softmax."""

    Config: ClassVar[type[ModelConfig]] = Seq2SeqConfig

    config: Seq2SeqConfig
    output: Softmax

    def __init__(self, config: Seq2SeqConfig) -> None:
        super().__init__()
        self.config = config
        layer = CELLS[config.cell]
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.source_embedding: nn.Embedding | None = None
        if config.source_vocabulary is not None:
            self.source_embedding = nn.Embedding(config.source_vocabulary, config.width)
        self.dropout = Dropout(config.dropout)
        self.encoder = RecurrentEncoder(
            layer,
            width=config.width,
            hidden=config.reader,
            layers=config.layers,
            bidirectional=config.bidirectional,
            dropout=config.dropout,
        )
        out = config.width if config.tied else config.hidden
        self.bridge = nn.ModuleList()
        if config.bidirectional or config.encoded != config.hidden:
            self.bridge.extend(Bridge(config) for _ in range(config.layers))
        self.decoder = RecurrentStack(
            layer,
            width=config.width + (out if config.feeding else 0),
            hidden=config.hidden,
            layers=config.layers,
            dropout=config.dropout,
        )
        self.alignment: Alignment | None = None
        self.combination: nn.Module = nn.Identity()
        if config.attention != "none":
            self.alignment = ALIGNMENTS[config.attention](config.hidden, config.encoded)
            self.combination = nn.Sequential(Linear(config.encoded + config.hidden, out, bias=False), nn.Tanh())
        elif config.hidden != out:
            self.combination = Linear(config.hidden, out, bias=False)
        self.output = Softmax(out, config.vocabulary, tied=self.embedding if config.tied else None)
        for table in (self.embedding, self.source_embedding):
            if table is not None:
                nn.init.uniform_(table.weight, -0.1, 0.1)

    def layers(self, **inputs: Any) -> list[Tensor]:
        """Those of the encoder alone: nothing is made for a decoder."""
        source = inputs["source"]
        lengths = inputs.get("lengths")
        with watching_layers() as layers:
            self._read(source, lengths if has_padding(lengths, *source.shape) else None)
        return layers

    def _read(self, source: Tensor, lengths: Tensor | None) -> tuple[Tensor, tuple[LayerState, ...]]:
        table = self.embedding if self.source_embedding is None else self.source_embedding
        outputs, ends = self.encoder(self.dropout(table(source)), lengths)
        record_layer(*outputs)
        return outputs[-1], ends

    def encode(self, *, source: Tensor, lengths: Tensor | None = None) -> EncodedSource:
        lengths = lengths if has_padding(lengths, *source.shape) else None
        mask = None if lengths is None else PaddingMask(lengths.to(source.device), source.shape[1]).mask[:, None]
        h, ends = self._read(source, lengths)
        first = tuple(cross(end) for cross, end in zip(self.bridge, ends, strict=True)) if self.bridge else ends
        if self.alignment is None:
            return EncodedSource(first)
        return EncodedSource(first, h, self.alignment.keys(h), mask)

    def forward(
        self,
        tokens: Tensor,
        *,
        source: Tensor | None = None,
        lengths: Tensor | None = None,
        target_lengths: Tensor | None = None,
        state: State = None,
    ) -> Output:
        """Compute all target tokens at once, unless the decoder's inputs depend on its own predictions.

        How many tokens each target has makes no difference here: what comes after them is read last.
        """
        fresh = state is None
        if fresh:
            if source is None:
                raise ValueError("an encoder–decoder needs a source: give source=, or a state from begin()")
            encoded = self.encode(source=source, lengths=lengths)
            state = self.begin(encoded, beams=len(tokens) // len(source))
        encoded, writing = state
        if self.config.feeding or (self.training and self.config.sampling > 0):
            hidden, writing = self._write_by_steps(tokens, encoded, writing)
        else:
            hidden, writing = self._write(self.dropout(self.embedding(tokens)), encoded, writing)
        return Output(self.dropout(hidden), None if fresh else Decoding(encoded, writing))

    def _write(self, x: Tensor, encoded: EncodedSource, writing: Writing) -> tuple[Tensor, Writing]:
        """Vectors x [B * K, T, D] -> h̃ [B * K, T, D'] and where the decoder is then."""
        (*_, h), states = self.decoder(x, writing.states)
        if self.alignment is not None:
            assert encoded.values is not None
            assert encoded.keys is not None
            h = torch.cat([self.alignment(h, encoded.keys, encoded.values, encoded.mask), h], dim=-1)
        h = self.combination(h)
        return h, Writing(states, h[:, -1] if self.config.feeding else None)

    def _write_by_steps(self, tokens: Tensor, encoded: EncodedSource, writing: Writing) -> tuple[Tensor, Writing]:
        """What `_write` does, a token at a time, because it reads its last h̃ or its own last guess.

        Scheduled sampling (Bengio et al. 2015): in training a token is, with the probability `sampling`, replaced by
        the one that the model itself finds most probable there; what it should say next stays the same.
        """
        hidden_steps: list[Tensor] = []
        for token in tokens.unbind(1):
            if hidden_steps and self.training and self.config.sampling > 0:
                with torch.no_grad():
                    guess = self.logits(hidden_steps[-1][:, 0]).argmax(-1)
                token = torch.where(torch.rand(token.shape, device=token.device) < self.config.sampling, guess, token)
            x = self.dropout(self.embedding(token))
            x = x if writing.fed is None else torch.cat([x, writing.fed], dim=-1)
            hidden, writing = self._write(x[:, None], encoded, writing)
            hidden_steps.append(hidden)
        return torch.cat(hidden_steps, dim=1), writing

    def begin(self, encoded: EncodedSource, *, beams: int = 1) -> Decoding:
        states = encoded.first if beams == 1 else map_state(lambda s: s.repeat_interleave(beams, 0), encoded.first)
        fed = None
        if self.config.feeding:
            fed = self.output.weight.new_zeros(rows_of(states), self.output.weight.shape[1])
        return Decoding(encoded, Writing(states, fed))

    def depths(self) -> list[list[nn.Parameter]]:
        """The decoder's layers lie above those of the encoder, whose vectors they read."""
        writes = self.decoder.stages()
        writes[0] = [*self.bridge, *writes[0]]
        writes[-1] += [part for part in (self.alignment, self.combination) if part is not None]
        return by_depth(self, (self.embedding, self.source_embedding), *self.encoder.stages(), *writes)

    def body_flops(self, window: int, *, fraction: float = 1.0, memory_length: int = 0) -> float:
        """Of the encoder, which is what tasks read."""
        return self.encoder.flops()

    def pair_flops(self, source: int, target: int) -> float:
        return source * self.encoder.flops() + self._decoder_flops(source, target)

    def reading_flops(
        self, inputs: Mapping[str, Tensor], *, positions: int | None = None, memory_length: int = 0
    ) -> float:
        """The encoder computes no padding, the decoder does."""
        if "tokens" in inputs:
            return self.writing_flops(inputs)
        return sum(row_lengths(inputs, "source")) * self.encoder.flops()

    def writing_flops(self, inputs: Mapping[str, Tensor]) -> float:
        (rows, source), target = inputs["source"].shape, inputs["tokens"].shape[1]
        return sum(row_lengths(inputs, "source")) * self.encoder.flops() + rows * self._decoder_flops(source, target)

    def _decoder_flops(self, source: int, target: int) -> float:
        """Of all products between the encoder's vectors and the scores, for a pair of these lengths."""
        total = target * self.decoder.flops()
        total += 2.0 * sum(weight.numel() for weight in self.bridge.parameters() if weight.dim() == 2)
        total += 2.0 * target * sum(weight.numel() for weight in self.combination.parameters())
        return total + (self.alignment.flops(source, target) if self.alignment is not None else 0.0)
