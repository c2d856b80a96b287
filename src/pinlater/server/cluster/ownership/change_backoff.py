"""How long a server waits before it changes a shard's owners again if other servers change them back.

Two servers that see different servers as alive would each revert the other's change, at every look. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

# How many changes of a server may be changed again before it waits: servers that come and go one after the other cause that.
_FREE = 3
_PAUSE_S_MAX = 60.0
# Longer than the longest pause: a server whose changes are still reverted does not begin with short pauses again.
_FORGET_S = 120.0


@dataclass(slots=True)
class _Own:
    """This server's last change of a shard. `reversals`: how many of them in a row were changed by others."""

    version: int
    at_s: float
    reversals: int = 0
    wait_until_s: float = 0.0


class ChangeBackoff:
    """The backoff of one server. `monotonic`: in seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._own: dict[str, _Own] = {}  # by shard

    def changed(self, shard: str, version: int) -> None:
        """Notes that this server has stored owners with this version."""
        now_s = self._monotonic()
        own = self._own.get(shard)
        if own is None or now_s - own.at_s > _FORGET_S:
            self._own[shard] = _Own(version, now_s)
        else:
            own.version, own.at_s = version, now_s

    def seen(self, shard: str, version: int) -> None:
        """Notes that the shard has owners with this version."""
        own = self._own.get(shard)
        if own is None or version <= own.version:
            return
        own.version = version  # one change is reverted once
        own.reversals += 1
        if own.reversals > _FREE:
            own.wait_until_s = self._monotonic() + min(_PAUSE_S_MAX, 2.0 ** (own.reversals - _FREE - 1))

    def must_wait(self, shard: str) -> bool:
        """Returns whether this server is to leave the shard to the others for now."""
        own = self._own.get(shard)
        return own is not None and self._monotonic() < own.wait_until_s

    def keep(self, shards: set[str]) -> None:
        """Forgets all other shards."""
        self._own = {shard: own for shard, own in self._own.items() if shard in shards}
