"""Sizes as people write them: `512 KiB`, `16 MiB`."""

from __future__ import annotations

import re

_NUMBER_AND_UNIT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)", re.ASCII)
_BYTES = {"b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "kb": 10**3, "mb": 10**6, "gb": 10**9}


def size_bytes(text: str) -> int:
    """Returns the number of bytes in a text such as `16 MiB`. Raises `ValueError` with a text that continues a sentence about the text."""
    match = _NUMBER_AND_UNIT.fullmatch(text.strip())
    factor = _BYTES.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise ValueError("is not a size such as 512 KiB, 16 MiB or 1 GiB")
    amount = float(match[1]) * factor
    if amount != int(amount):
        raise ValueError("is not a whole number of bytes")
    return int(amount)
