"""Memory kept between steps: glibc gives large buffers back to the system after each use, and asks for them again."""

from __future__ import annotations

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


def keep_buffers() -> bool:
    """Tell glibc to keep freed memory for the next step; False where there is no glibc."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        library = ctypes.CDLL(None)
        return bool(library.mallopt(M_MMAP_THRESHOLD, 2**30) and library.mallopt(M_TRIM_THRESHOLD, 2**31 - 1))
    except (OSError, AttributeError):
        return False
