"""What only the compiled form reads. This module is never compiled itself.

`mypyc_attr(acyclic=True)` says that no instance of a class can refer back to itself: the compiled
form then frees it by reference counts alone and the garbage collector never walks it. The search
makes thousands. The plain form ignores it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

__all__ = ["mypyc_attr"]

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr
else:
    T = TypeVar("T")

    def mypyc_attr(**_: object) -> Callable[[T], T]:
        """The class as it is."""
        return lambda cls: cls
