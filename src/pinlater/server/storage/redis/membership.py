"""The membership of one server in a Redis shard: its entry among the servers and the keys of its writers (`interface.OfSeveralServers`).

The key of each writer holds the lease, a random value that is new with each lease. So a script of a server that lost the slot finds a
lease that is not its own, and refuses.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from pinlater.domain.errors import EnqueueRejected, ShardConnectionFailed
from pinlater.domain.ids import SLOTS
from pinlater.server.storage.leases import (
    LeasedSlot,
    each_once,
    is_alive,
    log_jump,
    member_of,
    no_free_slot,
    older_servers,
    shard_time,
    time_to_tell,
)
from pinlater.server.storage.redis.arguments import encode
from pinlater.server.storage.redis.keys import id_of
from pinlater.server.storage.redis.migration import AT_ONCE, NEWEST, ORDERED
from pinlater.server.storage.schema import check_version
from pinlater.server.storage.values import NO_OWNERS, Member, Owners, ShardTime

Run = Callable[..., Awaitable[Any]]


class Membership(LeasedSlot):
    """The lease of a slot in one Redis, for `writers` keys of writers."""

    def __init__(self, lease_ms: int, writers: int) -> None:
        super().__init__(lease_ms, writers)
        self.lease = secrets.token_bytes(16)
        self._ahead_ms: int | None = None  # as last sent to Redis, which may not have received it

    async def join(self, run: Run) -> tuple[int, int]:
        """Leases a free slot; returns it and the highest id in the shard."""
        self.lease = secrets.token_bytes(16)
        self._ahead_ms = None
        self.keeps_order = False
        slot, top, schema = await run(
            "join",
            self.lease,
            self._lease_ms,
            self._writers,
            self._about(),
            NEWEST,
            encode(sorted(self.lost)),
            SLOTS,
            AT_ONCE,
        )
        version = int(schema or 0)
        check_version("The shard", version, NEWEST)
        if version < AT_ONCE:  # it was just emptied, or an old one was restored
            raise ShardConnectionFailed(f"The shard has schema {version} and must be taken to {AT_ONCE} first")
        if slot < 0:
            raise no_free_slot()
        return slot, id_of(top) if top else 0

    async def admit_order(self, run: Run, endpoint: object) -> EnqueueRejected | None:
        """Migrates the shard to the schema `ORDERED`, so that servers of the previous version refuse it. Returns the refusal if some use
        it.

        Takes its slot from a server that has sent no heartbeat for a lease, and may only be suspended.
        """
        found = await run("admit_order", self._lease_ms, self._writers, ORDERED)
        if found:
            return older_servers(endpoint, [(entry, address) for entry, address, *_ in map(json.loads, found)])
        self.keeps_order = True
        return None

    async def announce(self, run: Run, address: str) -> str:
        self.address = address
        await run("renew", self.lease, self.slot, self._about())
        secret: bytes = await run("keep_secret", secrets.token_urlsafe(32))
        return secret.decode()

    async def renew(self, run: Run, time_ms: Callable[[], int] | None = None) -> bool:
        """Renews the lease. Returns whether it still has the slot. `time_ms` is the server's time, to compare Redis' clock with it."""
        asked_ms = 0 if time_ms is None else time_ms()
        redis_ms, about = await run("renew", self.lease, self.slot, "")
        if time_ms is not None and redis_ms:
            *_, known_ms = json.loads(about)
            ahead_ms = time_to_tell(known_ms, asked_ms, time_ms(), redis_ms)
            if ahead_ms is not None:
                log_jump("Redis' clock", known_ms, ahead_ms)
                self._ahead_ms = ahead_ms
                await run("renew", self.lease, self.slot, self._about())
        return bool(redis_ms)

    async def shard_time(self, run: Run) -> ShardTime:
        now_ms, servers = await _servers(run, self._lease_ms)
        others = [one for one in servers if one.member.slot != self.slot]
        return shard_time(now_ms, [one.ahead_ms for one in others if one.ahead_ms is not None])

    async def leave(self, run: Run) -> None:
        """Frees the slot."""
        await run("leave", self.lease, self.slot)

    def _about(self) -> str:
        return json.dumps([self.entry, self.address, self._ahead_ms])

    async def members(self, run: Run) -> list[Member]:
        _, servers = await _servers(run, self._lease_ms)
        return each_once(server.member for server in servers)

    async def owners(self, run: Run) -> Owners:
        text: bytes | None = await run("find_owners")
        return Owners.of_text(text.decode()) if text else NO_OWNERS

    async def change_owners(self, run: Run, known: Owners, new: Owners) -> bool:
        return bool(await run("change_owners", known.as_text(), new.as_text(), NO_OWNERS.as_text()))


class _LiveServer(NamedTuple):
    """A server whose lease holds; `ahead_ms`: how far its time is ahead of Redis', once it has stored that."""

    member: Member
    ahead_ms: int | None


async def _servers(run: Run, lease_ms: int) -> tuple[int, list[_LiveServer]]:
    """Returns Redis' time, and the servers."""
    now_ms, *rows = await run("list_members")
    found = []
    for slot, packed in zip(rows[::2], rows[1::2], strict=True):
        entry, address, ahead_ms = json.loads(packed[32:])
        started_ms, seen_ms = int.from_bytes(packed[16:24], "big"), int.from_bytes(packed[24:32], "big")
        if is_alive(seen_ms, now_ms, lease_ms):
            found.append(_LiveServer(member_of(int(slot), entry, address, started_ms, seen_ms, now_ms), ahead_ms))
    return now_ms, found
