"""Checks the version and the settings of a Redis server, and how full it is.

A server that is too old, or a replica, is refused with what to do. A server that may evict jobs gets a warning: an operator may have
chosen that.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping

from pinlater.domain.errors import ShardConnectionFailed, Unavailable
from pinlater.server.storage.redis.readers import Readers
from pinlater.server.storage.redis.settings import RedisEndpoint
from pinlater.wire.generated.structs import ShardSize

logger = logging.getLogger(__name__)

_LEAST = (6, 2)
_LOOK_EVERY_S = 1.0


async def check_server(readers: Readers, endpoint: RedisEndpoint) -> None:
    """Logs the warnings. Raises `ShardConnectionFailed`, which no retry helps, if the server can't be used."""
    found = read_info(await readers.command(b"INFO"))
    refused = refusal_of(found)
    if refused is not None:
        raise ShardConnectionFailed(f"{endpoint}: {refused}", retryable=False)
    for warning in warnings_of(found):
        logger.warning(warning, extra={"shard": str(endpoint)})


def refusal_of(info: Mapping[str, str]) -> str | None:
    """Returns why the server can't be used, or None if it can."""
    version = info.get("redis_version", "")
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is not None and (int(numbers[1]), int(numbers[2])) < _LEAST:
        return f"Redis {version} is too old: {_LEAST[0]}.{_LEAST[1]} or newer is needed"
    if info.get("role") == "active-replica":
        return (
            "it is KeyDB with active replication, where two nodes take changes of one job and the later one wins: jobs would "
            "be lost and handed out twice; make one of them a plain replica (active-replica no)"
        )
    return None


def warnings_of(info: Mapping[str, str]) -> list[str]:
    """Returns the promises that the server doesn't keep."""
    warnings = []
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction" and not policy.startswith("volatile-"):
        warnings.append(
            f"its maxmemory-policy is {policy}: Redis throws jobs away once its memory is used up; make it noeviction"
        )
    if info.get("aof_enabled", "1") == "0":
        warnings.append("appendonly is off: what was answered since the last snapshot is lost with Redis' process")
    return warnings


def read_info(text: bytes) -> dict[str, str]:
    """The lines of INFO."""
    lines = (line.partition(":") for line in text.decode(errors="replace").splitlines() if not line.startswith("#"))
    return {name: value for name, colon, value in lines if colon}


async def memory_size(readers: Readers) -> ShardSize:
    """The memory of the whole Redis server, which other shards and programs may use, too. Raises `Unavailable`."""
    found = read_info(await readers.command(b"INFO", b"memory"))
    return ShardSize(used_bytes=int(found.get("used_memory", 0)), limit_bytes=int(found.get("maxmemory", 0)) or None)


class Memory:
    """How much of its `maxmemory` Redis uses, read once a second while jobs are stored. `monotonic` in seconds."""

    def __init__(self, percent_max: int, monotonic: Callable[[], float]) -> None:
        self._percent_max = percent_max
        self._monotonic = monotonic
        self._looked_at: float | None = None
        self._used = self._max = 0

    def __str__(self) -> str:
        return f"Redis uses {self._used} of {self._max} bytes of its maxmemory, more than {self._percent_max} %"

    async def is_full(self, readers: Readers) -> bool:
        """Returns whether Redis is full: if so, as of now; if not, as of at most a second ago. A read that fails counts as not full, since
        Redis itself refuses in the end.
        """
        now = self._monotonic()
        if self._is_over or self._looked_at is None or now - self._looked_at >= _LOOK_EVERY_S:
            self._looked_at = now
            try:
                size = await memory_size(readers)
            except Unavailable:
                return False
            self._used, self._max = size.used_bytes or 0, size.limit_bytes or 0
        return self._is_over

    @property
    def _is_over(self) -> bool:
        """Whether the last read found too much memory in use."""
        return self._max > 0 and self._used * 100 >= self._max * self._percent_max
