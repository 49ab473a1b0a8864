"""Comparisons under equal conditions; `lmlab.compare(…)` runs one.

The package has the name of its function, and importing a part of it makes it an attribute of `lmlab`. So the package
itself can be called.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lmlab.compare.comparison import Published


class CallablePackage(ModuleType):
    """A package that can be called: `lmlab.compare("book.txt", output="compared")`."""

    def __call__(self, *args: Any, **options: Any) -> Published:
        from lmlab.compare.compare_models import compare_models

        return compare_models(*args, **options)


sys.modules[__name__].__class__ = CallablePackage
