"""Which store a server keeps its jobs in, from one word: `sqlite:PATH` or `memory:`."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from pinlater.config.errors import did_you_mean
from pinlater.config.paths import resolved

_LATER = {"mysql": "MySQL", "redis": "Redis"}


class StoreLocation(NamedTuple):
    """A store and where it is. `path` is the file of an SQLite store, None for `memory`."""

    kind: str
    path: Path | None = None

    def __str__(self) -> str:
        return f"{self.kind}:{self.path or ''}"


def parse_store(text: str, base: Path | None = None) -> StoreLocation:
    """The location that `text` names; a relative path counts from `base`. Raises `ValueError` in words."""
    kind, colon, rest = text.strip().partition(":")
    if kind == "memory" and not rest:
        return StoreLocation("memory")
    if kind == "sqlite" and colon:
        return StoreLocation("sqlite", _file(rest, base))
    if kind in _LATER:
        raise ValueError(f"names a {_LATER[kind]} store, which is not in this build yet: use sqlite:PATH")
    near = did_you_mean(kind, ("sqlite", "memory")) if colon else f" (did you mean sqlite:{text.strip()}?)"
    raise ValueError(f"is not a store: sqlite:PATH or memory: is possible{near}")


def _file(rest: str, base: Path | None) -> Path:
    if not rest:
        raise ValueError("names no file: write sqlite:PATH, for example sqlite:pinlater.db")
    if rest == ":memory:":
        raise ValueError("is not possible: a store in memory is called memory:")
    if rest.startswith("//") and not rest.startswith("///"):
        raise ValueError("names a host, but an SQLite store is a file: write sqlite:PATH")
    return resolved(rest, base)
