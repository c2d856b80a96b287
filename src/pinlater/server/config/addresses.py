"""`HOST:PORT`, one or several."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

SENTINEL_PORT = 26379

_ADDRESS = re.compile(
    r"(?:\[(?P<six>[^\]\s/@]+)\]|(?P<host>[^:\[\]\s/@\x00-\x1f]+))(?::(?P<port>[0-9]{1,5}))?", re.ASCII
)


class SentinelAddress(NamedTuple):
    """Host and port of a listener."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_addresses(texts: Sequence[str], default_port: int) -> tuple[SentinelAddress, ...]:
    """Each text holds one, or several with commas between them. Raises `ValueError` in words, without the text."""
    return tuple(_address(part, default_port) for text in texts for part in text.split(","))


def _address(text: str, default_port: int) -> SentinelAddress:
    found = _ADDRESS.fullmatch(text.strip())
    port = default_port if found is None or found["port"] is None else int(found["port"])
    if found is None or not 1 <= port <= 65_535:
        raise ValueError("has an address of a Sentinel that is not HOST:PORT")
    return SentinelAddress(found["six"] or found["host"], port)
