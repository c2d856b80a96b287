"""The files that a server reads again while it runs, and who takes over what they say: limits, the set of servers, the shards, tokens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from pinlater.server.access.tokens import Token
from pinlater.server.config.settings import Settings
from pinlater.server.config.shard_entry import ConfiguredShard
from pinlater.server.config.watched import SharedLimits, WatchedFiles
from pinlater.server.main.stores import make_shards, sharded
from pinlater.server.sharding.reload import DesiredShard

logger = logging.getLogger(__name__)


class FileWatch:
    """Raises `FileBroken` if a file can't be read at the start. `begin` says who is to take over changes; none does before."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._files = WatchedFiles(settings)
        self._places: Sequence[ConfiguredShard] = ()  # the shards taken over last
        self._looking = asyncio.Lock()
        self._take_limits: Callable[[SharedLimits, SharedLimits], Awaitable[object]] | None = None
        self._take_shards: Callable[[], Awaitable[object]] | None = None

    def __bool__(self) -> bool:
        """Whether there are any files."""
        return bool(self._files)

    @property
    def limits(self) -> Mapping[str, float]:
        """Jobs a second by queue."""
        return self._files.shared_limits.limits

    @property
    def names_servers(self) -> bool:
        """Whether a file says which servers share the limits."""
        return self._files.shared_limits.servers is not None

    def servers(self, known: int) -> int:
        """How many processes share the limit of a queue: `known` by the stores, or those of the file, each with as many processes.

        Of processes with one store of their own, one hands out all jobs."""
        servers = self._files.shared_limits.servers
        if servers is None:
            return known
        return servers * (self._settings.processes if self._settings.store.is_sharded else 1)

    @property
    def broken(self) -> Mapping[str, float]:
        """1 for each file that can't be read again, by the key of the settings that names it."""
        return self._files.broken

    def desired(self) -> Sequence[DesiredShard]:
        """The shards as the files say now."""
        places = self._files.places
        if places is None:
            return make_shards(self._settings)
        self._places = places
        return sharded(places, self._settings)

    def begin(
        self,
        take_limits: Callable[[SharedLimits, SharedLimits], Awaitable[object]],
        take_shards: Callable[[], Awaitable[object]],
    ) -> None:
        """From now on a look calls these after a change. `take_limits(before, after)`; `take_shards` asks for `desired`."""
        self._take_limits, self._take_shards = take_limits, take_shards

    def end(self) -> None:
        """Changes are no longer taken over."""
        self._take_limits = self._take_shards = None

    @property
    def tokens(self) -> tuple[Token, ...] | None:
        """The tokens of callers; None without access control."""
        return self._files.tokens

    async def look_at_tokens(self) -> None:
        """Reads the tokens if they have changed."""
        async with self._looking:
            await self._files.refresh_tokens()

    async def look(self) -> None:
        """Reads what has changed."""
        async with self._looking:
            before = self._files.shared_limits
            limits_changed = await self._files.refresh()
            if limits_changed and self._take_limits is not None:
                await self._take_limits(before, self._files.shared_limits)
            if self._take_shards is not None and self._files.places not in (None, self._places):
                await self._take_shards()
