"""Words that every message shares."""

from __future__ import annotations


def counted(number: int, noun: str, nouns: str = "") -> str:
    """`1 GPU`, `1,024 GPUs`; `nouns` where an s is not enough."""
    return f"{number:,} {noun if number == 1 else nouns or f'{noun}s'}"
