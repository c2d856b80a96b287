"""The scripts: one file each, `shared.lua` in front of it. Named by their SHA-1, as Redis keeps them."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from typing import NamedTuple

# These begin and end jobs, which may have ordering keys.
_OF_ORDER = frozenset(
    {
        "change_jobs",
        "claim_jobs",
        "collect_finished",
        "finish_jobs",
        "insert_jobs",
        "lift_barrier",
        "repair_jobs",
        "unblock_key",
    }
)


class Script(NamedTuple):
    """A script that is sent to Redis once and then called by its name."""

    name: str
    text: bytes
    sha: bytes


@cache
def script(name: str) -> Script:
    """The script in `scripts/<name>.lua`, preceded by the shared part."""
    folder = files(__package__) / "scripts"
    parts = ["shared", "ordering", name] if name in _OF_ORDER else ["shared", name]
    text = b"".join([(folder / f"{part}.lua").read_bytes() for part in parts])
    return Script(name, text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())


@cache
def names() -> tuple[str, ...]:
    """Returns the names of all scripts."""
    folder = files(__package__) / "scripts"
    found = (entry.name.removesuffix(".lua") for entry in folder.iterdir() if entry.name.endswith(".lua"))
    return tuple(sorted(name for name in found if name not in ("shared", "ordering")))
