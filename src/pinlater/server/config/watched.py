"""The files that a running server looks at again, and what of them holds: queues' limits, the set of servers, the shards,
tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pinlater.server.access.tokens import Token
from pinlater.server.config.files import RateLimitFile, ServerCountFile, WatchedFile, tokens_in
from pinlater.server.config.settings import Settings
from pinlater.server.config.shard_entry import ConfiguredShard
from pinlater.server.config.shard_file import ShardSource

TOKENS = "access.tokens_file"


class SharedLimits(NamedTuple):
    """Holds what files say of limits. `limits`: jobs a second by queue. `servers`: how many share them; None without a file."""

    limits: Mapping[str, float]
    servers: int | None


class WatchedFiles:
    """The files that the settings name. Raises `FileBroken` if one can't be read at the start; later its old values stay."""

    def __init__(self, settings: Settings) -> None:
        self._limits = RateLimitFile(settings.queue_limits_file) if settings.queue_limits_file else None
        self._servers = ServerCountFile(settings.server_set_file) if settings.server_set_file else None
        self._shards = ShardSource(settings) if settings.store.is_sharded else None
        self._tokens = tokens_in(settings.access.tokens_file) if settings.access.tokens_file else None
        self.broken: Mapping[str, float] = {}

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._by_key())

    @property
    def shared_limits(self) -> SharedLimits:
        """The values that were read last."""
        return SharedLimits(
            {} if self._limits is None else self._limits.limits,
            None if self._servers is None else self._servers.servers,
        )

    @property
    def places(self) -> Sequence[ConfiguredShard] | None:
        """Where the shards are; None if the store has but one."""
        return None if self._shards is None else self._shards.places

    @property
    def tokens(self) -> tuple[Token, ...] | None:
        """The tokens of callers; None without access control."""
        return None if self._tokens is None else self._tokens.value

    async def refresh(self) -> bool:
        """Looks at all of them; whether the limits or the number of servers changed."""
        files = self._by_key()
        changed = {key for key, file in files.items() if await asyncio.to_thread(file.refresh)}
        self.broken = {key: file.last_error is not None for key, file in files.items()}
        return bool(changed - {"store", TOKENS})

    async def refresh_tokens(self) -> None:
        """Looks at the file of tokens only, which is looked at more often."""
        if self._tokens is not None:
            await asyncio.to_thread(self._tokens.refresh)
            self.broken = {**self.broken, TOKENS: self._tokens.last_error is not None}

    def _by_key(self) -> Mapping[str, RateLimitFile | ServerCountFile | ShardSource | WatchedFile[tuple[Token, ...]]]:
        """By the key of the settings that names them."""
        files = {
            "queue_limits_file": self._limits,
            "server_set_file": self._servers,
            "store": self._shards,
            TOKENS: self._tokens,
        }
        return {key: file for key, file in files.items() if file is not None}
