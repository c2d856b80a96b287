"""How many servers there are, by the shards' rows of them."""

from __future__ import annotations

import logging
from os import getpid
from random import Random
from socket import gethostname
from typing import Any

import pytest

from pinlater.domain.clock import ManualClock
from pinlater.domain.errors import PinLaterError, ShardConnectionFailed
from pinlater.domain.servers import PEER_VERSION, PEER_VERSION_UNTOLD, USUAL, AboutServer, ServerRole
from pinlater.server.cluster.members import ClusterMembers
from pinlater.server.sharding.reload import DesiredShard, open_shards
from pinlater.server.storage.commands import Command, ListMembers
from pinlater.server.storage.interface import Shard
from pinlater.server.storage.leases import LeasedSlot, member_of
from pinlater.server.storage.sqlite.memory import MemoryShard
from pinlater.server.storage.values import Member
from tests.sharding.faulty import FaultyShard


class Counted(FaultyShard):
    """A shard with rows of servers."""

    def __init__(self, name: str) -> None:
        super().__init__(MemoryShard(name))
        self.rows: list[Member] | PinLaterError = []

    async def carry_out(self, command: Command[Any]) -> Any:
        if not isinstance(command, ListMembers):
            return await super().carry_out(command)
        if isinstance(self.rows, PinLaterError):
            raise self.rows
        return self.rows


def servers(*slots: int) -> list[Member]:
    return [Member(slot, f"host-{slot}", "", 0, 0) for slot in slots]


async def members_of(*stores: Shard) -> ClusterMembers:
    return ClusterMembers(await open_shards([_desired(store) for store in stores], ManualClock(0), Random(0)))


def _desired(store: Shard) -> DesiredShard:
    return DesiredShard(store.name, lambda: store)


def test_the_entry_of_a_server_in_a_shard_says_its_version_and_that_of_an_older_server_none() -> None:
    entry = LeasedSlot(10_000, 1).entry
    member = member_of(3, entry, "a:1", 1_000, 2_000, 2_500)
    assert member == Member(3, f"{gethostname()}-{getpid()}", "a:1", 1_000, 2_000, 500, PEER_VERSION)
    older = member_of(4, "host-4711", "b:1", 1_000, 2_000, 2_000)
    assert (older.name, older.peer_version) == ("host-4711", PEER_VERSION_UNTOLD)


def test_the_entry_of_a_server_with_a_role_ends_with_its_version_where_servers_of_the_version_before_look_for_it() -> (
    None
):
    slot = LeasedSlot(10_000, 1)
    slot.about = AboutServer("zookeeper", ServerRole.ENQUEUE)
    assert int(slot.entry.rpartition("/")[2]) == PEER_VERSION
    assert member_of(3, slot.entry, "a:1", 1_000, 2_000, 2_500).about == slot.about


def test_a_role_that_only_a_later_version_knows_counts_as_all() -> None:
    member = member_of(3, f"host-4711/store/schedule/{PEER_VERSION + 1}", "a:1", 1_000, 2_000, 2_500)
    assert (member.name, member.about) == ("host-4711", USUAL)


async def test_the_shard_that_knows_most_servers_counts() -> None:
    """A shard that some server can't reach lacks that one's row."""
    one, other = Counted("1"), Counted("2")
    members = await members_of(one.as_shard(), other.as_shard())
    one.rows, other.rows = servers(0), servers(0, 4, 5)
    assert await members.look()
    assert members.servers == 3
    assert members.known == servers(0, 4, 5)
    assert not await members.look()


async def test_a_shard_that_fails_changes_nothing_while_another_answers() -> None:
    one, other = Counted("1"), Counted("2")
    members = await members_of(one.as_shard(), other.as_shard())
    one.rows = other.rows = servers(0, 1)
    await members.look()
    one.rows = ShardConnectionFailed("gone")
    assert not await members.look()
    other.rows = ShardConnectionFailed("gone, too")
    with pytest.raises(ShardConnectionFailed):
        await members.look()
    assert members.servers == 2


async def test_a_store_of_one_server_has_one() -> None:
    members = await members_of(MemoryShard())
    assert not await members.look()
    assert (members.servers, members.known) == (1, ())


async def test_a_server_with_another_map_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """Not one that is starting, nor one that was killed, nor a shard that is being removed."""
    one, other, leaving = Counted("1"), Counted("2"), Counted("3")
    clock, stores = ManualClock(0), [one.as_shard(), other.as_shard(), leaving.as_shard()]
    shards = await open_shards([*map(_desired, stores)], clock, Random(0))
    members = ClusterMembers(shards)
    list(shards)[2].leaving = True
    leaving.rows = servers(0)
    for rows in (servers(0, 1), servers(0), servers(0, 7)):  # a server was killed, another starts
        one.rows, other.rows = rows, servers(0)
        await members.look()
        clock.advance(seconds=70)
    other.rows = servers(0, 7)
    await members.look()
    one.rows = servers(0, 7, 8)
    for _ in range(10):
        clock.advance(seconds=70)
        await members.look()
    [record] = [record for record in caplog.records if "does not use all of them" in record.message]
    assert (record.levelno, record.__dict__["server"], record.__dict__["shard"]) == (logging.WARNING, "host-8", "2")
