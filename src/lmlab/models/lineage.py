"""The lineage: one record for each system, with its presets and the defaults that suit it. No model is imported.

A model's class knows none of these: objective, tokenizer and training are choices of a recipe, for which the record
has the usual ones. What a user gives always comes first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from lmlab.messages import suggest

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class TaskDefaults:
    """How a system is fine-tuned on a task."""

    frame: Mapping[str, str]
    """Special tokens around one text or two, for each input: see tokenizers/frames.py."""
    pool: str = "last"
    """Which vector represents a whole text: cls (the first), last, mean or concat."""
    activation: str | None = None
    """Activation of the dense layer before a classifier's last layer; None: there is no such layer."""
    hidden: int | None = None
    """Width of that dense layer; None: as wide as its input."""
    bias: bool = True
    """Whether a classifier's last layer has a bias."""
    segment: int | None = None
    """For a stateful model: tokens of a long text read at once; gradients stop between segments."""
    training: Settings = field(default_factory=dict)
    """Settings of `train` that differ from the usual ones of fine-tuning."""


LEFT_TO_RIGHT = {"tokens": "boundary a"}
SENTENCES = {"tokens": "cls:0 a:0 sep:0 b:1 sep:1"}
SOURCE_AND_TARGET = {"source": "a boundary", "tokens": "start b boundary"}

LAST_VECTOR = TaskDefaults(frame={"tokens": "boundary a [boundary b] boundary"})
CLS_VECTOR = TaskDefaults(frame=SENTENCES, pool="cls", activation="tanh")
ENCODER_MEAN = TaskDefaults(frame={"source": "a boundary b boundary"}, pool="mean")

ADAMW: Settings = {"optimizer": "adamw", "schedule": "cosine", "batch": 16, "clip": 1.0, "decay": 0.01}
"""What most systems are trained with; each adds its learning rate."""


@dataclass(frozen=True)
class System:
    """One row of the lineage: what a system is, its presets, and the defaults that suit it."""

    name: str
    where: str  # "module:Class"
    year: int
    paper: str
    summary: str
    does: tuple[str, ...] = ("next token", "vectors")
    """What it can do (names of abilities.ABILITIES), in its smallest size; the first is what it is known for."""
    trained_by: Literal["gradient", "counting"] = "gradient"
    sizes: Mapping[str, Settings] = field(default_factory=lambda: {"small": {}})
    """Presets of Config fields: those for a CPU, then those of the paper under the names that it gave them."""
    default_size: str = "small"
    """The preset that is used unless the user names another; it trains on a CPU."""
    objective: Settings = field(default_factory=lambda: {"kind": "causal"})
    tokenizer: str | None = "bpe:4096"
    """None for a model that reads no text."""
    frame: Mapping[str, str] = field(default_factory=lambda: LEFT_TO_RIGHT)
    """Special tokens around a text in pre-training, for each input: see tokenizers/frames.py."""
    training: Settings = field(default_factory=dict)
    """Settings of `train` in pre-training."""
    tuned_width: int | None = None
    """The width at which the learning rate was tuned; a wider network learns with smaller steps (runs/recipe.py)."""
    continued: Settings = field(default_factory=dict)
    """Settings of `train` that differ where it starts from the weights of a run, on other text."""
    task: TaskDefaults = LAST_VECTOR

    def preset(self, size: str | None = None) -> dict[str, Any]:
        """The settings of a size, or of the default one; a ValueError names the sizes that there are."""
        size = size or self.default_size
        if size not in self.sizes:
            raise ValueError(f"unknown size {size!r} of {self.name}{suggest(size, self.sizes)}")
        return dict(self.sizes[size])


TINY: Settings = {"width": 64, "heads": 2, "layers": 2, "window": 64, "dropout": 0.0}
SMALL: Settings = {"width": 128, "heads": 4, "layers": 4, "window": 128, "dropout": 0.0}
MEDIUM: Settings = {"width": 256, "heads": 8, "layers": 6, "window": 256, "dropout": 0.1}
BERT_BASE: Settings = {"width": 768, "heads": 12, "layers": 12, "window": 512, "dropout": 0.1}
BERT_LARGE: Settings = {"width": 1024, "heads": 16, "layers": 24, "window": 512, "dropout": 0.1}
XL_TINY: Settings = {"width": 64, "heads": 2, "layers": 2, "inner": 256, "memory": 64, "dropout": 0.0}
XL_SMALL: Settings = {"width": 128, "heads": 4, "layers": 4, "inner": 512, "memory": 128, "dropout": 0.0}
RECURRENT: Mapping[str, Settings] = {
    "tiny": {"width": 128, "hidden": 128, "layers": 1, "tied": True},
    "small": {"width": 256, "hidden": 256, "layers": 2, "tied": True, "dropout": 0.1},
    "base": {"width": 512, "hidden": 512, "layers": 2, "tied": True, "dropout": 0.2},
}
FILTERS = [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024], [8, 2048]]
SPELLED_TINY: Settings = {"width": 64, "cells": 128, "filters": [[1, 16], [2, 32], [3, 48], [4, 32]], "highways": 1}
SPELLED_SMALL: Settings = {"width": 128, "cells": 512, "dropout": 0.1}
SPELLED_BASE: Settings = {
    **{"width": 256, "cells": 1024, "filters": FILTERS[:5]},
    **{"highways": 2, "dropout": 0.1, "samples": 4096},
}
PENN_TREEBANK: Settings = {"width": 400, "hidden": 1150, "layers": 3, "reset_probability": 0.0}
ULMFIT: Settings = {
    **{"rate": 4e-3, "schedule": "slanted", "warmup": 0, "layer_decay": 1 / 2.6},
    **{"optimizer": "adamw", "beta1": 0.7, "beta2": 0.99},
}
"""Howard & Ruder 2018, sections 3.2 and 4.1: a slanted triangle, rates that fall from layer to layer."""
TRANSLATION: Settings = {
    **{"optimizer": "adam", "rate": 1e-3, "beta2": 0.98, "clip": 1.0},
    **{"schedule": "inverse-sqrt", "warmup": 400},
}


def _llama(width: int, heads: int, layers: int, inner: int) -> dict[str, Any]:
    """A size of LLaMA's paper (table 2), with its window and an output layer of its own."""
    values = {"width": width, "heads": heads, "key_value_heads": heads, "layers": layers, "inner": inner}
    return {**values, "window": 2048, "tied": False, "epsilon": 1e-6}


ROWS = (
    System(
        "ngram",
        "lmlab.models.ngram:NGram",
        1998,
        "Chen & Goodman 1998",
        "smoothed n-gram counts",
        does=("next token",),
        trained_by="counting",
        sizes={"tiny": {"order": 3}, "small": {"order": 5}, "base": {"order": 6}, "large": {"order": 9}},
    ),
    System(
        "nplm",
        "lmlab.models.nplm:NPLM",
        2003,
        "Bengio et al. 2003",
        "feed-forward network over the embeddings of n-1 words",
        sizes={
            "tiny": {"order": 5, "width": 32, "hidden": 64, "dropout": 0.0},
            "small": {"order": 6, "width": 64, "hidden": 256, "dropout": 0.1},
            "base": {"order": 8, "width": 128, "hidden": 512, "dropout": 0.2},
            "brown": {"order": 5, "width": 30, "hidden": 100},  # MLP10 of the paper's table 1
            "brown-direct": {"order": 5, "width": 60, "hidden": 50, "direct": True},  # MLP3
        },
        training={**ADAMW, "rate": 1.6e-2, "window": 64},
        tuned_width=32,
    ),
    System(
        "rnn",
        "lmlab.models.rnn:RNN",
        2010,
        "Elman 1990, Mikolov et al. 2010",
        "simple recurrent network",
        sizes=RECURRENT,
        training={**ADAMW, "rate": 8e-3, "window": 64},
        tuned_width=128,
    ),
    System(
        "bow",
        "lmlab.models.bow:BagOfWords",
        2011,
        "continuous bag of words",
        "mean of the word embeddings so far, ignores order",
        sizes={
            "tiny": {"width": 64, "hidden": 64, "window": 64},
            "small": {"width": 256, "hidden": 256, "window": 64},
            "base": {"width": 512, "hidden": 512, "window": 128, "dropout": 0.1},
        },
        training={**ADAMW, "rate": 1.6e-2},
        tuned_width=64,
    ),
    System(
        "lstm",
        "lmlab.models.lstm:LSTM",
        2012,
        "Hochreiter & Schmidhuber 1997",
        "recurrent network with gated memory cells",
        sizes={
            **RECURRENT,
            "medium": {"width": 650, "hidden": 650, "layers": 2, "dropout": 0.5},  # Zaremba et al. 2014
            "large": {"width": 1500, "hidden": 1500, "layers": 2, "dropout": 0.65},
        },
        training={**ADAMW, "rate": 1.6e-2, "window": 64},
        tuned_width=128,
    ),
    System(
        "word2vec",
        "lmlab.models.word2vec:Word2Vec",
        2013,
        "Mikolov et al. 2013",
        "one vector for each word, from the words around it: skip-gram and CBOW",
        does=("neighbours", "vectors"),
        sizes={"tiny": {"width": 32}, "small": {"width": 100}, "google-news": {"width": 300}},
        objective={"kind": "negative_sampling"},
        tokenizer="words:20000,min=5",
        frame={"tokens": "a"},
        training={
            **{"optimizer": "adagrad", "rate": 0.1, "decay": 0.0, "clip": None, "schedule": "linear", "floor": 0.01},
            **{"batch": 16, "window": 128},
        },
        task=TaskDefaults(frame={"tokens": "a [boundary b]"}, pool="mean"),
    ),
    System(
        "gru",
        "lmlab.models.gru:GRU",
        2014,
        "Cho et al. 2014",
        "recurrent network with update and reset gates",
        sizes=RECURRENT,
        training={**ADAMW, "rate": 1.6e-2, "window": 64},
        tuned_width=128,
    ),
    System(
        "seq2seq",
        "lmlab.models.seq2seq:Seq2Seq",
        2015,
        "Sutskever et al. 2014, Bahdanau et al. 2015",
        "recurrent encoder–decoder with attention, for translation",
        does=("target text", "vectors"),
        sizes={
            "tiny": {"width": 64, "hidden": 64},
            "small": {"width": 256, "hidden": 256, "dropout": 0.2},
            "base": {"width": 512, "hidden": 512, "layers": 2, "dropout": 0.3},
            "sutskever": {"width": 1000, "hidden": 1000, "layers": 4, "bidirectional": False, "attention": "none"},
            "rnnsearch": {"cell": "gru", "width": 620, "hidden": 1000, "encoder_hidden": 1000, "attention": "additive"},
            "luong": {
                **{"width": 1000, "hidden": 1000, "layers": 4, "bidirectional": False, "attention": "multiplicative"},
                **{"feeding": True, "dropout": 0.2},
            },
        },
        objective={"kind": "seq2seq"},
        tokenizer="bpe:8192",
        frame=SOURCE_AND_TARGET,
        training={"optimizer": "adam", "rate": 2e-3, "schedule": "cosine", "clip": 1.0},
        task=ENCODER_MEAN,
    ),
    System(
        "lm-1b",
        "lmlab.models.lm_1b:LM1B",
        2016,
        "Jozefowicz et al. 2016",
        "LSTM with projections over words read by their letters, sampled softmax",
        sizes={
            "tiny": SPELLED_TINY,
            "small": SPELLED_SMALL,
            "base": {**SPELLED_BASE, "layers": 2},
            "big": {
                **{"width": 1024, "cells": 8192, "layers": 2, "filters": FILTERS},
                **{"highways": 2, "dropout": 0.25, "samples": 8192},
            },
        },
        tokenizer="spelled:10000",
        training={**ADAMW, "rate": 4e-3, "window": 32},
        tuned_width=64,
    ),
    System(
        "awd-lstm",
        "lmlab.models.awd_lstm:AWDLSTM",
        2017,
        "Merity et al. 2018",
        "LSTM with dropped weights, words and vectors; the model of ULMFiT",
        sizes={
            "tiny": {
                **{"width": 128, "hidden": 256, "layers": 2, "dropout": 0.1, "input_dropout": 0.1},
                **{"hidden_dropout": 0.1, "embedding_dropout": 0.02, "weight_dropout": 0.1},
            },
            "small": {
                **{"width": 200, "hidden": 400, "layers": 3, "dropout": 0.2, "input_dropout": 0.2},
                **{"hidden_dropout": 0.1, "embedding_dropout": 0.05, "weight_dropout": 0.2},
            },
            "penn-treebank": PENN_TREEBANK,
            "wikitext-2": {**PENN_TREEBANK, "input_dropout": 0.65},
        },
        objective={"kind": "causal", "activation": 2.0, "temporal": 1.0},
        training={**ADAMW, "rate": 1.6e-2, "window": 70, "order": "varied"},
        tuned_width=128,
        continued=ULMFIT,
        task=replace(
            LAST_VECTOR, pool="concat", activation="relu", hidden=50, segment=70, training={**ULMFIT, "rate": 1e-2}
        ),
    ),
    System(
        "attention-lm",
        "lmlab.models.attention_lm:AttentionLM",
        2017,
        "Vaswani et al. 2017",
        "from one attention layer to a Transformer block, step by step",
        sizes={
            "tiny": {"width": 64, "inner": 64, "window": 64, "positions": "learned"},
            "small": {"width": 128, "heads": 4, "inner": 512, "window": 128, "positions": "learned", "tricks": "post"},
            "base": {
                **{"width": 256, "heads": 4, "layers": 4, "inner": 1024, "window": 256, "positions": "sinusoidal"},
                **{"tricks": "pre"},
            },
        },
        training={**ADAMW, "rate": 8e-3, "warmup": 100},
        tuned_width=64,
    ),
    System(
        "transformer",
        "lmlab.models.transformer:Transformer",
        2017,
        "Vaswani et al. 2017",
        "Transformer encoder–decoder, for translation",
        does=("target text", "vectors"),
        sizes={
            "tiny": {"width": 64, "heads": 2, "layers": 2, "inner": 256},
            "small": {"width": 256, "heads": 4, "layers": 3, "inner": 1024},
            "base": {"width": 512, "heads": 8, "layers": 6, "inner": 2048},
            "big": {"width": 1024, "heads": 16, "layers": 6, "inner": 4096, "dropout": 0.3},
        },
        objective={"kind": "seq2seq", "smoothing": 0.1},
        tokenizer="bpe:8192",
        frame=SOURCE_AND_TARGET,
        training=TRANSLATION,
        task=ENCODER_MEAN,
    ),
    System(
        "elmo",
        "lmlab.models.elmo:Elmo",
        2018,
        "Peters et al. 2018",
        "forward and backward LSTM language models over letters, for vectors in context",
        does=("both directions", "vectors"),
        sizes={
            "tiny": SPELLED_TINY,
            "small": SPELLED_SMALL,
            "base": SPELLED_BASE,
            "original": {
                **{"width": 512, "cells": 4096, "filters": FILTERS[:7], "highways": 2, "dropout": 0.1},
                **{"samples": 8192, "clip": 3.0},
            },
        },
        objective={"kind": "bidirectional"},
        tokenizer="spelled:10000",
        frame={"tokens": "start a boundary"},
        training={**ADAMW, "rate": 4e-3, "window": 32},
        tuned_width=64,
        task=TaskDefaults(frame={"tokens": "start a [boundary b] boundary"}, pool="mean"),
    ),
    System(
        "gpt",
        "lmlab.models.gpt:GPT",
        2018,
        "Radford et al. 2018",
        "Transformer decoder, post-norm",
        sizes={
            **{"tiny": TINY, "small": SMALL, "base": MEDIUM},
            "117M": {"width": 768, "heads": 12, "layers": 12, "window": 512, "dropout": 0.1},
        },
        training={**ADAMW, "rate": 2e-3, "warmup": 100},
        tuned_width=64,
        task=replace(LAST_VECTOR, bias=False),  # P(y | x) = softmax(h W_y), section 3.2
    ),
    System(
        "bert",
        "lmlab.models.bert:Bert",
        2018,
        "Devlin et al. 2019",
        "bidirectional Transformer encoder, masked language model",
        does=("blanks", "pairs", "vectors"),
        sizes={"tiny": TINY, "small": SMALL, "medium": MEDIUM, "base": BERT_BASE, "large": BERT_LARGE},
        objective={"kind": "masked", "pairs": "next-sentence"},
        tokenizer="wordpiece:4096",
        frame=SENTENCES,
        training={**ADAMW, "rate": 2e-3, "schedule": "linear", "warmup": 100},
        tuned_width=64,
        task=CLS_VECTOR,
    ),
    System(
        "mbert",
        "lmlab.models.bert:Bert",
        2018,
        "Devlin et al. 2018, release notes",
        "multilingual BERT with one shared vocabulary",
        does=("blanks", "pairs", "vectors"),
        sizes={"tiny": TINY, "small": SMALL, "medium": MEDIUM, "base": BERT_BASE},
        objective={"kind": "masked", "pairs": "next-sentence"},
        tokenizer="wordpiece:8192,cased",
        frame=SENTENCES,
        training={**ADAMW, "rate": 2e-3, "schedule": "linear", "warmup": 100},
        tuned_width=64,
        task=CLS_VECTOR,
    ),
    System(
        "gpt2",
        "lmlab.models.gpt2:GPT2",
        2019,
        "Radford et al. 2019",
        "Transformer decoder, pre-norm",
        sizes={
            **{"tiny": TINY, "small": SMALL, "base": MEDIUM},
            "124M": {"width": 768, "heads": 12, "layers": 12, "window": 1024, "dropout": 0.1},
            "355M": {"width": 1024, "heads": 16, "layers": 24, "window": 1024, "dropout": 0.1},
            "774M": {"width": 1280, "heads": 20, "layers": 36, "window": 1024, "dropout": 0.1},
            "1.5B": {"width": 1600, "heads": 25, "layers": 48, "window": 1024, "dropout": 0.1},
        },
        training={**ADAMW, "rate": 4e-3, "warmup": 100, "decay": 0.1},
        tuned_width=64,
        task=replace(LAST_VECTOR, bias=False),
    ),
    System(
        "transformer-xl",
        "lmlab.models.transformer_xl:TransformerXL",
        2019,
        "Dai et al. 2019",
        "Transformer decoder with segment recurrence and relative positions",
        sizes={
            **{"tiny": XL_TINY, "small": XL_SMALL},
            "base": {"width": 256, "heads": 8, "layers": 6, "inner": 1024, "memory": 256, "dropout": 0.1},
            "standard": {"width": 410, "heads": 10, "layers": 16, "inner": 2100, "memory": 150, "softmax": "adaptive"},
        },
        training={**ADAMW, "rate": 4e-3, "warmup": 100, "window": 64, "clip": 0.25},
        tuned_width=64,
    ),
    System(
        "xlnet",
        "lmlab.models.xlnet:XLNet",
        2019,
        "Yang et al. 2019",
        "Transformer-XL that predicts tokens in any order, from both sides",
        does=("blanks", "next token", "any order", "vectors"),
        sizes={
            "tiny": {**XL_TINY, "initial": "half-scaled"},
            "small": {**XL_SMALL, "initial": "half-scaled"},
            "mini": {"width": 256, "heads": 4, "layers": 4, "inner": 1024, "memory": 128, "initial": "half-scaled"},
            "base": {"width": 768, "heads": 12, "layers": 12, "inner": 3072, "memory": 384},
            "large": {"width": 1024, "heads": 16, "layers": 24, "inner": 4096, "memory": 384},
        },
        objective={"kind": "permutation"},
        training={**ADAMW, "rate": 4e-3, "warmup": 100, "window": 64},
        tuned_width=64,
        task=TaskDefaults(frame={"tokens": "a:0 sep:0 [b:1 sep:1] cls:2"}, activation="tanh"),
    ),
    System(
        "roberta",
        "lmlab.models.roberta:Roberta",
        2019,
        "Liu et al. 2019",
        "BERT with dynamic masking, without next-sentence prediction",
        does=("blanks", "vectors"),
        sizes={"tiny": TINY, "small": SMALL, "medium": MEDIUM, "base": BERT_BASE, "large": BERT_LARGE},
        objective={"kind": "masked", "pairs": "none"},
        frame=SENTENCES,
        training={**ADAMW, "rate": 2e-3, "schedule": "linear", "warmup": 100},
        tuned_width=64,
        task=replace(CLS_VECTOR, frame={"tokens": "cls a sep [sep b sep]"}),
    ),
    System(
        "xlm-r",
        "lmlab.models.roberta:Roberta",
        2019,
        "Conneau et al. 2020",
        "multilingual RoBERTa with one shared vocabulary",
        does=("blanks", "vectors"),
        sizes={"tiny": TINY, "small": SMALL, "medium": MEDIUM, "base": BERT_BASE, "large": BERT_LARGE},
        objective={"kind": "masked", "pairs": "none"},
        tokenizer="unigram:8192",
        frame=SENTENCES,
        training={**ADAMW, "rate": 2e-3, "schedule": "linear", "warmup": 100},
        tuned_width=64,
        task=replace(CLS_VECTOR, frame={"tokens": "cls a sep [sep b sep]"}),
    ),
    System(
        "albert",
        "lmlab.models.albert:Albert",
        2019,
        "Lan et al. 2020",
        "BERT with factorised embeddings and shared layers",
        does=("blanks", "pairs", "vectors"),
        sizes={
            "tiny": {**TINY, "embedding_width": 32},
            "small": {**SMALL, "embedding_width": 64},
            "medium": {**MEDIUM, "embedding_width": 128},
            "base": BERT_BASE,
            "large": BERT_LARGE,
            "xlarge": {"width": 2048, "heads": 16, "layers": 24, "window": 512, "dropout": 0.1},
            "xxlarge": {"width": 4096, "heads": 64, "layers": 12, "window": 512, "dropout": 0.0},
        },
        objective={"kind": "masked", "pairs": "sentence-order"},
        tokenizer="unigram:4096",
        frame=SENTENCES,
        training={**ADAMW, "rate": 2e-3, "schedule": "linear", "warmup": 100},
        tuned_width=64,
        task=CLS_VECTOR,
    ),
    System(
        "bart",
        "lmlab.models.bart:Bart",
        2019,
        "Lewis et al. 2020",
        "Transformer encoder–decoder that reconstructs corrupted text",
        does=("target text", "vectors"),
        sizes={
            "tiny": {"width": 64, "heads": 2, "layers": 2, "inner": 256, "window": 128},
            "small": {"width": 256, "heads": 4, "layers": 3, "inner": 1024, "window": 256},
            "base": {"width": 768, "heads": 12, "layers": 6, "inner": 3072, "window": 1024},
            "large": {"width": 1024, "heads": 16, "layers": 12, "inner": 4096, "window": 1024},
        },
        objective={"kind": "denoising"},
        tokenizer="bpe:8192",
        frame=SOURCE_AND_TARGET,
        training={**TRANSLATION, "optimizer": "adamw", "decay": 0.01},
        task=ENCODER_MEAN,
    ),
    System(
        "electra",
        "lmlab.models.electra:Electra",
        2020,
        "Clark et al. 2020",
        "replaced-token detection: a generator replaces tokens, a discriminator finds them",
        does=("blanks", "replaced tokens", "vectors"),
        sizes={
            "tiny": {**TINY, "embedding_width": 32, "generator": 0.5, "initial": "scaled"},
            "mini": {**SMALL, "embedding_width": 64, "generator": 0.5, "initial": "scaled"},
            "small": {
                **{"width": 256, "heads": 4, "layers": 12, "window": 512},
                **{"embedding_width": 128, "generator": 0.25},
            },
            "base": {"width": 768, "heads": 12, "layers": 12, "window": 512, "generator": 1 / 3},
            "large": {"width": 1024, "heads": 16, "layers": 24, "window": 512, "generator": 0.25},
        },
        default_size="mini",  # the paper's `small` is no small model on a CPU
        objective={"kind": "replaced"},
        tokenizer="wordpiece:4096",
        frame=SENTENCES,
        training={**ADAMW, "rate": 2e-3, "schedule": "linear", "warmup": 100},
        tuned_width=64,
        task=replace(CLS_VECTOR, activation="gelu"),
    ),
    System(
        "reformer",
        "lmlab.models.reformer:Reformer",
        2020,
        "Kitaev et al. 2020",
        "Transformer decoder for long texts: hashed attention, reversible layers",
        sizes={
            "tiny": {
                **{"width": 64, "heads": 2, "layers": 2, "inner": 256, "window": 128},
                **{"chunk": 16, "local_chunk": 16, "hashes": 2, "dropout": 0.0},
            },
            "small": {"width": 128, "heads": 4, "layers": 4, "inner": 512, "window": 1024, "dropout": 0.0},
            "base": {"width": 256, "heads": 4, "layers": 6, "inner": 1024, "window": 4096},
            "crime": {
                **{"width": 256, "heads": 2, "head_width": 64, "layers": 6, "inner": 512, "window": 2**19, "hashes": 1},
                **{"axial_shape": [512, 1024], "axial_widths": [64, 192], "dropout": 0.05},
            },
            "enwik8": {
                **{"width": 1024, "heads": 8, "layers": 12, "inner": 4096, "window": 2**16, "hashes": 4, "chunk": 256},
                **{"local_chunk": 128, "attention": ["local", "local", "lsh", "local"]},
                **{"axial_shape": [128, 512], "axial_widths": [256, 768], "dropout": 0.2},
            },
        },
        training={**ADAMW, "rate": 4e-3, "warmup": 100},
        tuned_width=64,
    ),
    System(
        "llama",
        "lmlab.models.llama:Llama",
        2023,
        "Touvron et al. 2023",
        "GPT-2 with RMSNorm, RoPE, SwiGLU and grouped-query attention",
        sizes={
            "tiny": {"width": 64, "heads": 2, "key_value_heads": 1, "layers": 2, "inner": 176, "window": 64},
            "small": {"width": 128, "heads": 4, "key_value_heads": 2, "layers": 4, "inner": 352, "window": 128},
            "base": {"width": 256, "heads": 8, "key_value_heads": 4, "layers": 6, "inner": 688, "window": 256},
            "7B": _llama(4096, 32, 32, 11008),
            "13B": _llama(5120, 40, 40, 13824),
            "33B": _llama(6656, 52, 60, 17920),
            "65B": _llama(8192, 64, 80, 22016),
            "70B": {**_llama(8192, 64, 80, 28672), "key_value_heads": 8, "window": 4096},  # Llama 2
        },
        training={**ADAMW, "rate": 4e-3, "warmup": 100, "decay": 0.1},
        tuned_width=64,
        task=replace(LAST_VECTOR, bias=False),  # as nowhere in this model
    ),
)
LINEAGE: dict[str, System] = {system.name: system for system in ROWS}
"""Every language model by name, in the order of the years."""

ARCHITECTURES: dict[str, System] = {
    "tagger": System(
        "tagger",
        "lmlab.models.tagger:Tagger",
        2016,
        "Lample et al. 2016, Ma & Hovy 2016",
        "bidirectional LSTM over words and their letters, for tagging",
        does=("vectors",),
        sizes={
            "tiny": {"width": 32, "hidden": 32, "filters": 20, "character_width": 16},
            "small": {"width": 100, "hidden": 150, "filters": 50},
            "ma-hovy": {"width": 100, "hidden": 200, "filters": 30},
        },
        tokenizer=None,
        frame={"tokens": "a"},
        training={
            **{"optimizer": "adamw", "rate": 2e-3, "beta2": 0.999, "decay": 0.0, "clip": 5.0, "batch": 16},
            **{"schedule": "linear", "floor": 0.05, "warmup": 0},
        },
        task=TaskDefaults(frame={"tokens": "a"}, pool="mean"),
    )
}
"""Networks that are trained from scratch on the labelled examples of a task (lmlab finetune)."""
