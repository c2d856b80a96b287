"""Durations and sizes as people write them: `90 s`, `10 min`, `16 MiB`. Plain numbers keep the unit of the key's name."""

from __future__ import annotations

import re

_NUMBER_AND_UNIT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)", re.ASCII)
_MS = {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_BYTES = {"b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "kb": 10**3, "mb": 10**6, "gb": 10**9}


def duration_ms(text: str) -> int:
    """Milliseconds of `90 s`. Raises `ValueError` in words."""
    return _scaled(text, _MS, "a duration such as 500 ms, 90 s, 10 min, 24 h or 7 d")


def size_bytes(text: str) -> int:
    """Bytes of `16 MiB`. Raises `ValueError` in words."""
    return _scaled(text, _BYTES, "a size such as 512 KiB, 16 MiB or 1 GiB")


def _scaled(text: str, factors: dict[str, int], expected: str) -> int:
    match = _NUMBER_AND_UNIT.fullmatch(text.strip())
    factor = factors.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise ValueError(f"is not {expected}")
    amount = float(match[1]) * factor
    if amount != int(amount):
        raise ValueError(f"is not a whole number of {'milliseconds' if factors is _MS else 'bytes'}")
    return int(amount)
