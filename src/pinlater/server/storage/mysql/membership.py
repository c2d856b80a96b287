"""The membership of one server in a MySQL shard: the rows of its slot and its writers (`interface.OfSeveralServers`).

Each lease of a slot starts the numbers of its writers above all earlier ones. So the next transaction of a server that lost the slot,
and still counts in an older range, is refused (`transaction`).
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence
from typing import Any

from pinlater.domain.errors import EnqueueRejected
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
from pinlater.server.storage.mysql.connection import MysqlConnection, as_text
from pinlater.server.storage.mysql.migration import ORDERED, newest_version
from pinlater.server.storage.mysql.statements import rows, sql
from pinlater.server.storage.mysql.transaction import NUMBERS, Transaction
from pinlater.server.storage.values import NO_OWNERS, Member, Owners, ShardTime

logger = logging.getLogger(__name__)

_NOW = sql("now")
_CURRENT_META = sql("current_meta")
_LOCK_SERVERS = sql("lock_servers")
_LOCK_WRITERS = sql("lock_writers")
_SAVE_WRITERS = sql("save_writers")
_SAVE_SERVER = sql("save_server")
_SAVE_PROGRAM = sql("save_program")
_LOCK_OLDER_SERVERS = sql("lock_older_servers")
_DELETE_OLDER_SERVERS = sql("delete_older_servers")
_DELETE_OLDER_PROGRAMS = sql("delete_older_programs")
_SAVE_META = sql("save_meta")
_RENEW_SERVER = sql("renew_server")
_SAVE_NODE = sql("save_node")
_LIST_OTHER_NODES = sql("list_other_nodes")
_ANNOUNCE_SERVER = sql("announce_server")
_MAKE_META = sql("make_meta")
_LOAD_META = sql("load_meta")
_SAVE_CLOCK = sql("save_clock")
_FIND_CLOCK = sql("find_clock")
_LIST_CLOCKS = sql("list_clocks")
_DELETE_SERVER = sql("delete_server")
_LIST_SERVERS = sql("list_servers")
_CHANGE_META = sql("change_meta")
# A number has 63 bits.
_RANGES = 2**63 // NUMBERS
_OWNERS = "owners"


class Membership(LeasedSlot):
    """The lease of a slot in one database, and the rows of its `writers` writers."""

    def __init__(self, lease_ms: int, writers: int) -> None:
        super().__init__(lease_ms, writers)
        self.incarnation = secrets.token_bytes(16)
        self._told: set[tuple[str, str]] = set()  # servers on other nodes that a warning has named

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
        self.keeps_order = False
        first = await self._take_writers(transaction, slot)
        program = newest_version()
        transaction.change(_SAVE_PROGRAM(program=program))
        transaction.change(
            _SAVE_SERVER(
                slot=slot,
                incarnation=self.incarnation,
                name=self.entry,
                address=self.address,
                now_ms=now_ms,
                seen_at_ms=now_ms,
                program=program,
            )
        )
        transaction.change(_SAVE_NODE(slot=slot, incarnation=self.incarnation, node=transaction.node))
        return slot, first

    async def _take_writers(self, transaction: Transaction, slot: int) -> int:
        """Returns the first of the new numbers: calls of the former holder of the slot are refused from now on."""
        own = range(slot * self._writers, (slot + 1) * self._writers)
        [numbers] = await transaction.select(_LOCK_WRITERS(first=own[0], last=own[-1]))
        first = (max([newest for (newest,) in numbers.rows], default=0) // NUMBERS + 1) % _RANGES * NUMBERS
        transaction.change(_SAVE_WRITERS(rows=rows([(writer, first) for writer in own])))
        return first

    async def admit_order(self, transaction: Transaction) -> EnqueueRejected | None:
        """Migrates the shard to the schema `ORDERED`, so that servers of the previous version refuse it. Returns the refusal if some use
        it.

        Takes its slot from a server that has sent no heartbeat for a lease, and may only be suspended.
        """
        schema, now, found = await transaction.select(
            _CURRENT_META(name="schema"), _NOW(), _LOCK_OLDER_SERVERS(program=ORDERED)
        )
        now_ms = now.rows[0][0]
        older = [
            (as_text(entry), as_text(address))
            for _, entry, address, seen_ms in found.rows
            if is_alive(seen_ms, now_ms, self._lease_ms)
        ]
        if older:
            return older_servers(transaction.endpoint, older)
        for slot, *_ in found.rows:
            await self._take_writers(transaction, slot)
        transaction.change(_DELETE_OLDER_SERVERS(program=ORDERED))
        transaction.change(_DELETE_OLDER_PROGRAMS(program=ORDERED))
        if int(schema.rows[0][0]) < ORDERED:
            transaction.change(_SAVE_META(rows=rows([("schema", str(ORDERED))])))
        transaction.after_commit.append(self._order_is_kept)
        return None

    def _order_is_kept(self) -> None:
        self.keeps_order = True

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
        slot = {"slot": self.slot, "incarnation": self.incarnation}
        renewed, clock, _, elsewhere = await connection.run(
            [
                _RENEW_SERVER(**slot),
                _FIND_CLOCK(**slot),
                _SAVE_NODE(**slot, node=connection.node),
                _LIST_OTHER_NODES(slot=self.slot, node=connection.node),
            ]
        )
        self._compare_nodes(connection, elsewhere.rows)
        if time_ms is not None and renewed.affected == 1:
            [(now_ms, known_ms)] = clock.rows
            ahead_ms = time_to_tell(known_ms, asked_ms, time_ms(), now_ms)
            if ahead_ms is not None:
                log_jump(f"{connection.endpoint}: the database's clock", known_ms, ahead_ms)
                await connection.run([_SAVE_CLOCK(**slot, ahead_ms=ahead_ms)])
        return renewed.affected == 1

    def _compare_nodes(self, connection: MysqlConnection, elsewhere: Sequence[tuple[Any, ...]]) -> None:
        others = {
            (as_text(name), as_text(node))
            for name, node, seen_ms, now_ms in elsewhere
            if is_alive(seen_ms, now_ms, self._lease_ms)
        }
        for name, node in sorted(others - self._told):
            logger.warning(
                "%s: this server writes to %s, and the server %s to %s: unless a failover is under way, send all servers of a shard to "
                "one node, since their locks hold on one node only",
                connection.endpoint,
                connection.node,
                name,
                node,
            )
        self._told = others

    async def shard_time(self, connection: MysqlConnection) -> ShardTime:
        now, found = await connection.run([_NOW(), _LIST_CLOCKS(slot=self.slot)])
        now_ms = int(now.rows[0][0])
        return shard_time(
            now_ms, [int(ahead) for seen_ms, ahead in found.rows if is_alive(seen_ms, now_ms, self._lease_ms)]
        )

    async def leave(self, transaction: Transaction) -> None:
        """Frees the slot."""
        transaction.change(_DELETE_SERVER(slot=self.slot, incarnation=self.incarnation))

    async def members(self, connection: MysqlConnection) -> list[Member]:
        [found] = await connection.run([_LIST_SERVERS()])
        return each_once(
            member_of(slot, entry, address, started_ms, seen_ms, now_ms)
            for slot, entry, address, started_ms, seen_ms, now_ms in found.rows
            if is_alive(seen_ms, now_ms, self._lease_ms)
        )

    async def owners(self, connection: MysqlConnection) -> Owners:
        [found] = await connection.run([_LOAD_META(name=_OWNERS)])
        return Owners.of_text(found.rows[0][0]) if found.rows else NO_OWNERS

    async def change_owners(self, connection: MysqlConnection, known: Owners, new: Owners) -> bool:
        _, changed = await connection.run(
            [
                _MAKE_META(name=_OWNERS, value=NO_OWNERS.as_text()),
                _CHANGE_META(name=_OWNERS, known=known.as_text(), value=new.as_text()),
            ]
        )
        return changed.affected == 1
