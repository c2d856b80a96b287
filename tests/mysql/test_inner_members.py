"""What a server makes of the other servers on its shards: its share of a limit, its looks for new ones, and the secrets that it keeps."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path

import pytest

from pinlater.client import AsyncClient
from pinlater.domain.queue import QueueConfig
from pinlater.server.dispatch import rate_limits
from pinlater.server.main.app import App
from tests.databases.mariadb import MariaDb
from tests.mysql.test_members import Start, start, until

__all__ = ["start"]  # a fixture


def rate(app: App) -> float:
    """What this server gives out of the queue's limit."""
    return app.core.dispatcher.limits._accounts["q"].bucket.rate


async def test_a_limit_is_divided_by_the_servers_that_are_asked_for_its_jobs(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await start()
    await one.core.service.queues.create_queue("q")
    await one.core.service.queues.configure_queue("q", QueueConfig(max_jobs_per_second=10.0))
    other = await start()
    await one.cluster.look()
    for app in (one, other):
        await until(lambda app=app: app.cluster.idle_for("q") == 1)  # type: ignore[misc]
    assert (rate(one), rate(other)) == (10.0, 10.0)
    async with AsyncClient(f"127.0.0.1:{one.thrift.port}") as client:
        await client.dequeue("q", 1)
        await until(lambda: rate(other) == 5.0)
        assert rate(one) == 10.0
        async with AsyncClient(f"127.0.0.1:{other.thrift.port}") as at_other:
            polling = asyncio.create_task(at_other.dequeue("q", 1, wait_ms=60_000))
            await until(lambda: (rate(one), rate(other)) == (5.0, 5.0))
            monkeypatch.setattr(rate_limits, "DEQUEUED_WITHIN_S", 0.0)  # as if one was asked long ago
            await until(lambda: rate(other) == 10.0)
            assert rate(one) == 5.0
            polling.cancel()
    info = one.server_info()["members"]
    assert isinstance(info, list)
    assert [member["slot"] for member in info] == [0, 1]


async def test_a_limit_is_divided_by_the_servers_that_say_nothing_of_themselves(start: Start) -> None:
    one = await start()
    await one.core.service.queues.create_queue("q")
    await one.core.service.queues.configure_queue("q", QueueConfig(max_jobs_per_second=10.0))
    other = await start()
    await other.cluster.end_calls(0)
    await one.cluster.look()
    await until(lambda: rate(one) == 5.0)


async def test_a_server_that_stops_looks_for_no_others(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """Its connections to them end, which is otherwise a reason to ask the shards. These are closed by then."""
    one = await start()
    await start()
    await one.cluster.look()
    forwarding = one.cluster.forwarding
    assert forwarding is not None
    await until(lambda: any(link.usable for link in forwarding.connections.values()))
    with caplog.at_level(logging.INFO):
        await one.stop(1.0)
        await asyncio.sleep(0)
        one.cluster._look_soon("another")
        assert one.cluster._looking is None or one.cluster._looking.done()
    assert not [record for record in caplog.records if "can't be looked up" in record.message]


async def test_a_file_of_servers_goes_before_the_store(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "servers"
    file.write_text("a:1\nb:1\nc:1\nd:1\n")
    one = await start(server_set_file=str(file))
    await start()
    await one.cluster.look()
    assert one._servers() == 4


async def test_each_server_says_in_the_store_where_the_others_reach_it(
    start: Start, mariadb: MariaDb, mariadb_prefix: str
) -> None:
    """At its advertised address, where it has one, and with the secret that the store keeps."""
    one, other = await start(), await start(advertised_address="localhost")
    await one.cluster.look()
    [first, second] = [member.address for member in one.cluster.members.known]
    assert re.fullmatch(r"127\.0\.0\.1:\d+", first)
    assert re.fullmatch(r"localhost:\d+", second)
    database = f"{mariadb_prefix}jobs"
    [(secret,)] = await mariadb.execute(f"SELECT value FROM {database}.meta WHERE name = 'wake_secret'")
    assert one.cluster._peers is not None
    assert one.cluster._peers.secret_of == {second: secret.encode()}
    await until(lambda: connected_to(one) == {second} and connected_to(other) == {first})


def connected_to(app: App) -> set[str]:
    return set() if app.cluster.forwarding is None else set(app.cluster.forwarding.connections)
