"""The pure core: numbers in, plan out. No I/O, no clock, no Kubernetes, no pydantic."""

from __future__ import annotations


def form() -> str:
    """Which form of the search runs: `compiled` or `pure Python`."""
    from app.planner import search  # noqa: PLC0415 - naming the room must not load all of it

    return "pure Python" if str(search.__file__).endswith(".py") else "compiled"
