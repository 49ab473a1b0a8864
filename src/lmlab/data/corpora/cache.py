"""Where lmlab keeps what it can make again: `LMLAB_CACHE`, or the platform's own place for caches."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    """The folder of the cache, which is safe to delete at any time."""
    if given := os.environ.get("LMLAB_CACHE"):
        return Path(given)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "lmlab"
    if sys.platform == "win32" and (local := os.environ.get("LOCALAPPDATA")):
        return Path(local) / "lmlab" / "cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lmlab"
