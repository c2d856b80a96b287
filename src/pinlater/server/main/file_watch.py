"""The files that a server rereads while it runs, and the parts that apply them: limits, the set of servers, the shards."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import astuple
from functools import partial
from hashlib import sha256
from typing import NamedTuple

from pinlater.domain.servers import AboutServer, ServerRole
from pinlater.server.config.files import rate_limits_in, server_count_in
from pinlater.server.config.kinds import EMBEDDED, SHARDED
from pinlater.server.config.settings import Settings
from pinlater.server.config.shard_entry import ConfiguredShard
from pinlater.server.config.shard_file import ShardSource
from pinlater.server.sharding.reload import DesiredShard
from pinlater.server.storage.interface import SharedShard


class SharedLimits(NamedTuple):
    """Keeps the limits from files. `limits`: jobs a second by queue. `servers`: how many share them, or None without a file."""

    limits: Mapping[str, float]
    servers: int | None


class FileWatch:
    """Raises `FileBroken` if a file can't be read at the start. `begin` registers the parts that apply changes."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._limits = rate_limits_in(settings.queue_limits_file) if settings.queue_limits_file else None
        self._servers = server_count_in(settings.server_set_file) if settings.server_set_file else None
        self._shards = ShardSource(settings) if settings.store.is_sharded else None
        named = {"queue_limits_file": self._limits, "server_set_file": self._servers, "store": self._shards}
        self._files = {key: file for key, file in named.items() if file is not None}
        self._places: Sequence[ConfiguredShard] = ()  # the last shards that were applied
        self._looking = asyncio.Lock()
        self._take_limits: Callable[[SharedLimits, SharedLimits], Awaitable[object]] | None = None
        self._take_shards: Callable[[], Awaitable[object]] | None = None

    def __bool__(self) -> bool:
        """Returns whether there are any files."""
        return bool(self._files)

    @property
    def shared_limits(self) -> SharedLimits:
        """The values that were read last."""
        return SharedLimits(
            {} if self._limits is None else self._limits.value,
            None if self._servers is None else self._servers.value,
        )

    def servers(self, known: int) -> int:
        """Returns how many servers share the limit of a queue: those `known` by the stores, or those of the file, each with as many
        processes as this one.

        If each process has a store of its own, it hands out all jobs."""
        servers = self.shared_limits.servers
        if servers is None:
            return known
        return servers * (self._settings.processes if self._settings.store.is_sharded else 1)

    @property
    def broken(self) -> Mapping[str, float]:
        """Returns 1 for each file that can't be reread, by the key of the settings that names it."""
        return {key: file.last_error is not None for key, file in self._files.items()}

    def desired(self) -> Sequence[DesiredShard]:
        """The shards according to the files now."""
        if self._shards is None:
            return embedded(self._settings)
        self._places = self._shards.places
        return sharded(self._places, self._settings)

    def begin(
        self,
        take_limits: Callable[[SharedLimits, SharedLimits], Awaitable[object]],
        take_shards: Callable[[], Awaitable[object]],
    ) -> None:
        """Registers functions that are called after a change. `take_limits(before, after)`; `take_shards` asks for `desired`."""
        self._take_limits, self._take_shards = take_limits, take_shards

    def end(self) -> None:
        """Stops applying changes."""
        self._take_limits = self._take_shards = None

    async def look(self) -> None:
        """Reads the files that have changed."""
        async with self._looking:
            before = self.shared_limits
            for file in self._files.values():
                await asyncio.to_thread(file.refresh)
            if self._take_limits is not None and self.shared_limits != before:
                await self._take_limits(before, self.shared_limits)
            if self._take_shards is not None and self._shards is not None and self._shards.places != self._places:
                await self._take_shards()


def embedded(settings: Settings) -> Sequence[DesiredShard]:
    """The shard inside the server's process, not opened yet."""
    store = settings.store
    shown = "" if store.path is None else str(store.path)
    return [DesiredShard("1", partial(EMBEDDED[store.kind].make, store.path, settings), shown_address=shown)]


def _shared_shard(place: ConfiguredShard, settings: Settings) -> SharedShard:
    shard = SHARDED[settings.store.kind].make(place, settings)
    shard.introduce(AboutServer(settings.cluster.coordinator, ServerRole(settings.role)))
    return shard


def sharded(places: Sequence[ConfiguredShard], settings: Settings) -> Sequence[DesiredShard]:
    """Returns each entry as a shard that is not opened yet. Two entries are the same shard only if their logins are the same, too."""
    return [
        DesiredShard(
            place.name,
            partial(_shared_shard, place, settings),
            sha256(repr(astuple(place.endpoint)).encode()).hexdigest(),  # it has the password in it
            place.takes_enqueues,
            str(place.endpoint),
            place.lost,
        )
        for place in places
    ]
