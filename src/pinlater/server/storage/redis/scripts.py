"""The scripts: one file each, `shared.lua` in front of it. Named by their SHA-1, as Redis keeps them."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from typing import NamedTuple


class Script(NamedTuple):
    """A script that Redis is sent once and then called by its name."""

    name: str
    text: bytes
    sha: bytes


@cache
def script(name: str) -> Script:
    """The script in `scripts/<name>.lua`."""
    folder = files(__package__) / "scripts"
    text = (folder / "shared.lua").read_bytes() + (folder / f"{name}.lua").read_bytes()
    return Script(name, text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())


@cache
def names() -> tuple[str, ...]:
    """Returns the names of all scripts."""
    folder = files(__package__) / "scripts"
    found = (entry.name.removesuffix(".lua") for entry in folder.iterdir() if entry.name.endswith(".lua"))
    return tuple(sorted(name for name in found if name != "shared"))
