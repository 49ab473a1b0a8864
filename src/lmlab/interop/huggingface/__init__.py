"""Models to and from the folders of Hugging Face `transformers`, which is not needed for it.

A folder has `config.json`, safetensors and a tokenizer. Their meaning is in one table per family, in
`families/`, and is read in both directions. A folder that we write has besides an `lmlab.json` with what
theirs cannot say, so that a run comes back bit by bit.
"""

from __future__ import annotations

from lmlab.interop.huggingface.exporting import export_run
from lmlab.interop.huggingface.importing import import_run, read_checkpoint, read_model

__all__ = ["export_run", "import_run", "read_checkpoint", "read_model"]
