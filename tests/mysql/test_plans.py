"""How both kinds of database go about every statement: none may look at rows that it doesn't need, or sort them.

A statement that reads a table from end to end gets slower with every job there; and where it locks, it waits for the rows of all others.
Plans are the optimizer's guess from statistics, so these are made, over some thousand rows; what is named as an exception has a reason.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from importlib.resources import files
from typing import Any, NamedTuple

import pytest

from pinlater.server.storage.mysql.connection import MysqlConnection, connect
from pinlater.server.storage.mysql.settings import MysqlSettings
from pinlater.server.storage.mysql.statements import (
    JOBS,
    STATEMENTS,
    Sql,
    delete_rows,
    in_ranges,
    json_ids,
    json_rows,
    keys_are,
    rows,
    sql,
    union,
)
from tests.databases.database import DatabaseServer
from tests.mysql.proxied_mysql import ProxiedMysql, proxied

# Tables that grow with the jobs.
LARGE = {
    "jobs",
    "kept_jobs",
    "ready",
    "claims",
    "done",
    "progress",
    "future",
    "expiries",
    "unique_keys",
    "request_keys",
    "ordered",
    "ordering_keys",
    "audit",
    "samples",
    "failures",
    "failure_hours",
}

# What may be read from end to end, and why.
SCANS = {
    ("oldest_claims", "claims"): "an operator's deletion of jobs in progress, of which there are never many",
    ("page_of_claims", "claims"): "an operator's scan of jobs in progress, of which there are never many",
    ("claims_of_tokens", "claims"): "once after a claim of unknown outcome",
    ("count_differences", "claims"): "once for a queue whose counters are wrong",
    ("list_unique_queues", "unique_keys"): "the whole index, on a reader and only where there are several shards",
}
# What may be sorted, and why.
SORTS = {
    "oldest_claims": "as above",
    "page_of_claims": "as above",
    "merge_pages": "a page of each priority",
    "count_jobs": "counters, not jobs",
    "list_miscounted": "counters, not jobs",
    "count_differences": "once for a queue whose counters are wrong",
    "list_queues": "queues, not jobs",
    "list_partitions": "partitions, not jobs",
    "list_samples_of": "the samples of several queues, a few hundred short rows of each",
    "select_states_after": "the page itself, a thousand short rows",
}

NO_PLAN = {
    "make_meta",
    "load_server_settings",
    "load_replication_status",
    "want_fresh_statistics",
    "select_size",
}  # read no table of ours

N = 6_000
BASE = 10**15
FEW = [BASE + 30, BASE + 31]
SAMPLES_MAX = 5
MANY = list(range(BASE, BASE + N, 6))  # a sixth of what there is; of a quarter, MySQL 8 sometimes prefers to scan
FILL = [
    "INSERT INTO queues (queue_id, name, config, created_at_ms) VALUES (1, 'emails', '{}', 1), (2, 'others', '{}', 1)",
    "CREATE TABLE digits (n INT)",
    "INSERT INTO digits VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)",
    """
    CREATE TABLE numbers AS SELECT a.n + 10 * b.n + 100 * c.n + 1000 * d.n AS n
    FROM digits a JOIN digits b JOIN digits c JOIN digits d HAVING n < 6000
    """,
    "INSERT INTO jobs SELECT 1000000000000000 + n, 1 + n % 2, 1 + n % 3, n, 1, 1, NULL, 'body' FROM numbers",
    "INSERT INTO kept_jobs SELECT id + 10000, queue_id, priority, run_after_ms, 1, 1, NULL, 'body' FROM jobs",
    "INSERT INTO ready SELECT queue_id, priority, run_after_ms, id, 0, 4 FROM jobs WHERE id % 3 = 1",
    "INSERT INTO claims SELECT id, queue_id, priority, id, id, 1, 0, 't', 's', 'h' FROM jobs WHERE id % 3 = 2",
    "INSERT INTO done SELECT id, queue_id, 2 + id % 2, priority, id, 'h' FROM jobs WHERE id % 3 = 0",
    "INSERT INTO progress SELECT id, 1, 1, 1, run_after_ms, 1, '', '', '', '[]', NULL FROM jobs WHERE id % 2 = 0",
    "INSERT INTO future SELECT run_after_ms, id, queue_id, priority FROM jobs",
    "INSERT INTO expiries SELECT run_after_ms, id FROM jobs",
    "INSERT INTO unique_keys SELECT queue_id, CONCAT('key', id), 2, id, priority, id FROM jobs",
    "INSERT INTO request_keys SELECT queue_id, CONCAT('key', id), id, 'f', 'a', NULL FROM jobs",
    "INSERT INTO ordered SELECT id, queue_id, CONCAT('key', id % 97), id, id FROM jobs",
    "INSERT INTO ordering_keys SELECT queue_id, CONCAT('key', id) FROM jobs",
    "INSERT INTO audit SELECT n + 1, CONCAT('00000', 10000 + n), 'entry' FROM numbers",
    "INSERT INTO failures SELECT 1 + n % 3, n, '', '', '', 1, n, n, 1, n FROM numbers",
    "INSERT INTO failure_hours SELECT 1 + n % 3, n, n % 7, 1 FROM numbers",
    "INSERT INTO samples SELECT 60, n, CONCAT('emails', n % 7), 'server', 'data' FROM numbers",
    "INSERT INTO counters SELECT 1 + n % 2, 1 + n % 3, n DIV 6, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 FROM numbers WHERE n < 120",
    "INSERT INTO writers SELECT n, n FROM numbers WHERE n BETWEEN 10 AND 100",
]


class Step(NamedTuple):
    """A line of a plan."""

    table: str | None
    type: str | None
    key: str | None
    extra: str


def pages_of(name: str, limit: int) -> Sql:
    """A page of each of three priorities."""
    where = {"queue": b"emails", "state": 2, "due_by_ms": 1_000, "after_ms": 2_000, "after_id": BASE + 2_000}
    return union([sql(name)(**where, priority=priority, limit=limit) for priority in (1, 2, 3)])


def values(ids: list[int]) -> dict[str, Any]:
    """For every name in any statement, by its own or by the statement's."""
    ready = [(1 + n % 2, 1 + n % 3, n, BASE + n) for n in range(0, 3 * len(ids), 3)]
    keys = [(1, b"key%d" % number) for number in ids]
    return {
        "address": "a",
        "ahead_ms": 3,
        "after": f"key{BASE + 2_000}",
        "after_id": BASE + 2_000,
        "after_origin": b"a",
        "after_queue": b"emails1",
        "after_ms": 2_000,
        "before": "0000010100",
        "before_ms delete_samples": 5,
        "until_ms list_samples": 200,
        "run": "emails1",
        "at_ms": 2_002,
        "after find_copies": "server",
        "first load_copies": "server",
        "last load_copies": "server~",
        "first delete_copies": "server",
        "last delete_copies": "server~",
        "until_ms list_samples_of": 200,
        "queues": [b"emails1", b"emails2"],
        "step_s": 60,
        "before_ms old_failures": 5,
        "before_ms delete_old_failures": 5,
        "before_hour": 5,
        "from_hour": 5_000,
        "before_id": BASE + 2_000,
        "before_ms": BASE + 5,
        "deleted_ms": BASE + 5,
        "body": Sql(b"NULL"),
        "by_ms": 500,
        "keys renew_claims": json_rows([(one, 1, 1) for one in ids]),
        "keys mark_places": json_rows([(one, 1) for one in ids]),
        "changes": Sql(b"pending = pending + VALUES(pending)"),
        "claims": json.dumps([(one, 1, 1, True, "t") for one in ids]),
        "condition": Sql(b"TRUE"),
        "config": "{}",
        "count": -1,  # what ROW_COUNT() is after a look: the condition must not be found to be impossible
        "due_by_ms": 1_000,
        "fence": Sql(b"TRUE"),
        "first": 0,
        "from_id": BASE + 1_000,
        "from_ms": 100,
        "id": BASE,
        "ids": ids,
        "incarnation": b"0" * 16,
        "jobs": JOBS,
        "key": b"key",
        **{f"key {name}_unique_key": "key" for name in ("find", "free", "move", "delete")},
        "keys": keys_are("unique_key", keys),
        "keys count_as_due": json_rows(ready),
        "keys delete_ready": json_rows(ready),
        "which": in_ranges(ready),
        "keys select_counted_future": json_rows(ready),
        "keys delete_future": json_rows([(n, BASE + n) for n in range(len(ids))]),
        "keys delete_expiries": json_rows([(n, BASE + n) for n in range(len(ids))]),
        **{
            f"keys {name}": keys_are("ordering_key", keys)
            for name in ("last_numbers", "first_of_keys", "forget_ordering_keys")
        },
        "keys let_go": json_rows([(one,) for one in ids]),
        "keys delete_request_keys": keys_are("request_key", keys),
        "keys select_request_keys": keys_are("request_key", keys),
        "keys lock_request_keys": keys_are("request_key", keys),
        "ids drop_queues": [1],
        "ids delete_rows": json_ids(ids),
        "ids move_rows": json_ids(ids),
        "ids select_known_ids": json_ids(ids),
        "table delete_row": Sql(b"claims"),
        "table delete_rows": Sql(b"claims"),
        "ids sum_pending": [1, 2],
        "known": "w",
        "known mark_writer": Sql(b"newest = 5"),
        "last": 10,
        "limit": 100,
        "behind_ms": 2**46,
        "most_behind": 10_000,
        "name": "emails",
        "names": [b"emails", b"others"],
        "ids check_queues": [1, 2],
        "ids select_queues": [1, 2],
        "newest": 5,
        "node": "db:3306",
        "number": 5,
        "now_ms": BASE + 500,
        "now_ms lock_future": 500,
        "now_ms expired_jobs": 500,
        "own_first": 0,
        "own_last": 3,
        "pages": pages_of("page_of_due", 100),
        "paused": 0,
        "priority": 1,
        "queue": "emails",
        "queue_id": 1,
        "records_max": 5_000,
        "ranges": Sql(b" OR ".join([b"(priority=%d AND run_after_ms BETWEEN -9 AND 2000)" % p for p in (1, 2, 3)])),
        "run_after_ms": 3,
        "seen_at_ms": 5,
        "since": "0000010050",
        "slot": 0,
        "program": 10,
        "state": 2,
        "tokens": ["t"],
        "table": Sql(b"jobs"),
        "to_id": BASE + 2_000,
        "until_ms": BASE + 3_000,
        "value": "v",
        "writer": 1,
    }


def text_of(name: str, ids: list[int]) -> bytes:
    """The statement with values in it."""
    known = values(ids)
    columns = STATEMENTS[name].text.partition("(")[2].partition(")")[0].count(",") + 1
    own = {key: known.get(f"{key} {name}", value) for key, value in known.items()}
    return sql(name)(**own, rows=rows([[1] * columns]))


_filled: set[DatabaseServer] = set()


@pytest.fixture
async def filled(kind: str, request: pytest.FixtureRequest) -> AsyncIterator[ProxiedMysql]:
    """The session's server with a database for this, filled once."""
    server: DatabaseServer = request.getfixturevalue(kind)
    async with proxied(server, "plans", keep=True) as database:
        if server not in _filled:
            _filled.add(server)
            await (await database.open(direct=True)).close()
            await database.ask("SET GLOBAL innodb_stats_auto_recalc = OFF")  # it would count again while plans are made
            for statement in FILL:
                await database.ask(statement)
            await database.ask(f"ANALYZE TABLE {', '.join(sorted(LARGE | {'counters', 'queues', 'writers'}))}")
        yield database


async def plan(database: ProxiedMysql, statement: bytes) -> list[Step]:
    """What the database would do for a connection of ours, but for the table that an INSERT puts its rows into."""
    connection = await connect(database.endpoint(direct=True), MysqlSettings(), autocommit=True)
    try:
        [found] = await connection.run([b"EXPLAIN " + statement])
    finally:
        await connection.quit()
    # MySQL has the partitions in the fourth column.
    steps = [line if len(line) == 10 else (*line[:3], *line[4:]) for line in found.rows]
    return [
        Step(line[2], line[3], line[5], line[-1] or "")
        for line in steps
        if line[1] not in {"INSERT", "REPLACE"} and "Table function" not in (line[-1] or "")
    ]


def scanned(steps: list[Step]) -> set[str]:
    """Large tables that are read from end to end."""
    return {step.table for step in steps if step.table in LARGE and step.type in {"ALL", "index"}}


@pytest.mark.parametrize("name", sorted(STATEMENTS.keys() - NO_PLAN))
async def test_a_statement_seeks_and_never_scans_or_sorts(filled: ProxiedMysql, name: str) -> None:
    """Whether it names one job or a sixth of them. Statistics are samples: where one makes it scan, others decide."""
    names_jobs = {"ids", "keys", "claims"} & set(STATEMENTS[name].parameters)
    for ids in (FEW[:1], FEW, MANY) if names_jobs else (FEW,):
        statement = text_of(name, ids)
        steps = await plan(filled, statement)
        for _ in range(SAMPLES_MAX):
            if not (tables := {table for table in scanned(steps) if (name, table) not in SCANS}):
                break
            await filled.ask(f"ANALYZE TABLE {', '.join(sorted(tables))}")
            steps = await plan(filled, statement)
        assert {table for table in scanned(steps) if (name, table) not in SCANS} == set(), (len(ids), steps)
        sorts = [step for step in steps if "filesort" in step.extra or "temporary" in step.extra]
        assert not sorts or name in SORTS, (len(ids), steps)


async def test_a_claim_reads_in_the_order_of_the_key(filled: ProxiedMysql) -> None:
    """A range for each priority, one after the other, until there are enough."""
    for name in ("lock_due", "select_due"):
        [step] = await plan(filled, text_of(name, FEW))
        assert (step.table, step.type, step.key) == ("ready", "range", "PRIMARY")
        assert "filesort" not in step.extra


@pytest.mark.parametrize("name", ["page_of_due", "page_of_future", "page_of_done"])
async def test_a_page_of_several_priorities_reads_as_many_rows_of_each(database: ProxiedMysql, name: str) -> None:
    """There are ten thousand rows of each."""
    await (await database.open(direct=True)).close()
    lines = [(BASE + 10 * number + priority, priority, number) for number in range(10_000) for priority in (1, 2, 3)]
    ready = rows([(1, priority, number, job_id, 0, 4) for job_id, priority, number in lines]).decode()
    done = rows([(job_id, 1, 2, priority, number, "h") for job_id, priority, number in lines]).decode()
    for statement in (FILL[0], f"INSERT INTO ready VALUES {ready}", f"INSERT INTO done VALUES {done}"):
        await database.ask(statement)
    await database.ask("ANALYZE TABLE ready, done, queues")
    connection = await connect(database.endpoint(direct=True), MysqlSettings(), autocommit=True)
    try:
        before = await _rows_read(connection)
        [found] = await connection.run([sql("merge_pages")(pages=pages_of(name, 20), limit=20)])
        read = await _rows_read(connection) - before
    finally:
        await connection.quit()
    assert [job_id % 10 for _, job_id in found.rows] == [3, 2, 1] * 6 + [3, 2]
    assert 60 <= read <= 90


async def _rows_read(connection: MysqlConnection) -> int:
    """By the connection so far, through indexes and from tables; none of those in temporary tables."""
    [found] = await connection.run([b"SHOW SESSION STATUS LIKE 'Handler_read%'"])
    return sum(int(value) for name, value in found.rows if "rnd" not in str(name))


@pytest.mark.parametrize("table", ["claims", "done", "progress", "jobs", "kept_jobs"])
async def test_rows_are_deleted_by_their_keys(filled: ProxiedMysql, table: str) -> None:
    """Also where they are most of the table: a scan of the others would wait for their locks."""
    for ids in (FEW[:1], FEW, MANY):
        steps = await plan(filled, delete_rows(table.encode(), ids))
        assert [(step.table, step.key) for step in steps] == [(table, "PRIMARY")], steps


@pytest.mark.parametrize("table", ["jobs", "kept_jobs", "done"])
async def test_rows_are_moved_by_their_keys(filled: ProxiedMysql, table: str) -> None:
    for ids in (FEW[:1], FEW, MANY):
        steps = await plan(filled, sql("move_rows")(table=Sql(table.encode()), priority=2, ids=json_ids(ids)))
        assert [(step.table, step.key) for step in steps] == [(table, "PRIMARY")], steps


def test_every_statement_is_used() -> None:
    packages = [files("pinlater.server.storage.mysql"), files("pinlater.server.storage.relational")]
    code = "".join(entry.read_text() for one in packages for entry in one.iterdir() if entry.name.endswith(".py"))
    assert [name for name in STATEMENTS if f'"{name}"' not in code] == []
