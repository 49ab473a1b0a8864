"""lmlab: train and compare language models. Nothing heavy is imported before it is used."""

from __future__ import annotations

TYPE_CHECKING = False  # as typing's own, which takes a while to import: Ctrl-C would find nobody to catch it
__version__ = "0.5.0"
__all__ = ["LanguageModel", "finetune", "load"]

if TYPE_CHECKING:
    from typing import Any

    from lmlab.language_model import LanguageModel, load
    from lmlab.transfer.finetune import finetune


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


def __getattr__(name: str) -> Any:
    """Import what users hold only when they reach for it (PEP 562)."""
    if name == "finetune":
        from lmlab.transfer.finetune import finetune

        return finetune
    if name in __all__:
        from lmlab import language_model

        return getattr(language_model, name)
    raise AttributeError(f"module 'lmlab' has no attribute {name!r}")
