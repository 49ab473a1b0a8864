"""The default settings of every system: sizes (presets), objective, tokenizer, learning rate, fine-tuning.

One record for each system, in the file of its family: `bert` is in `encoders.py`. A new family is a new file and a name
in `LINEAGE` below. A model's class knows none of these settings; what a user gives always replaces them. No model is
imported here.
"""

from __future__ import annotations

from lmlab.models.defaults.captioning import CAPTIONING
from lmlab.models.defaults.decoders import DECODERS
from lmlab.models.defaults.encoder_decoders import ENCODER_DECODERS
from lmlab.models.defaults.encoders import ENCODERS
from lmlab.models.defaults.ngram_and_feedforward import NGRAM_AND_FEEDFORWARD
from lmlab.models.defaults.policies import POLICIES
from lmlab.models.defaults.recurrent import RECURRENT_NETWORKS, TAGGER
from lmlab.models.defaults.speech import SPEECH
from lmlab.models.defaults.system import LEFT_TO_RIGHT as LEFT_TO_RIGHT
from lmlab.models.defaults.system import SENTENCES as SENTENCES
from lmlab.models.defaults.system import System as System
from lmlab.models.defaults.system import TaskDefaults as TaskDefaults
from lmlab.models.defaults.vision import VISION

_FAMILIES = (
    NGRAM_AND_FEEDFORWARD,
    RECURRENT_NETWORKS,
    DECODERS,
    ENCODERS,
    ENCODER_DECODERS,
    CAPTIONING,
    VISION,
    SPEECH,
    POLICIES,
)

LINEAGE: dict[str, System] = {
    system.name: system for system in sorted((row for family in _FAMILIES for row in family), key=lambda row: row.year)
}
"""Every system by name, in the order of the years."""

ARCHITECTURES: dict[str, System] = {"tagger": TAGGER}
"""Networks that are trained from scratch on the labelled examples of a task (lmlab finetune)."""
