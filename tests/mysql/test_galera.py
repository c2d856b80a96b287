"""On two nodes of a Galera cluster: what a commit, a change of node and a lost quorum may do there, and what the store makes of it.

Servers of one shard should all write to one node. These tests also hold for two.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest

from pinlater.domain.errors import OutcomeUnknown, PinLaterError, ShardConnectionFailed
from pinlater.domain.job import Outcome
from tests.contract.desk import Desk
from tests.databases.galera import GaleraNode
from tests.databases.proxy import Proxy
from tests.mysql.proxied_mysql import ProxiedMysql
from tests.shared_shards.proxied_database import gathered

Nodes = tuple[GaleraNode, GaleraNode]
LOAD_S = 4.0


@pytest.fixture
async def shard(galera: Nodes) -> AsyncIterator[ProxiedMysql]:
    """An empty shard behind a proxy that leads to the first node."""
    first, _ = galera
    await first.drop_databases("pinlater_")
    async with AsyncExitStack() as stack:
        yield ProxiedMysql(first, await stack.enter_async_context(Proxy(first.address)), "pinlater_1", stack)


async def run_jobs(desk: Desk, until_s: float, stored: list[bytes], done: list[bytes]) -> None:
    """Enqueues, claims and acks, whatever fails. Notes what was answered."""
    loop, number = asyncio.get_running_loop(), 0
    while loop.time() < until_s:
        number += 1
        body = b"%d of %d" % (number, id(desk))
        with suppress(PinLaterError):
            await desk.put(body)
            stored.append(body)
        with suppress(PinLaterError):
            taken = await desk.claim(2)
            acked = [(held.job.body, await desk.succeed(held.key, token=held.holder.token)) for held in taken]
            done += [body for body, ack in acked if ack.outcome is Outcome.APPLIED]


async def test_two_servers_that_write_to_two_nodes_commit_nothing_by_half_and_are_warned(
    galera: Nodes, shard: ProxiedMysql, caplog: pytest.LogCaptureFixture
) -> None:
    """Galera rolls a transaction back between two statements of a packet, and commits the statements after."""
    packets_with_a_commit = shard.proxy.lose_request(b";COMMIT")
    here = [await shard.desk(retries=20) for _ in range(2)]
    there = [await shard.desk(endpoint=shard.endpoint(port=galera[1].port), retries=20) for _ in range(2)]
    desks = [*here, *there]
    stored: list[bytes] = []
    done: list[bytes] = []
    until_s = asyncio.get_running_loop().time() + LOAD_S
    await asyncio.gather(*[run_jobs(desk, until_s, stored, done) for desk in desks])
    await here[0].shard.ping()
    for node in galera:
        await settled(node)
    assert not packets_with_a_commit.sprung
    assert len(done) == len(set(done))
    assert sum([desk.shard.stats.deadlocks for desk in desks]) > 0  # type: ignore[attr-defined]
    await shard.assert_consistent()
    warnings = [
        record.message for record in caplog.records if "send all servers of a shard to one node" in record.message
    ]
    assert any(f":{galera[0].port}" in warning and f":{galera[1].port}" in warning for warning in warnings)


async def settled(node: GaleraNode) -> None:
    """It has applied all that was committed on the other node."""
    async with node.connect() as connection, connection.cursor() as cursor:
        await cursor.execute("SET SESSION wsrep_sync_wait = 1")
        await cursor.execute("SELECT 1")


@asynccontextmanager
async def behind(first: GaleraNode) -> AsyncIterator[None]:
    """The other node takes a second or two to apply what comes next."""
    await first.execute("CREATE DATABASE lag")
    try:
        await first.execute("CREATE TABLE lag.rows_without_key (id INT, v INT)")
        await first.execute("INSERT INTO lag.rows_without_key SELECT seq, 0 FROM lag.seq_1_to_100000")
        yield
    finally:
        await first.execute("DROP DATABASE lag")


async def test_a_server_that_is_sent_to_a_node_that_lags_waits_until_the_node_has_its_changes(
    galera: Nodes, shard: ProxiedMysql
) -> None:
    first, second = galera
    async with behind(first):
        desk = await shard.desk()
        key = await desk.put(b"the one")
        await settled(second)
        await first.execute("UPDATE lag.rows_without_key SET v = v + 1 WHERE id > 100000 - 20")
        [held] = await desk.claim()
        shard.proxy.target = second.address
        shard.proxy.cut()
        assert (await desk.succeed(held.key, token=held.holder.token)).outcome is Outcome.APPLIED
        assert (await desk.look(key)).body == b"the one"
        await settled(first)
    await shard.assert_consistent()


async def test_a_commit_that_was_lost_before_a_change_of_node_can_not_come_later(
    galera: Nodes, shard: ProxiedMysql
) -> None:
    """The new node can't end a connection to the old one. It ends the transaction before it says that it was not carried out."""
    first, second = galera
    desk = await shard.desk(retries=0, statement_timeout_ms=1_000)
    await desk.put(b"connects")
    trap = shard.proxy.lose_request(b"COMMIT", hang=True)
    call = asyncio.ensure_future(desk.put(b"refused"))
    await trap.wait()
    shard.proxy.target = second.address
    with pytest.raises(ShardConnectionFailed, match="was not carried out"):
        await call
    await settled(first)
    assert await first.execute("SELECT trx_id FROM information_schema.innodb_trx WHERE trx_rows_modified > 0") == []
    shard.proxy.heal()
    await desk.put(b"stored")
    assert {held.job.body for held in await desk.claim(10)} == {b"connects", b"stored"}
    await settled(first)
    await shard.assert_consistent()


async def test_a_node_that_loses_the_quorum_answers_no_call_and_what_it_answers_is_true(
    galera: Nodes, shard: ProxiedMysql
) -> None:
    """It still answers logins and looks without tables. A commit under way may be stored by the other nodes."""
    first, second = galera
    desk = await shard.desk(statement_timeout_ms=20_000, connect_timeout_ms=500)
    held = await desk.put_and_take()
    await desk.put(b"before")
    second.suspend()
    try:
        open_put, open_ack = await gathered([desk.put(b"open"), desk.succeed(held.key, token=held.holder.token)])
        assert isinstance(open_put, OutcomeUnknown)
        assert isinstance(open_ack, OutcomeUnknown)
        for call in (
            lambda: desk.put(b"refused"),
            desk.claim,
            lambda: desk.look(held.key),
            desk.shard.ping,
            shard.open,
        ):
            with pytest.raises(PinLaterError) as failed:
                await call()
            assert failed.value.retryable
            assert not isinstance(failed.value, OutcomeUnknown)
    finally:
        second.resume()
        await asyncio.to_thread(first.wait_until_synced)
        await asyncio.to_thread(second.wait_until_synced)
    assert (await desk.succeed(held.key, token=held.holder.token)).outcome in (Outcome.APPLIED, Outcome.ALREADY_FINAL)
    found = {one.job.body for one in await desk.claim(10)}
    assert found - {b"open"} == {b"before"}
    await settled(second)
    await shard.assert_consistent()
