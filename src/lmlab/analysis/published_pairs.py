"""What others found on minimal pairs, to stand beside our own figures; accuracies.

BLiMP: Warstadt et al. 2020, means over the paradigms of the results that the authors published with the data (5-gram,
LSTM of Gulordava et al. 2018, Transformer-XL, GPT-2 large). Agreement: the authors' output for English (Gulordava et
al. 2018; the best LSTM, simple RNN and 5-gram LSTM that they published).
"""

from __future__ import annotations

Published = dict[str, dict[str, float]]
"""By phenomenon (or "" for all pairs) and system."""

_BLIMP = {
    "": (0.612, 0.698, 0.696, 0.830),
    "anaphor_agreement": (0.479, 0.917, 0.941, 0.993),
    "argument_structure": (0.719, 0.732, 0.722, 0.818),
    "binding": (0.644, 0.735, 0.747, 0.809),
    "control_raising": (0.685, 0.670, 0.715, 0.819),
    "determiner_noun_agreement": (0.701, 0.854, 0.830, 0.958),
    "ellipsis": (0.369, 0.676, 0.772, 0.894),
    "filler_gap_dependency": (0.602, 0.739, 0.666, 0.813),
    "irregular_forms": (0.795, 0.891, 0.782, 0.919),
    "island_effects": (0.572, 0.466, 0.483, 0.727),
    "npi_licensing": (0.455, 0.517, 0.552, 0.768),
    "quantifiers": (0.535, 0.645, 0.693, 0.790),
    "subject_verb_agreement": (0.603, 0.801, 0.760, 0.864),
}
_AGREEMENT = {"original": (0.805, 0.732, 0.707), "nonsense": (0.718, 0.642, 0.566)}

PUBLISHED: dict[str, Published] = {
    "BLiMP": {
        name: dict(zip(("5-gram", "LSTM", "Transformer-XL", "GPT-2 large"), row, strict=True))
        for name, row in _BLIMP.items()
    },
    "Gulordava": {
        name: dict(zip(("LSTM", "simple RNN", "5-gram LSTM"), row, strict=True)) for name, row in _AGREEMENT.items()
    },
}
SOURCES = {
    "BLiMP": "published: Warstadt et al. 2020 (their models read far more text)",
    "Gulordava": "published: Gulordava et al. 2018, their models of 80 million words of Wikipedia",
}
