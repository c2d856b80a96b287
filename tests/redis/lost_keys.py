"""The kinds of keys that a shard has, as the head of `keys.py` lists them, for tests that delete them."""

from __future__ import annotations

import re

from pinlater.server.storage.redis import keys

# How long the part behind a kind's letters is.
_BYTES = {"": 0, "writer": 2, "queue": 4, "line": 5, "ref": 13, "step": 4, "moment": 12, "run": 16}
# What follows the letters, by kind. Without `x`, which is never there.
_TAILS = {
    kind: _BYTES[tail]
    for kind, tail in re.findall(r"^    (\w+?)(?:<(\w+)>)?\s", keys.__doc__ or "", re.MULTILINE)
    if kind != "x"
}
KINDS = list(_TAILS)


def keys_of_kind(names: list[bytes], front: bytes, kind: str) -> list[bytes]:
    """Those of the names that are of the kind."""
    begin = front + kind.encode()
    return [name for name in names if name.startswith(begin) and len(name) == len(begin) + _TAILS[kind]]
