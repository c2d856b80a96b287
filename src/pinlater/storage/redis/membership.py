"""This server's place among those that use the shard: a slot of its own, kept by signs of life, free again once these stop.

The slot is part of every job id and of the writers' numbers, so that nothing two servers write meets. Times are Redis'.

A server that slept may not know that its slot is another's now. So the writers' keys hold the lease, which is another each time, and
every script of a writer refuses where it isn't the writer's own.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from pinlater.domain.errors import SchemaRefused, ShardConnectionFailed
from pinlater.domain.ids import SLOTS
from pinlater.storage.interface import Member
from pinlater.storage.redis.arguments import encode
from pinlater.storage.redis.keys import id_of

SCHEMA = "1"
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

    async def join(self, run: Run) -> tuple[int, int]:
        """Takes the lowest slot that nobody has; the slot, and the highest id in the shard."""
        self.lease = secrets.token_bytes(16)
        slot, top, schema = await run(
            "join",
            self.lease,
            self._lease_ms,
            self._writers,
            self._about(),
            SCHEMA,
            encode(sorted(self.lost)),
            SLOTS,
        )
        if schema.decode() not in {"", SCHEMA}:
            raise SchemaRefused(
                f"The shard has schema {schema.decode()}, this program knows {SCHEMA}; use the program that made it"
            )
        if slot < 0:
            raise ShardConnectionFailed(
                f"All {SLOTS} slots for servers are taken; wait until those that are gone lapse"
            )
        return slot, id_of(top) if top else 0

    async def announce(self, run: Run, address: str) -> str:
        """Where this server listens, from now on; the shard's secret, made by whoever asks first."""
        self.address = address
        await run("renew", self.lease, self.slot, self._about())
        secret: bytes = await run("keep_secret", secrets.token_urlsafe(32))
        return secret.decode()

    async def renew(self, run: Run) -> bool:
        """A sign of life. False where the slot was taken over meanwhile."""
        return bool(await run("renew", self.lease, self.slot, ""))

    async def leave(self, run: Run) -> None:
        """Frees the slot."""
        await run("leave", self.lease, self.slot)

    def _about(self) -> str:
        return json.dumps([self.name, self.address])


async def members(run: Run, lease_ms: int) -> list[Member]:
    """Who uses the shard now."""
    now_ms, *rows = await run("list_members")
    found = []
    for slot, packed in zip(rows[::2], rows[1::2], strict=True):
        name, address = json.loads(packed[32:])
        seen_ms = int.from_bytes(packed[24:32], "big")
        if seen_ms + lease_ms > now_ms:
            found.append(Member(int(slot), name, address, int.from_bytes(packed[16:24], "big"), seen_ms))
    return sorted(found)
