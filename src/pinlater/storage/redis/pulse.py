"""One look a second that tells all sweeps whether there is anything for them, so that an idle shard is asked next to nothing.

The looks are shared: whoever needs to know takes the last one, unless it is too old or this server has changed something since.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from pinlater.domain.descriptor import I64_MAX

KEPT_S = 0.95
NEVER_MS = I64_MAX


class Facts(NamedTuple):
    """The first of each kind, in milliseconds (`NEVER_MS` for none)."""

    first_deadline_ms: int = NEVER_MS
    first_expiry_ms: int = NEVER_MS
    first_request_key_ms: int = NEVER_MS
    first_key_until_ms: int = NEVER_MS
    dropped_queues: int = 0
    finished_bytes: int = 0
    gone: str = ""  # which keys that are always there are not, see `pulse.lua`


class Pulse:
    """`look` asks the shard; `own` counts this server's changes; `monotonic` in seconds."""

    def __init__(
        self, look: Callable[[], Awaitable[Facts]], own: Callable[[], int], monotonic: Callable[[], float]
    ) -> None:
        self._look = look
        self._own = own
        self._monotonic = monotonic
        self._facts = Facts()
        self._seen: tuple[float, int] | None = None
        self._looking = asyncio.Lock()

    async def facts(self) -> Facts:
        """As of at most a second ago, and of all that this server did."""
        async with self._looking:
            now, own = self._monotonic(), self._own()
            if self._seen is None or self._seen[1] != own or now - self._seen[0] >= KEPT_S:
                self._facts = await self._look()
                self._seen = (now, own)
            return self._facts
