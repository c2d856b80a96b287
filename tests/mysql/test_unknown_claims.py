"""A claim of unknown outcome is given back, and no other claim with it: a long poll over two shards, one of which loses answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from pinlater.domain.clock import SystemClock
from pinlater.domain.job import Holder
from pinlater.server.dispatch.claiming import FromShard
from pinlater.server.main.core import Core
from pinlater.server.sharding.reload import DesiredShard
from pinlater.server.sharding.shards import ClaimRequest
from pinlater.server.storage.commands import ListChangedQueues, TimeOutClaims
from pinlater.server.storage.mysql.shard import MysqlShard
from pinlater.server.storage.values import ClaimCall, InsertRequest
from tests.assembly import open_core
from tests.contract.desk import QUEUE
from tests.mysql.proxied_mysql import ProxiedMysql, proxied
from tests.shared_shards.proxied_database import until

COMMIT = b";COMMIT"
_CLAIM_MS = 600_000
_WAIT_MS = 60_000


class Polls:
    """A server's dispatcher on shard `1`, behind the database's proxy, and shard `2`, which only drains."""

    def __init__(self, core: Core) -> None:
        self.shards = core.shards
        self.dispatcher = core.dispatcher
        self._polls = 0

    def poll(self, limit: int = 1, wait_ms: int = _WAIT_MS) -> asyncio.Task[list[FromShard]]:
        self._polls += 1
        holder = Holder(f"host:1:2:worker:{self._polls}", "worker", f"poll-{self._polls}")
        return asyncio.create_task(
            self.dispatcher.claim(ClaimRequest(QUEUE, ClaimCall(limit, holder, 2**20), _CLAIM_MS, 1.0, wait_ms))
        )


@pytest.fixture
async def second(database: ProxiedMysql) -> AsyncIterator[ProxiedMysql]:
    async with proxied(database.server, "pinlater_2") as second:
        yield second


@pytest.fixture
async def polls(database: ProxiedMysql, second: ProxiedMysql) -> AsyncIterator[Polls]:
    first = database.shard(connect_timeout_ms=300, statement_timeout_ms=1_000)
    other = MysqlShard(second.endpoint(direct=True), name="2")
    core = await open_core(first, DesiredShard("2", lambda: other, takes_enqueues=False), clock=SystemClock())
    await core.service.queues.create_queue(QUEUE)
    yield Polls(core)
    database.proxy.heal()
    await core.close()


async def test_a_claim_of_unknown_outcome_takes_no_later_claim_of_its_poll_along(
    database: ProxiedMysql, polls: Polls
) -> None:
    """The poll gets another job from the same shard once that is back: this one stays its own."""
    lanes = polls.shards.get("1")
    assert lanes is not None
    shard = lanes.unguarded
    operator = await database.desk(direct=True)
    await polls.poll(wait_ms=0)  # connects
    lost = await operator.put(b"lost")
    await shard.submit(ListChangedQueues())  # as once a second: another server has stored a job
    trap = database.proxy.lose_answer(COMMIT)
    poll = polls.poll()
    await trap.wait()
    database.proxy.refuse()

    async def unknown_claims() -> bool:
        return bool(shard._unknown_claims)  # type: ignore[attr-defined]

    await until(unknown_claims)
    assert not poll.done()  # the other shard answered
    database.proxy.heal()
    await lanes.insert.submit(InsertRequest(QUEUE, [operator.job(b"found")]))
    [part] = await poll
    [found] = part.jobs
    assert (part.shard, found.body) == ("1", b"found")

    assert list(await shard.submit(TimeOutClaims(operator.now, 10))) == []
    again = [job for part in await polls.poll(10, wait_ms=0) for job in part.jobs]
    assert [(job.id, job.body, job.attempt) for job in again] == [(lost.id, b"lost", 1)]
    await database.assert_consistent()
