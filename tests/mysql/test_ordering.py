"""Jobs with ordering keys in a database: few round trips, and no rows that are never deleted."""

from __future__ import annotations

from pinlater.server.storage.commands import InsertJobs
from pinlater.server.storage.values import Inserted, InsertRequest
from tests.contract.desk import Desk
from tests.mysql.proxied_mysql import ProxiedMysql
from tests.shared_shards.proxied_database import QUEUE, stats_of


async def test_requests_of_one_call_are_stored_in_two_round_trips(database: ProxiedMysql) -> None:
    """One to lock the keys and read their last places, whichever requests they are of; and one with all rows."""
    desk = await database.desk(direct=True)
    await desk.put(ordering_key="a")  # the first such job of the shard raises its schema
    requests = [InsertRequest(QUEUE, [desk.job(ordering_key=key)]) for key in ("a", "b", "b", "c", "a")]
    before = stats_of(desk).round_trips
    answers = await desk.shard.submit(InsertJobs(requests, desk.now))
    assert stats_of(desk).round_trips == before + 2
    assert all(isinstance(answer, Inserted) for answer in answers)
    assert ((await desk.counts()).pending, (await desk.counts()).future) == (6, 3)
    await database.assert_consistent()


async def test_a_job_behind_others_leaves_no_row_among_those_that_come_due(database: ProxiedMysql, desk: Desk) -> None:
    """Its time never comes, so no sweep would delete the row."""
    for body in (b"first", b"second", b"third"):
        await desk.put(body, ordering_key="a")
    for _ in range(3):
        await desk.succeed((await desk.take()).key)
    assert await database.ask("SELECT * FROM future") == []
    await database.assert_consistent()
