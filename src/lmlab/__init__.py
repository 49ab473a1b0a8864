"""lmlab: train and compare language models.

`load`, `train`, `finetune` and `compare` are the functions of the command line; `LanguageModel` is a loaded run.
Nothing heavy is imported before it is used.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing is slow to import, and nobody catches Ctrl-C before `main`
__version__ = "0.6.0"
__all__ = ["LanguageModel", "compare", "finetune", "load", "train"]

if TYPE_CHECKING:
    from typing import Any

    from lmlab.comparison.compare import compare
    from lmlab.language_model import LanguageModel, load
    from lmlab.runs.train import train
    from lmlab.transfer.finetune import finetune

_MODULES = {
    "LanguageModel": "lmlab.language_model",
    "load": "lmlab.language_model",
    "train": "lmlab.runs.train",
    "compare": "lmlab.comparison.compare",
    "finetune": "lmlab.transfer.finetune",
}


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is used (PEP 562)."""
    import importlib

    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    from lmlab.messages import suggest_near

    raise AttributeError(f"module 'lmlab' has no attribute {name!r}{suggest_near(name, __all__)}")
