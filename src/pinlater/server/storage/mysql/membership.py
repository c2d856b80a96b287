"""The membership of one server in a MySQL shard: the rows of its slot and its writers (`storage.interface.SharedStore`).

Each lease of a slot starts the numbers of its writers above all earlier ones. So the next transaction of a server that lost the slot,
and still counts in an older range, is refused (`transaction`).
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
from collections.abc import Callable

from pinlater.domain.clock import CLOCK_JUMP_MS
from pinlater.domain.ids import SLOTS
from pinlater.server.storage.leases import COMPARED_WITHIN_MS, agreed_ms, each_once, is_alive, no_free_slot
from pinlater.server.storage.mysql.connection import MysqlConnection
from pinlater.server.storage.mysql.statements import rows, sql
from pinlater.server.storage.mysql.transaction import NUMBERS, Transaction
from pinlater.server.storage.values import NO_OWNERS, Member, Owners

logger = logging.getLogger(__name__)

_NOW = sql("now")
_CURRENT_META = sql("current_meta")
_LOCK_SERVERS = sql("lock_servers")
_LOCK_WRITERS = sql("lock_writers")
_SAVE_WRITERS = sql("save_writers")
_SAVE_SERVER = sql("save_server")
_RENEW_SERVER = sql("renew_server")
_ANNOUNCE_SERVER = sql("announce_server")
_MAKE_META = sql("make_meta")
_LOAD_META = sql("load_meta")
_SAVE_CLOCK = sql("save_clock")
_LIST_CLOCKS = sql("list_clocks")
_DELETE_SERVER = sql("delete_server")
_LIST_SERVERS = sql("list_servers")
_CHANGE_META = sql("change_meta")
# A number has 63 bits.
_RANGES = 2**63 // NUMBERS
_OWNERS = "owners"


class Membership:
    """The lease of a slot in one database, and the rows of its `writers` writers."""

    def __init__(self, lease_ms: int, writers: int) -> None:
        self._lease_ms = lease_ms
        self._writers = writers
        self.lost: set[int] = set()  # earlier slots of this server: ids were made with them
        self.incarnation = secrets.token_bytes(16)
        self.name = f"{socket.gethostname()}-{os.getpid()}"
        self.address = ""
        self.slot = 0
        self._ahead_ms: int | None = None  # as stored in the database

    async def join(self, transaction: Transaction) -> tuple[int, int]:
        """Leases the lowest free slot; returns it and the first number of its writers. One server at a time.

        Waits for the transaction that the slot's previous server has under way; the next one of that server fails.
        """
        _, now, found = await transaction.select(_CURRENT_META(name="schema"), _NOW(), _LOCK_SERVERS())
        now_ms = now.rows[0][0]
        taken = {slot for slot, seen_ms in found.rows if is_alive(seen_ms, now_ms, self._lease_ms)}
        slot = next((slot for slot in range(SLOTS) if slot not in taken and slot not in self.lost), -1)
        if slot < 0:
            raise no_free_slot()
        own = range(slot * self._writers, (slot + 1) * self._writers)
        [numbers] = await transaction.select(_LOCK_WRITERS(first=own[0], last=own[-1]))
        first = (max([newest for (newest,) in numbers.rows], default=0) // NUMBERS + 1) % _RANGES * NUMBERS
        transaction.change(_SAVE_WRITERS(rows=rows([(writer, first) for writer in own])))
        transaction.change(
            _SAVE_SERVER(
                slot=slot,
                incarnation=self.incarnation,
                name=self.name,
                address=self.address,
                now_ms=now_ms,
                seen_at_ms=now_ms,
            )
        )
        self._ahead_ms = None
        return slot, first

    async def announce(self, connection: MysqlConnection, address: str) -> str:
        self.address = address
        *_, secret = await connection.run(
            [
                _ANNOUNCE_SERVER(slot=self.slot, incarnation=self.incarnation, address=address),
                _MAKE_META(name="wake_secret", value=secrets.token_urlsafe(32)),
                _LOAD_META(name="wake_secret"),
            ]
        )
        return str(secret.rows[0][0])

    async def renew(self, connection: MysqlConnection, time_ms: Callable[[], int] | None = None) -> bool:
        """Stores a heartbeat; with `time_ms`, also how far this server's time is ahead. False if the slot is lost."""
        asked_ms = 0 if time_ms is None else time_ms()
        renewed, now = await connection.run([_RENEW_SERVER(slot=self.slot, incarnation=self.incarnation), _NOW()])
        if time_ms is not None and renewed.affected == 1:
            took_ms = time_ms() - asked_ms
            if took_ms < COMPARED_WITHIN_MS:
                await self._say_time(connection, asked_ms + took_ms // 2 - int(now.rows[0][0]))
        return renewed.affected == 1

    async def _say_time(self, connection: MysqlConnection, ahead_ms: int) -> None:
        before = self._ahead_ms
        if before is not None and abs(ahead_ms - before) < CLOCK_JUMP_MS // 2:
            return
        await connection.run([_SAVE_CLOCK(slot=self.slot, incarnation=self.incarnation, ahead_ms=ahead_ms)])
        self._ahead_ms = ahead_ms
        if before is not None and abs(ahead_ms - before) >= CLOCK_JUMP_MS:
            logger.warning(
                "%s: the database's clock jumped; the servers go on by the time that they had",
                connection.endpoint,
                extra={"jump_ms": before - ahead_ms, "servers_ahead_ms": ahead_ms},
            )

    async def agreed_ms(self, connection: MysqlConnection) -> int:
        now, found = await connection.run([_NOW(), _LIST_CLOCKS(slot=self.slot)])
        now_ms = int(now.rows[0][0])
        return agreed_ms(
            now_ms, [int(ahead) for seen_ms, ahead in found.rows if is_alive(seen_ms, now_ms, self._lease_ms)]
        )

    async def leave(self, transaction: Transaction) -> None:
        """Frees the slot."""
        transaction.change(_DELETE_SERVER(slot=self.slot, incarnation=self.incarnation))


async def members(connection: MysqlConnection, lease_ms: int) -> list[Member]:
    [found] = await connection.run([_LIST_SERVERS()])
    return each_once(
        Member(slot, name, address, started_ms, seen_ms, abs(now_ms - seen_ms))
        for slot, name, address, started_ms, seen_ms, now_ms in found.rows
        if is_alive(seen_ms, now_ms, lease_ms)
    )


async def owners(connection: MysqlConnection) -> Owners:
    [found] = await connection.run([_LOAD_META(name=_OWNERS)])
    return Owners.of_text(found.rows[0][0]) if found.rows else NO_OWNERS


async def change_owners(connection: MysqlConnection, known: Owners, new: Owners) -> bool:
    _, changed = await connection.run(
        [
            _MAKE_META(name=_OWNERS, value=NO_OWNERS.as_text()),
            _CHANGE_META(name=_OWNERS, known=known.as_text(), value=new.as_text()),
        ]
    )
    return changed.affected == 1
