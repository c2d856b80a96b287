"""What a shard tells operators of its memory of due jobs, and what a claim from it sends to the database."""

from __future__ import annotations

import re
from functools import partial

import pytest

from pinlater.server.storage.commands import create_queues
from pinlater.server.storage.mysql.ready_jobs import JOB_BYTES, ReadyBytes
from pinlater.server.storage.mysql.settings import MysqlSettings
from pinlater.server.storage.mysql.shard import MysqlShard
from tests.contract.desk import Desk
from tests.mysql.proxied_mysql import LIMITS, ProxiedMysql
from tests.mysql.test_claims_from_memory import bodies, claim
from tests.shared_shards.proxied_database import QUEUE, stats_of
from tests.statements import noted_statements

_OTHER = "other"


def figures(desk: Desk) -> list[float]:
    """Jobs, bytes, claims from memory, stale claims."""
    found = desk.shard.figures()
    names = ("remembered_jobs", "remembered_bytes", "claims_from_memory", "stale_claims")
    return [found[name] for name in names]


async def test_the_owner_of_a_queue_claims_jobs_that_were_enqueued_at_it_without_reading_a_row(
    database: ProxiedMysql, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One packet that deletes rows of `ready`, inserts claims and counts."""
    here = await database.desk(direct=True)
    await claim(here, 1)
    for number in range(3):
        await here.put(b"%d" % number)
    await here.put(b"3", headers={"a": "b"})
    sent = noted_statements(monkeypatch)
    before = stats_of(here).round_trips
    assert await bodies(here, 5) == [b"0", b"1", b"2", b"3"]
    assert stats_of(here).round_trips - before == 1
    texts = [statement.decode("latin-1") for statement in sent if isinstance(statement, bytes)]
    assert len(texts) == len(sent)
    tables = [re.findall(r"\b(DELETE FROM|INSERT INTO|FROM|JOIN) (\w+)", text) for text in texts]
    assert tables == [
        [("DELETE FROM", "ready")],
        [("INSERT INTO", "writers")],
        [("INSERT INTO", "claims")],
        [("INSERT INTO", "counters")],
        [],
    ]
    assert texts[-1] == "COMMIT"
    assert not [text for text in texts if "SELECT" in text]
    await here.assert_counters_exact()


async def test_jobs_that_are_remembered_count_until_they_are_claimed(database: ProxiedMysql) -> None:
    here = await database.desk(direct=True)
    await here.shard.submit(create_queues([_OTHER], here.now))
    assert figures(here) == [0, 0, 0, 0]
    await claim(here, 1, QUEUE, _OTHER)
    assert figures(here) == [0, 0, 0, 0], "both claims searched"
    await here.put(b"12345")
    await here.put(b"x", queue=_OTHER)
    assert figures(here) == [2, 2 * JOB_BYTES + 6, 0, 0]
    assert await bodies(here, 5, QUEUE, _OTHER) == [b"12345", b"x"]
    assert figures(here) == [0, 0, 2, 0]
    assert await bodies(here, 5) == []
    assert figures(here) == [0, 0, 3, 0], "that nothing is due was known, too"


async def test_rows_that_a_search_reads_on_count(database: ProxiedMysql) -> None:
    here = await database.desk(direct=True)
    await here.insert(*[here.job(b"%d" % number) for number in range(10)])
    await claim(here, 4)
    assert figures(here) == [6, 6 * JOB_BYTES, 0, 0]
    await claim(here, 4)
    assert figures(here) == [2, 2 * JOB_BYTES, 1, 0]
    await claim(here, 1, from_memory=False)
    assert figures(here) == [0, 0, 1, 0]


async def test_a_claim_that_another_server_makes_stale_counts_as_that_and_not_as_one_from_memory(
    database: ProxiedMysql,
) -> None:
    here, there = await database.desk(direct=True), await database.desk(direct=True)
    await claim(here, 1)
    await here.put(b"x")
    assert await bodies(there, 1, from_memory=False) == [b"x"]
    assert await bodies(here, 1) == []
    assert figures(here)[2:] == [0, 1]


async def test_each_shard_counts_its_own_part_of_the_space_and_none_after_it_is_closed(database: ProxiedMysql) -> None:
    space = ReadyBytes(2**20)
    place = database.endpoint(direct=True)
    desks = [Desk(partial(MysqlShard, place, MysqlSettings(**LIMITS), ready_bytes=space)) for _ in range(2)]
    for desk in desks:
        await desk.open()
        database.closes(desk.shard)
        await desk.shard.submit(create_queues([QUEUE], desk.now))
        await claim(desk, 1)
    one, other = desks
    await one.put(b"1")
    await one.put(b"22")
    await other.put(b"333")
    assert [figures(desk)[0] for desk in desks] == [2, 1]
    assert [figures(desk)[1] for desk in desks] == [2 * JOB_BYTES + 3, JOB_BYTES + 3]
    assert figures(one)[1] + figures(other)[1] == space.used
    await one.shard.close()
    assert figures(one)[:2] == [0, 0]
    assert figures(other)[1] == space.used
