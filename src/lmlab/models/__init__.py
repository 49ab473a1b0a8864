"""The lineage: every system by name, with its year and paper. The table imports no model."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from lmlab.names import suggest

if TYPE_CHECKING:
    from lmlab.models.model import Model


class System(NamedTuple):
    """One row of the lineage."""

    name: str
    where: str  # "module:Class"
    year: int
    paper: str
    summary: str
    does: tuple[str, ...] = ("next token", "vectors")
    """What it can do (names of abilities.ABILITIES), in its smallest size; the first is what it is known for."""


LINEAGE: dict[str, System] = {
    system.name: system
    for system in (
        System(
            "ngram",
            "lmlab.models.ngram:NGram",
            1998,
            "Chen & Goodman 1998",
            "smoothed n-gram counts",
            does=("next token",),
        ),
        System(
            "nplm",
            "lmlab.models.nplm:NPLM",
            2003,
            "Bengio et al. 2003",
            "feed-forward network over the embeddings of n-1 words",
        ),
        System("rnn", "lmlab.models.rnn:RNN", 2010, "Elman 1990, Mikolov et al. 2010", "simple recurrent network"),
        System(
            "bow",
            "lmlab.models.bow:BagOfWords",
            2011,
            "continuous bag of words",
            "mean of the word embeddings so far, ignores order",
        ),
        System(
            "lstm",
            "lmlab.models.lstm:LSTM",
            2012,
            "Hochreiter & Schmidhuber 1997",
            "recurrent network with gated memory cells",
        ),
        System(
            "word2vec",
            "lmlab.models.word2vec:Word2Vec",
            2013,
            "Mikolov et al. 2013",
            "one vector for each word, from the words around it: skip-gram and CBOW",
            does=("neighbours", "vectors"),
        ),
        System("gru", "lmlab.models.gru:GRU", 2014, "Cho et al. 2014", "recurrent network with update and reset gates"),
        System(
            "seq2seq",
            "lmlab.models.seq2seq:Seq2Seq",
            2015,
            "Sutskever et al. 2014, Bahdanau et al. 2015",
            "recurrent encoder–decoder with attention, for translation",
            does=("target text", "vectors"),
        ),
        System(
            "lm-1b",
            "lmlab.models.lm_1b:LM1B",
            2016,
            "Jozefowicz et al. 2016",
            "LSTM with projections over words read by their letters, sampled softmax",
        ),
        System(
            "awd-lstm",
            "lmlab.models.awd_lstm:AWDLSTM",
            2017,
            "Merity et al. 2018",
            "LSTM with dropped weights, words and vectors; the model of ULMFiT",
        ),
        System(
            "attention-lm",
            "lmlab.models.attention_lm:AttentionLM",
            2017,
            "Vaswani et al. 2017",
            "from one attention layer to a Transformer block, step by step",
        ),
        System(
            "transformer",
            "lmlab.models.transformer:Transformer",
            2017,
            "Vaswani et al. 2017",
            "Transformer encoder–decoder, for translation",
            does=("target text", "vectors"),
        ),
        System(
            "elmo",
            "lmlab.models.elmo:Elmo",
            2018,
            "Peters et al. 2018",
            "forward and backward LSTM language models over letters, for vectors in context",
            does=("both directions", "vectors"),
        ),
        System("gpt", "lmlab.models.gpt:GPT", 2018, "Radford et al. 2018", "Transformer decoder, post-norm"),
        System(
            "bert",
            "lmlab.models.bert:Bert",
            2018,
            "Devlin et al. 2019",
            "bidirectional Transformer encoder, masked language model",
            does=("blanks", "pairs", "vectors"),
        ),
        System(
            "mbert",
            "lmlab.models.mbert:MultilingualBert",
            2018,
            "Devlin et al. 2018, release notes",
            "multilingual BERT with one shared vocabulary",
            does=("blanks", "pairs", "vectors"),
        ),
        System("gpt2", "lmlab.models.gpt2:GPT2", 2019, "Radford et al. 2019", "Transformer decoder, pre-norm"),
        System(
            "transformer-xl",
            "lmlab.models.transformer_xl:TransformerXL",
            2019,
            "Dai et al. 2019",
            "Transformer decoder with segment recurrence and relative positions",
        ),
        System(
            "xlnet",
            "lmlab.models.xlnet:XLNet",
            2019,
            "Yang et al. 2019",
            "Transformer-XL that predicts tokens in any order, from both sides",
            does=("blanks", "next token", "any order", "vectors"),
        ),
        System(
            "roberta",
            "lmlab.models.roberta:Roberta",
            2019,
            "Liu et al. 2019",
            "BERT with dynamic masking, without next-sentence prediction",
            does=("blanks", "vectors"),
        ),
        System(
            "xlm-r",
            "lmlab.models.xlm_r:XLMRoberta",
            2019,
            "Conneau et al. 2020",
            "multilingual RoBERTa with one shared vocabulary",
            does=("blanks", "vectors"),
        ),
        System(
            "albert",
            "lmlab.models.albert:Albert",
            2019,
            "Lan et al. 2020",
            "BERT with factorised embeddings and shared layers",
            does=("blanks", "pairs", "vectors"),
        ),
        System(
            "bart",
            "lmlab.models.bart:Bart",
            2019,
            "Lewis et al. 2020",
            "Transformer encoder–decoder that reconstructs corrupted text",
            does=("target text", "vectors"),
        ),
        System(
            "electra",
            "lmlab.models.electra:Electra",
            2020,
            "Clark et al. 2020",
            "replaced-token detection: a generator replaces tokens, a discriminator finds them",
            does=("blanks", "replaced tokens", "vectors"),
        ),
        System(
            "reformer",
            "lmlab.models.reformer:Reformer",
            2020,
            "Kitaev et al. 2020",
            "Transformer decoder for long texts: hashed attention, reversible layers",
        ),
        System(
            "llama",
            "lmlab.models.llama:Llama",
            2023,
            "Touvron et al. 2023",
            "GPT-2 with RMS norms, rotary positions, gated feed-forward nets and shared keys and values",
        ),
    )
}


ARCHITECTURES: dict[str, System] = {
    "tagger": System(
        "tagger",
        "lmlab.models.tagger:Tagger",
        2016,
        "Lample et al. 2016, Ma & Hovy 2016",
        "bidirectional LSTM over words and their letters, for tagging",
        does=("vectors",),
    )
}
"""Networks that are no language models: all of them is learnt from the labelled examples of a task (lmlab finetune)."""


def find(name: str) -> System:
    """The system, or the body of a task, called `name`; a ValueError names the nearest system."""
    if name in ARCHITECTURES:
        return ARCHITECTURES[name]
    if name not in LINEAGE:
        raise ValueError(f"unknown model {name!r}{suggest(name, LINEAGE)}")
    return LINEAGE[name]


def name_of(model: object) -> str:
    """What a model is called in the lineage, or as the body of a task; of any other, the name of its class."""
    cls = type(model)
    where = f"{cls.__module__}:{cls.__qualname__}"
    known = (system.name for system in (*LINEAGE.values(), *ARCHITECTURES.values()) if system.where == where)
    return next(known, cls.__name__)


def load_class(name: str) -> Any:
    """The class of the system called `name`, imported now."""
    module, _, attribute = find(name).where.partition(":")
    return getattr(importlib.import_module(module), attribute)


def create(name: str, values: dict[str, Any], *, size: str | None = None) -> Model:
    """A new model: the preset `size`, then `values` over it."""
    from lmlab.config import build

    cls = load_class(name)
    if size is not None and size not in cls.SIZES:
        raise ValueError(f"unknown size {size!r} of {name}{suggest(size, cls.SIZES)}")
    preset = cls.SIZES[size] if size is not None else {}
    model: Model = cls(build(cls.Config, {**preset, **values}, where="model"))
    return model


def outline(name: str, values: Mapping[str, Any]) -> Model:
    """The model with these settings on torch's meta device: shapes and abilities, without memory for its weights.

    What only the data know, as the size of a vocabulary, need not be given.
    """
    import torch

    with torch.device("meta"):
        return create(name, {**load_class(name).Config.UNREAD, **values})
