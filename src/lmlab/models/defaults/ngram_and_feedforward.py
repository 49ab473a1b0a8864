"""Models without recurrence or attention: n-gram counts, feed-forward networks, word vectors."""

from __future__ import annotations

from lmlab.models.defaults.system import ADAMW, System, TaskDefaults

NGRAM_AND_FEEDFORWARD = (
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
        builds_on=("ngram",),
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
        "bow",
        "lmlab.models.bow:BagOfWords",
        2011,
        "continuous bag of words",
        "mean of the word embeddings so far, ignores order",
        builds_on=("nplm",),
        sizes={
            "tiny": {"width": 64, "hidden": 64, "window": 64},
            "small": {"width": 256, "hidden": 256, "window": 64},
            "base": {"width": 512, "hidden": 512, "window": 128, "dropout": 0.1},
        },
        training={**ADAMW, "rate": 1.6e-2},
        tuned_width=64,
    ),
    System(
        "word2vec",
        "lmlab.models.word2vec:Word2Vec",
        2013,
        "Mikolov et al. 2013",
        "one vector for each word, from the words around it: skip-gram and CBOW",
        builds_on=("nplm", "bow"),
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
)
