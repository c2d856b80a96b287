"""Numbers in sentences."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """`1 job`, `2 jobs`, `1,000 jobs`: the noun gets its plural."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
