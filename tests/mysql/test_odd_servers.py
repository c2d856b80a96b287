"""Servers whose own settings are not the usual ones: what a statement of ours means depends on none of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pinlater.domain.errors import QueueNotFound
from pinlater.domain.job import JobState, Outcome
from pinlater.server.storage.commands import Announce, AskShardTime, DeleteQueues, InsertJobs, ListMembers
from pinlater.server.storage.mysql.server_requirements import judge
from pinlater.server.storage.mysql.statements import lock_name
from pinlater.server.storage.values import InsertRequest
from tests.databases.database import DatabaseServer
from tests.mysql.proxied_mysql import proxied
from tests.shared_shards.proxied_database import QUEUE

MANY = 40
LONGEST_NAME = "a" * 61 + "-$_"
ODD = {
    "sql_mode": "ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH,PIPES_AS_CONCAT,NO_UNSIGNED_SUBTRACTION,IGNORE_SPACE",
    "autocommit": False,
    "completion_type": "RELEASE",  # each COMMIT would end its connection
    "transaction_isolation": "SERIALIZABLE",
    "default_time_zone": "+11:45",
    "character_set_server": "latin1",
    "collation_server": "latin1_swedish_ci",
    "skip_character_set_client_handshake": True,
    "eq_range_index_dive_limit": 1,
    "group_concat_max_len": 4,
    "innodb_default_row_format": "compact",
    # What can only be set while it runs. It does not concern administrators.
    "init_connect": "SET sql_select_limit = 5, sql_safe_updates = 1, max_join_size = 100, foreign_key_checks = 0, "
    "unique_checks = 0",
}
MORE = {
    "mariadb": {"lower_case_table_names": 1, "gtid_strict_mode": True, "max_statement_time": 30, "log_bin": "log"},
    "mysql8": {
        "sql_require_primary_key": True,
        "gtid_mode": "ON",
        "enforce_gtid_consistency": "ON",
        "max_execution_time": 30_000,
        "server_id": 1,
        "log_bin": "log",
    },
}


@pytest.fixture
def odd_server(kind: str, request: pytest.FixtureRequest) -> DatabaseServer:
    start: Callable[..., DatabaseServer] = request.getfixturevalue(f"start_{kind}")
    return start(**ODD, **MORE[kind])


async def test_nothing_depends_on_the_servers_own_settings(odd_server: DatabaseServer) -> None:
    """Strict, committed, all rows of each answer, byte for byte; in a database with the longest of names."""
    bodies = [bytes(range(256)), b"\\'\"\\\\'`--", "ü☂😀".encode(), *[b"%d" % number for number in range(MANY)]]
    async with proxied(odd_server, LONGEST_NAME) as database:
        desk = await database.desk(direct=True)
        for number, body in enumerate(bodies):
            await desk.put(body, run_after_ms=desk.now - 1_000 + number, status="ü☂😀 \\' \"", attempts=3)
        held = await desk.claim(1_000)
        assert [one.job.body for one in held] == bodies
        for one in held[:10]:
            await desk.fail(one.key, token=one.holder.token, status=" 'again' \\")
        outcomes = {(await desk.succeed(one.key, token=one.holder.token)).outcome for one in held[10:]}
        assert outcomes == {Outcome.APPLIED}
        assert {row.job.custom_status for row in await desk.scan(JobState.PENDING)} == {"ü☂😀 \\' \" 'again' \\"}
        await desk.assert_counters_exact()
        desk.clock.advance(hours=500)
        assert await desk.collect() == (MANY + 3 - 10, 0)
        assert await desk.shard.keep_partitions(desk.now) == []  # type: ignore[attr-defined]
        assert await desk.purge(JobState.PENDING) == 10
        await desk.shard.submit(DeleteQueues([QUEUE]))
        [refused] = await desk.shard.submit(InsertJobs([InsertRequest(QUEUE, [desk.job()])], desk.now))
        assert isinstance(refused, QueueNotFound)


async def test_heartbeats_are_committed_on_a_server_that_commits_nothing_by_itself(
    odd_server: DatabaseServer,
) -> None:
    """They are written on connections for reading, each statement by itself: uncommitted, all servers would count as gone."""
    async with proxied(odd_server) as database:
        one, other = await database.open(direct=True), await database.open(direct=True)
        assert await one.submit(Announce("one:1")) == await other.submit(Announce("other:2"))
        assert [member.address for member in await one.submit(ListMembers())] == ["one:1", "other:2"]
        [(before,)] = await database.ask("SELECT seen_at_ms FROM servers WHERE slot = 0")
        await one.ping(one_ms := (await one.submit(AskShardTime())).ms)
        [(after,)] = await database.ask("SELECT seen_at_ms FROM servers WHERE slot = 0")
        assert after > before
        assert abs(after - one_ms) < 60_000


def test_locks_have_names_that_mysql_takes() -> None:
    """Up to 64 letters, as many as a database's name has; two databases never share one."""
    assert lock_name("migration", "pinlater_1") == b"'pinlater-migration-pinlater_1'"
    names = {lock_name(purpose, "a" * 63 + last) for purpose in ("migration", "partitions") for last in "bc"}
    assert len(names) == 4
    assert max(map(len, names)) <= 64 + len("''")


def test_a_server_with_a_tiny_packet_limit_is_refused() -> None:
    assert judge({"max_allowed_packet": str(1 << 20)}).refused is None
    refused = judge({"max_allowed_packet": "16384"}).refused
    assert refused is not None
    assert "max_allowed_packet is 16384" in refused


def test_a_server_that_gives_no_disk_back_is_said() -> None:
    assert judge({"innodb_file_per_table": "ON"}).warnings == ()
    [warning] = judge({"innodb_file_per_table": "OFF"}).warnings
    assert "innodb_file_per_table is OFF" in warning
