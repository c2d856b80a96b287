"""This server's place among those that use the shard: a slot of its own, kept by signs of life, free again once these stop.

The slot is part of every job id and of the writers' numbers, so that nothing two servers write meets. Times are Redis'. If its clock
jumps, all signs of life look old until the next ones come; a slot that is taken meanwhile is one more that was lost.

The time by which jobs are due and claims end is the servers', who took Redis' over at their start. Each says how far its own is ahead of
Redis', so that who comes after a jump goes by the same as those that are there. Weakness: in the first seconds after a jump no
server has said it yet.

A server that slept may not know that its slot is another's now. So the writers' keys hold the lease, which is another each time, and
every script of a writer refuses if it isn't the writer's own.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from pinlater.domain.clock import CLOCK_JUMP_MS
from pinlater.domain.errors import ShardConnectionFailed
from pinlater.domain.ids import SLOTS
from pinlater.server.storage.redis.arguments import encode
from pinlater.server.storage.redis.keys import id_of
from pinlater.server.storage.redis.migration import NEWEST, check
from pinlater.server.storage.values import NO_OWNERS, Member, Owners

logger = logging.getLogger(__name__)

# An answer that takes longer says too little of the time.
_QUICK_MS = 500
Run = Callable[..., Awaitable[Any]]


class Membership:
    """The lease of one slot, with `writers` writers."""

    def __init__(self, lease_ms: int, writers: int) -> None:
        self._lease_ms = lease_ms
        self._writers = writers
        self.lost: set[int] = set()  # slots that were ours; ids were made with them
        self.lease = secrets.token_bytes(16)
        self.name = f"{socket.gethostname()}-{os.getpid()}"
        self.address = ""
        self.slot = 0
        self._ahead_ms: int | None = None  # as Redis knows it

    async def join(self, run: Run) -> tuple[int, int]:
        """Takes the lowest free slot; the slot, and the highest id in the shard."""
        self.lease = secrets.token_bytes(16)
        self._ahead_ms = None
        slot, top, schema = await run(
            "join",
            self.lease,
            self._lease_ms,
            self._writers,
            self._about(),
            NEWEST,
            encode(sorted(self.lost)),
            SLOTS,
        )
        version = int(schema or 0)
        check(version, "The shard")
        if version < NEWEST:  # it was emptied in this moment, or an old one was restored
            raise ShardConnectionFailed(f"The shard has schema {version} and must be taken to {NEWEST} first")
        if slot < 0:
            raise ShardConnectionFailed(
                f"All {SLOTS} slots for servers are taken; wait until those that are gone lapse"
            )
        return slot, id_of(top) if top else 0

    async def announce(self, run: Run, address: str) -> str:
        """Stores where this server listens; the shard's secret, made by the first server that asks."""
        self.address = address
        await run("renew", self.lease, self.slot, self._about())
        secret: bytes = await run("keep_secret", secrets.token_urlsafe(32))
        return secret.decode()

    async def renew(self, run: Run, time_ms: Callable[[], int] | None = None) -> bool:
        """A sign of life; with `time_ms`, the time that this server goes by, also how that compares with Redis'.

        False if the slot was taken over meanwhile.
        """
        asked_ms = 0 if time_ms is None else time_ms()
        redis_ms = await run("renew", self.lease, self.slot, "")
        if time_ms is not None and redis_ms:
            took_ms = time_ms() - asked_ms
            if took_ms < _QUICK_MS:
                await self._say_time(run, asked_ms + took_ms // 2 - int(redis_ms))
        return bool(redis_ms)

    async def _say_time(self, run: Run, ahead_ms: int) -> None:
        before = self._ahead_ms
        if before is not None and abs(ahead_ms - before) < CLOCK_JUMP_MS // 2:
            return
        self._ahead_ms = ahead_ms
        await run("renew", self.lease, self.slot, self._about())
        if before is not None and abs(ahead_ms - before) >= CLOCK_JUMP_MS:
            logger.warning(
                "Redis' clock jumped; the servers go on by the time that they had",
                extra={"jump_ms": before - ahead_ms, "servers_ahead_ms": ahead_ms},
            )

    async def agreed_ms(self, run: Run) -> int:
        """The time that the shard's servers go by; Redis' if there are none, or it is the same."""
        now_ms, servers = await _servers(run, self._lease_ms)
        ahead = sorted(one.ahead_ms for one in servers if one.member.slot != self.slot and one.ahead_ms is not None)
        if not ahead or abs(ahead[len(ahead) // 2]) < CLOCK_JUMP_MS:
            return now_ms
        return now_ms + ahead[len(ahead) // 2]

    async def leave(self, run: Run) -> None:
        """Frees the slot."""
        await run("leave", self.lease, self.slot)

    def _about(self) -> str:
        return json.dumps([self.name, self.address, self._ahead_ms])


class _Server(NamedTuple):
    """A server that gave a sign of life within its lease; `ahead_ms`: how far its time is ahead of Redis', once it has said so."""

    member: Member
    ahead_ms: int | None


async def _servers(run: Run, lease_ms: int) -> tuple[int, list[_Server]]:
    """Redis' time, and the servers."""
    now_ms, *rows = await run("list_members")
    found = []
    for slot, packed in zip(rows[::2], rows[1::2], strict=True):
        name, address, ahead_ms = json.loads(packed[32:])
        started_ms, seen_ms = int.from_bytes(packed[16:24], "big"), int.from_bytes(packed[24:32], "big")
        # One from the future is from before the clock was set back.
        if abs(now_ms - seen_ms) < lease_ms:
            found.append(
                _Server(Member(int(slot), name, address, started_ms, seen_ms, abs(now_ms - seen_ms)), ahead_ms)
            )
    return now_ms, found


async def members(run: Run, lease_ms: int) -> list[Member]:
    """The servers that use the shard now, each once: after a failover a server has two slots until the lease of the old one lapses."""
    _, servers = await _servers(run, lease_ms)
    alive = sorted((server.member for server in servers), key=lambda one: one.started_at_ms)
    # A server without an address may be any of them.
    newest = {(one.name, one.address or one.slot): one for one in alive}
    return sorted(newest.values(), key=lambda one: one.slot)


async def owners(run: Run) -> Owners:
    """Which servers own the slices of the shard's queues."""
    text: bytes | None = await run("find_owners")
    return Owners.of_text(text.decode()) if text else NO_OWNERS


async def change_owners(run: Run, known: Owners, new: Owners) -> bool:
    """Stores `new` if `known` is what is stored; whether it was."""
    return bool(await run("change_owners", known.as_text(), new.as_text(), NO_OWNERS.as_text()))
