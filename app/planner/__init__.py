"""The pure core: numbers in, plan out. No I/O, no clock, no Kubernetes, no pydantic."""

from __future__ import annotations


def form() -> str:
    """Which form of the search runs: `compiled` or `pure Python`."""
    import app.planner.search as search  # noqa: PLC0415, PLR0402 - naming the room loads none of it

    return "pure Python" if str(search.__file__).endswith(".py") else "compiled"
