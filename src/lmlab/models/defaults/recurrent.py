"""Recurrent networks: RNN, LSTM, GRU, and the systems built on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lmlab.models.defaults.system import ADAMW, LAST_VECTOR, Settings, System, TaskDefaults

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

RECURRENT_NETWORKS = (
    System(
        "rnn",
        "lmlab.models.rnn:RNN",
        2010,
        "Elman 1990, Mikolov et al. 2010",
        "simple recurrent network",
        builds_on=("nplm",),
        sizes=RECURRENT,
        training={**ADAMW, "rate": 8e-3, "window": 64},
        tuned_width=128,
    ),
    System(
        "lstm",
        "lmlab.models.lstm:LSTM",
        2012,
        "Hochreiter & Schmidhuber 1997",
        "recurrent network with gated memory cells",
        builds_on=("rnn",),
        sizes={
            **RECURRENT,
            "medium": {"width": 650, "hidden": 650, "layers": 2, "dropout": 0.5},  # Zaremba et al. 2014
            "large": {"width": 1500, "hidden": 1500, "layers": 2, "dropout": 0.65},
        },
        training={**ADAMW, "rate": 1.6e-2, "window": 64},
        tuned_width=128,
    ),
    System(
        "gru",
        "lmlab.models.gru:GRU",
        2014,
        "Cho et al. 2014",
        "recurrent network with update and reset gates",
        builds_on=("lstm",),
        sizes=RECURRENT,
        training={**ADAMW, "rate": 1.6e-2, "window": 64},
        tuned_width=128,
    ),
    System(
        "lm-1b",
        "lmlab.models.lm_1b:LM1B",
        2016,
        "Jozefowicz et al. 2016",
        "LSTM with projections over words read by their letters, sampled softmax",
        builds_on=("lstm",),
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
        builds_on=("lstm",),
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
        "elmo",
        "lmlab.models.elmo:Elmo",
        2018,
        "Peters et al. 2018",
        "forward and backward LSTM language models over letters, for vectors in context",
        builds_on=("lm-1b",),
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
)

TAGGER = System(
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
