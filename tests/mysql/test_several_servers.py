"""Servers that share a shard: what one does, those who wait at another learn."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest

from pinlater.domain.clock import SystemClock
from pinlater.server.storage.mysql.settings import Endpoint
from pinlater.server.storage.mysql.shard import MysqlShard
from pinlater.testing.real_server import RealServer
from tests.contract import two_servers
from tests.contract.desk import QUEUE, Desk
from tests.mysql.rig import until
from tests.servers.mariadb import MariaDb


@pytest.fixture
async def desks(mariadb: MariaDb, mariadb_prefix: str) -> AsyncIterator[tuple[Desk, Desk]]:
    """Two servers' views of one shard."""
    endpoint = Endpoint(mariadb.host, mariadb.port, mariadb.user, mariadb.password, f"{mariadb_prefix}1")
    one, other = (Desk(lambda: MysqlShard(endpoint)) for _ in range(2))
    for desk in (one, other):
        await desk.open()
    await one.shard.create_queues([QUEUE, "quiet"], one.now)
    yield one, other
    for desk in (one, other):
        await desk.shard.close()


async def changed(desk: Desk) -> list[str]:
    """What is told at last, looks being shared for a second."""
    deadline = SystemClock().monotonic() + 10
    while SystemClock().monotonic() < deadline:
        found = list(await desk.shared.changed_queues())
        if found:
            return found
    return []


async def test_what_another_server_makes_ready_is_seen(desks: tuple[Desk, Desk]) -> None:
    """By queue, and once."""
    one, other = desks
    await other.shard.list_queues()
    key = await one.put()
    assert await changed(other) == [QUEUE]
    assert list(await other.shared.changed_queues()) == []

    held = await other.take()
    assert held.key == key
    assert await changed(one) == [QUEUE]
    await one.shard.release_jobs([held.ref], one.now)
    assert await changed(other) == [QUEUE]


async def test_servers_have_slots_of_their_own(desks: tuple[Desk, Desk]) -> None:
    one, other = desks
    assert {one.shard.slot, other.shard.slot} == {0, 1}
    assert isinstance(one.shard, MysqlShard)
    assert [member.slot for member in await one.shared.members()] == [0, 1]


async def test_a_server_with_two_places_is_counted_once(desks: tuple[Desk, Desk]) -> None:
    """After a failover its old one came along with the replica. Who listens elsewhere, or has not said where, is another server."""
    one, other = (desk.shared for desk in desks)
    assert isinstance(one, MysqlShard)

    async def slots() -> list[int]:
        return [member.slot for member in await one.members()]

    await one.announce("10.0.0.1:9011")
    assert await slots() == [0, 1]
    await other.announce("10.0.0.1:9012")
    assert await slots() == [0, 1]
    await other.announce("10.0.0.1:9011")
    assert await slots() == [1]


async def test_a_server_that_has_nothing_to_do_keeps_its_place(
    tmp_path: Path, mariadb: MariaDb, mariadb_prefix: str
) -> None:
    """By signs of life; without them the next server to start would take it."""
    database = f"{mariadb_prefix}1"
    url = f"mysql://{mariadb.user}:{quote(mariadb.password, safe='')}@{mariadb.address}/{database}"
    with RealServer(tmp_path, "--set", "mysql.lease_ms=5000", store=url):

        async def lives() -> bool:
            return bool(
                await mariadb.execute(f"SELECT 1 FROM {database}.servers WHERE seen_at_ms > started_at_ms + 1500")
            )

        await until(lives)


@pytest.mark.parametrize("seed", range(3))
async def test_two_servers_hand_out_by_priority_whichever_stored_the_jobs(desks: tuple[Desk, Desk], seed: int) -> None:
    await two_servers.hand_out_by_priority(desks, seed)


@pytest.mark.parametrize("seed", range(3))
async def test_two_servers_hand_out_no_expired_job_and_expire_each_once(desks: tuple[Desk, Desk], seed: int) -> None:
    """While both claim and both sweep."""
    await two_servers.expire_once(desks, seed)
