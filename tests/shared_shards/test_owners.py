"""The owners of the slices of a shard, as the shard keeps it."""

from __future__ import annotations

from pinlater.domain.slices import SLICES
from pinlater.server.storage.commands import ChangeOwners, ListMembers, ListOwners
from pinlater.server.storage.values import NO_OWNERS, Owners
from tests.shared_shards.conftest import AnyDatabase

FIRST = Owners(1, ("10.0.0.1:9011",) * SLICES)
SECOND = Owners(2, ("10.0.0.1:9011", "høst:9011") * (SLICES // 2))


async def test_a_new_shard_has_no_owners(database: AnyDatabase) -> None:
    assert await (await database.desk()).shared.submit(ListOwners()) == NO_OWNERS


async def test_owners_are_kept_for_all_servers(database: AnyDatabase) -> None:
    one, other = (await database.desk()).shared, (await database.desk()).shared
    assert await one.submit(ChangeOwners(NO_OWNERS, FIRST))
    assert await other.submit(ListOwners()) == FIRST
    assert await other.submit(ChangeOwners(FIRST, SECOND))
    assert await one.submit(ListOwners()) == SECOND


async def test_a_server_that_has_not_read_the_newest_owners_changes_nothing(database: AnyDatabase) -> None:
    one, other = (await database.desk()).shared, (await database.desk()).shared
    assert await one.submit(ChangeOwners(NO_OWNERS, FIRST))
    assert not await other.submit(ChangeOwners(NO_OWNERS, SECOND))
    assert not await other.submit(ChangeOwners(FIRST._replace(version=7), SECOND))
    assert await one.submit(ListOwners()) == FIRST


async def test_a_server_without_a_heartbeat_is_silent(database: AnyDatabase) -> None:
    desk = await database.desk()
    await desk.shard.ping()
    [member] = await desk.shared.submit(ListMembers())
    assert member.silent_ms < 30_000
    await database.expire_leases()
    await (await database.desk()).shared.submit(ListMembers())
