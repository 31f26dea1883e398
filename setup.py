"""The build: plain Python, or with `TRAINJOB_ADVISOR_COMPILED=1` the planner's inner rooms in C.

mypyc compiles the same source. `framework` and `efficiency` stay as they are: the catalog reads
their annotations when it loads its tables.
"""

from __future__ import annotations

import os

from setuptools import Extension, setup

COMPILED = (
    "architecture",
    "hardware",
    "layout",
    "request",
    "legality",
    "memory",
    "timing",
    "kernel",
    "space",
    "estimate",
    "explain",
    "refuse",
    "search",
)


def extensions() -> list[Extension]:
    """The modules to compile; none unless asked for."""
    if os.environ.get("TRAINJOB_ADVISOR_COMPILED") != "1":
        return []
    from mypyc.build import mypycify  # noqa: PLC0415 - only a compiling build has it

    return mypycify([f"app/planner/{name}.py" for name in COMPILED], opt_level="3")


setup(ext_modules=extensions())
