"""`pinlater server import-original`: an old MySQL server's waiting jobs come into a running server once, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import csv
import itertools
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest

from pinlater.client import AsyncClient, Client, JobInfo, JobState
from pinlater.client.errors import CallerError
from pinlater.domain.clock import SystemClock
from pinlater.import_original import source as reading
from pinlater.import_original.copy import Copy, CopyPlan
from pinlater.import_original.old_server import OriginalTls, server_of
from pinlater.testing import RealServer
from tests.cli.conftest import COMMAND, Done, Pinlater
from tests.client.fake_server import FakeServer
from tests.databases.database import DatabaseServer
from tests.databases.mariadb import MariaDb
from tests.databases.mysql import MySql8
from tests.databases.proxy import Proxy, in_thread

PENDING, IN_PROGRESS, SUCCEEDED, FAILED = range(4)
JOBS = """\
CREATE TABLE `{database}`.`jobs_p{priority}` (
  local_id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  state TINYINT NOT NULL,
  claim_descriptor VARCHAR(200),
  attempts_allowed INT NOT NULL,
  attempts_remaining INT NOT NULL,
  custom_status VARCHAR(5000),
  updated_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
  created_at TIMESTAMP NOT NULL DEFAULT '0000-00-00 00:00:00',
  run_after TIMESTAMP NOT NULL DEFAULT '0000-00-00 00:00:00',
  body BLOB,
  PRIMARY KEY (local_id),
  KEY by_state (state, run_after)
) ENGINE = InnoDB DEFAULT CHARSET = {charset}
"""
INSERT = (
    "INSERT INTO `{database}`.`jobs_p{priority}`"
    " (state, attempts_allowed, attempts_remaining, custom_status, created_at, run_after, body) VALUES "
)
VALUES = "(%s, %s, %s, %s, FROM_UNIXTIME(%s), FROM_UNIXTIME(%s), %s)"
CREATED_S = 1_600_000_000


class OldRow(NamedTuple):
    """What the tests vary of a row."""

    body: bytes | None
    state: int = PENDING
    attempts_remaining: int = 10
    custom_status: str | None = ""
    run_after_s: int = CREATED_S


class OldServer:
    """A MariaDB with tables of the original in it."""

    def __init__(self, server: DatabaseServer, password_file: Path) -> None:
        self.server = server
        self.url = f"mysql://{server.user}@{server.address}/"
        self._password = ["--password-file", str(password_file)]
        password_file.write_text(server.password + "\n")

    def make(
        self, queue: str, rows: Sequence[OldRow], *, shard: str = "1", priority: int = 1, charset: str = "latin1"
    ) -> None:
        """A queue's table on a shard, with these rows; ids count from 1."""
        place = {"database": f"plq_{shard}_{queue}", "priority": priority}
        values = [
            (row.state, 10, row.attempts_remaining, row.custom_status, CREATED_S, row.run_after_s, row.body)
            for row in rows
        ]

        async def fill() -> None:
            async with self.server.connect(charset="utf8mb4") as connection, connection.cursor() as cursor:
                await cursor.execute("SET time_zone = '+00:00', sql_mode = ''")
                await cursor.execute(f"CREATE DATABASE IF NOT EXISTS `{place['database']}`")
                await cursor.execute(JOBS.format(**place, charset=charset))
                for some in (values[first : first + 1000] for first in range(0, len(values), 1000)):
                    lists = ",".join([VALUES] * len(some))
                    await cursor.execute(INSERT.format(**place) + lists, list(itertools.chain(*some)))

        asyncio.run(fill())

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        return asyncio.run(self.server.execute(statement))

    def arguments(self, *more: str, url: str = "") -> list[str]:
        return ["server", "import-original", "--from", url or self.url, *self._password, *more]


@pytest.fixture
def old(mariadb: MariaDb, tmp_path: Path) -> Iterator[OldServer]:
    yield OldServer(mariadb, tmp_path / "password")
    asyncio.run(mariadb.drop_databases("plq_"))


@pytest.fixture
def name() -> str:
    """A queue's name for this test alone, with every character that names may have."""
    return f"Q_{uuid4().hex}_e"


@pytest.fixture
def run(pinlater: Pinlater, old: OldServer) -> Callable[..., Any]:
    """Imports, and must be done with it; what it counted."""
    return lambda *more: pinlater.ok(*old.arguments("--json", *more)).json["queues"]


def jobs_of(address: str, queue: str) -> list[JobInfo]:
    """All waiting jobs there, by body."""
    with Client(address) as client:
        found = [
            job
            for future in (False, True)
            for job in client.scan(queue, JobState.PENDING, future=future, limit=10_000, bodies=True).jobs
        ]
    return sorted(found, key=lambda job: job.body or b"")


def start(arguments: Sequence[str], address: str) -> subprocess.Popen[bytes]:
    """The command as a process of its own."""
    return subprocess.Popen(
        [*COMMAND, *arguments, "--server", address],
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def numbered(count: int) -> list[OldRow]:
    return [OldRow(b"job-%05d" % number) for number in range(count)]


def test_a_waiting_job_comes_as_it_was(
    run: Callable[..., Any], old: OldServer, name: str, pinlater: Pinlater, tmp_path: Path
) -> None:
    """Bytes, priority, time, remaining attempts, status; from every shard and priority."""
    late_s = SystemClock().now_ms() // 1000 + 300 * 86_400
    status = "é" * 5000
    old.make(
        name, [OldRow(bytes(range(256)), PENDING, 3, status, late_s), OldRow(None, PENDING, 0, None, 0)], shard="1d2"
    )
    old.make(name, [OldRow(b"low", PENDING, 1, "it's\\fine")], shard="2", priority=3, charset="utf8")
    report = run("--map", str(tmp_path / "map.csv"))
    assert [(row["priority"], row["found"], row["copied"], row["already_there"]) for row in report] == [
        (1, 2, 2, 0),
        (3, 1, 1, 0),
    ]
    empty, binary, low = jobs_of(pinlater.address, name)
    assert (binary.body, binary.custom_status, binary.run_after_ms) == (bytes(range(256)), status, late_s * 1000)
    assert (binary.attempts_allowed, binary.attempts_remaining) == (3, 3)
    assert (empty.body, empty.custom_status, empty.attempts_remaining) == (b"", "", 1)
    assert empty.run_after_ms is not None
    assert 0 <= empty.created_at_ms - empty.run_after_ms < 60_000  # no time in the table: due now
    assert (low.body, low.custom_status, low.run_after_ms) == (b"low", "it's\\fine", CREATED_S * 1000)
    assert ":p3:" in low.descriptor
    with (tmp_path / "map.csv").open() as file:
        names = {row["old"]: row["new"] for row in csv.DictReader(file)}
    assert names == {
        f"{name}:s1d2:p1:1": binary.descriptor,
        f"{name}:s1d2:p1:2": empty.descriptor,
        f"{name}:s2:p3:1": low.descriptor,
    }


def test_other_states_are_counted_and_left_unless_work_in_progress_is_wanted(
    old: OldServer, name: str, pinlater: Pinlater, run: Callable[..., Any]
) -> None:
    """Their workers may still run, which the output says."""
    states = [PENDING, IN_PROGRESS, SUCCEEDED, SUCCEEDED, FAILED, 7]
    old.make(name, [OldRow(b"%d" % index, state) for index, state in enumerate(states)])
    done = pinlater(*old.arguments())
    assert done.code == 0
    assert done.out.splitlines()[1].split("\t") == [name, "1", "1", "1", "0", "1", "2", "1", "1"]
    assert done.err.startswith("note: 1 job IN_PROGRESS left in the original")
    (row,) = run("--include-in-progress")
    assert (row["found"], row["copied"], row["already_there"]) == (2, 1, 1)
    assert row["left"] == {"in_progress": 0, "succeeded": 2, "failed": 1, "other": 1}
    assert [job.body for job in jobs_of(pinlater.address, name)] == [b"0", b"1"]


def test_a_job_that_is_due_in_more_than_a_year_is_left_and_counted(
    old: OldServer, name: str, pinlater: Pinlater, run: Callable[..., Any]
) -> None:
    """No server takes it; one with a time that its producer gave in seconds is due, as it was in the original."""
    far_s = SystemClock().now_ms() // 1000 + 3 * 366 * 86_400
    old.make(name, [OldRow(b"far", PENDING, 2, "", far_s), OldRow(b"1970", PENDING, 2, "", 1_900_000), OldRow(b"now")])
    done = pinlater(*old.arguments())
    assert done.code == 0
    assert done.err.startswith("note: 1 job left in the original")
    (row,) = run()
    assert (row["found"], row["already_there"], row["left"]["due_in_more_than_a_year"]) == (2, 2, 1)
    assert [job.body for job in jobs_of(pinlater.address, name)] == [b"1970", b"now"]


def test_ten_thousand_jobs_come_once_though_they_are_imported_twice(
    run: Callable[..., Any], old: OldServer, name: str, pinlater: Pinlater
) -> None:
    """A job that ran meanwhile doesn't come back."""
    old.make(name, numbered(10_000))
    assert run()[0]["copied"] == 10_000
    pinlater.ok("job", "dequeue", name, "--limit", "1", "--ack")
    old.make(name, [OldRow(b"another")], shard="2")
    again = run()[0]
    assert (again["found"], again["copied"], again["already_there"]) == (10_001, 1, 10_000)
    assert len({job.body for job in jobs_of(pinlater.address, name)}) == 10_000


@pytest.mark.parametrize("moment", ["before the request arrives", "after it was carried out"])
@pytest.mark.crash
def test_killed_in_the_middle_and_begun_again_nothing_is_doubled_and_nothing_lost(
    moment: str, old: OldServer, name: str, pinlater: Pinlater
) -> None:
    old.make(name, numbered(1000))
    with in_thread(pinlater.address) as proxy:
        trap = (proxy.lose_request if moment.startswith("before") else proxy.lose_answer)(b"job-00300", hang=True)
        process = start(old.arguments(), proxy.address)
        trap.wait_in_thread(60)
        process.kill()
        process.communicate()
    (row,) = pinlater.ok(*old.arguments("--json")).json["queues"]
    assert row["copied"] + row["already_there"] == 1000
    assert 0 < row["already_there"] < 1000
    assert [job.body for job in jobs_of(pinlater.address, name)] == [job.body for job in numbered(1000)]


@pytest.mark.parametrize("side", ["new", "old"])
def test_a_connection_that_breaks_is_made_again(side: str, old: OldServer, name: str, pinlater: Pinlater) -> None:
    old.make(name, numbered(400))

    def through(proxy: Proxy) -> tuple[Done, bool]:
        if side == "new":
            trap = proxy.lose_answer(b"job-00200")
            return pinlater(*old.arguments("--json", "--server", proxy.address)), trap.sprung
        trap = proxy.lose_answer(b"local_id >= 51")
        return pinlater(*old.arguments("--json", url=f"mysql://pinlater@{proxy.address}")), trap.sprung

    with in_thread(pinlater.address if side == "new" else old.server.address) as proxy:
        done, sprung = through(proxy)
    assert (done.code, done.err, sprung) == (0, "", True)
    (row,) = done.json["queues"]
    assert row["copied"] + row["already_there"] == 400
    assert len(jobs_of(pinlater.address, name)) == 400


def test_a_dry_run_counts_and_changes_nothing(old: OldServer, name: str, offline: Pinlater) -> None:
    """It needs no new server. The import never changes the old one either."""
    old.make(name, [OldRow(b"a"), OldRow(b"b", IN_PROGRESS)])
    before = old.execute(f"CHECKSUM TABLE `plq_1_{name}`.jobs_p1")
    done = offline.ok(*old.arguments("--dry-run", "--json"))
    assert done.json == {
        "dry_run": True,
        "queues": [
            {
                "queue": name,
                "priority": 1,
                "found": 1,
                "copied": 0,
                "already_there": 0,
                "left": {"in_progress": 1, "succeeded": 0, "failed": 0, "other": 0},
            }
        ],
    }
    assert old.execute(f"CHECKSUM TABLE `plq_1_{name}`.jobs_p1") == before


def test_only_the_queues_that_are_named_are_taken(
    run: Callable[..., Any], old: OldServer, name: str, pinlater: Pinlater
) -> None:
    old.make(name, [OldRow(b"a")])
    old.make(f"{name}2", [OldRow(b"b")])
    assert [row["queue"] for row in run("--queue", name)] == [name]
    assert f"{name}2" not in pinlater.ok("queue", "list").out.split()
    refused = pinlater(*old.arguments("--queue", "nowhere"))
    assert refused.code == 1
    assert refused.err.startswith("error: No tables of queue nowhere")


def test_the_import_ignores_databases_and_tables_of_other_programs(
    run: Callable[..., Any], old: OldServer, name: str
) -> None:
    """The server has databases and tables of other programs."""
    old.make(name, [OldRow(b"a")])
    old.execute(f"CREATE TABLE `plq_1_{name}`.jobs_p1_copy (id INT)")
    old.execute(f"CREATE DATABASE `plq_x_{name}`")
    old.execute(f"CREATE TABLE `plq_x_{name}`.jobs_p1 (id INT)")
    assert [row["found"] for row in run()] == [1]


def test_a_table_of_another_shape_is_said_with_its_name(old: OldServer, name: str, pinlater: Pinlater) -> None:
    old.execute(f"CREATE DATABASE `plq_1_{name}`")
    old.execute(f"CREATE TABLE `plq_1_{name}`.jobs_p1 (local_id INT PRIMARY KEY)")
    refused = pinlater(*old.arguments())
    assert (refused.code, refused.err.startswith(f"error: plq_1_{name}.jobs_p1 on 127.0.0.1:")) == (1, True)


def test_the_import_names_the_setting_with_which_the_server_accepts_the_jobs(
    old: OldServer, name: str, pinlater: Pinlater
) -> None:
    old.make(name, [OldRow(b"a")], priority=4)
    refused = pinlater(*old.arguments())
    assert (refused.code, "jobs.priority_levels = 4" in refused.err) == (1, True)


def test_a_wrong_password_is_said_without_it(old: OldServer, pinlater: Pinlater, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("not-that-one\n")
    refused = pinlater(*old.arguments())
    assert (refused.code, refused.out) == (1, "")
    assert "Access denied for user 'pinlater'" in refused.err
    assert "not-that-one" not in refused.err


def test_the_password_may_be_in_the_environment_and_never_in_the_address(
    old: OldServer, name: str, pinlater: Pinlater, monkeypatch: pytest.MonkeyPatch
) -> None:
    old.make(name, [])
    monkeypatch.setenv("PINLATER_ORIGINAL_PASSWORD", old.server.password)
    assert pinlater.ok("server", "import-original", "--from", old.url).out.count("\n") == 2
    refused = pinlater("server", "import-original", "--from", "mysql://u:hidden@127.0.0.1/")
    assert (refused.code, "hidden" in refused.err, "--password-file" in refused.err) == (2, False, True)


def test_the_import_ends_at_once_if_a_server_is_unreachable_at_the_start(
    old: OldServer, name: str, offline: Pinlater
) -> None:
    old.make(name, [OldRow(b"a")])
    assert offline(*old.arguments()).code == 3
    assert offline(*old.arguments("--dry-run", url="mysql://pinlater@127.0.0.1:1/")).code == 3


def test_with_a_server_that_stays_away_it_gives_up_and_says_what_is_done(
    old: OldServer, name: str, pinlater: Pinlater
) -> None:
    old.make(name, numbered(400))
    with in_thread(pinlater.address) as proxy:
        proxy.lose_request(b"job-00060")
        failed = pinlater(*old.arguments("--retry-for", "0", "--json", "--server", proxy.address))
    assert failed.code == 3
    (row,) = failed.json["queues"]
    assert (row["found"], row["copied"]) == (150, 50)


def test_interrupted_from_the_keyboard_it_says_what_is_done(old: OldServer, name: str, pinlater: Pinlater) -> None:
    old.make(name, numbered(400))
    with in_thread(pinlater.address) as proxy:
        trap = proxy.lose_request(b"job-00060", hang=True)
        process = start(old.arguments("--json"), proxy.address)
        trap.wait_in_thread(60)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (130, b"")
    assert json.loads(out)["queues"][0]["copied"] == 50


def test_a_queue_that_is_full_is_waited_for_and_then_said(old: OldServer, name: str, pinlater: Pinlater) -> None:
    old.make(name, numbered(200))
    pinlater.ok("queue", "create", name)
    pinlater.ok("queue", "config", name, "--max-backlog", "60")
    failed = pinlater(*old.arguments("--retry-for", "150ms", "--json"))
    assert (failed.code, failed.json["queues"][0]["copied"]) == (4, 50)
    pinlater.ok("queue", "config", name, "--max-backlog", "default")
    assert pinlater.ok(*old.arguments("--json")).json["queues"][0]["already_there"] == 50


def test_an_id_that_is_used_again_is_another_job(
    run: Callable[..., Any], old: OldServer, name: str, pinlater: Pinlater
) -> None:
    """A queue that was deleted and created again begins at 1, and an old MySQL forgets its last number when it restarts."""
    old.make(name, [OldRow(b"first")])
    run()
    old.execute(f"TRUNCATE TABLE `plq_1_{name}`.jobs_p1")
    old.execute(
        f"INSERT INTO `plq_1_{name}`.jobs_p1 (state, attempts_allowed, attempts_remaining, created_at, run_after, body)"
        " VALUES (0, 1, 1, NOW(), NOW(), 'second')"
    )
    assert run()[0]["copied"] == 1
    assert [job.body for job in jobs_of(pinlater.address, name)] == [b"first", b"second"]


def test_two_installations_with_equal_names_are_told_apart(run: Callable[..., Any], old: OldServer, name: str) -> None:
    old.make(name, [OldRow(b"a")])
    assert [run("--origin", origin)[0]["copied"] for origin in ("east", "west", "east")] == [1, 1, 0]


def test_the_shard_file_of_the_original_gives_the_addresses_and_users(
    old: OldServer, name: str, pinlater: Pinlater, tmp_path: Path
) -> None:
    """Two replica sets on one server are one to read; keys that are not ours are passed over."""
    old.make(name, [OldRow(b"a")])
    entry = {"master": old.server.tcp, "user": old.server.user, "passwd": old.server.password, "dequeueOnly": True}
    shards = {"pinlaterdb001": entry, "pinlaterdb002": entry, "otherdb001": {}}
    (tmp_path / "shards.json").write_text(json.dumps(shards))
    arguments = ["server", "import-original", "--from-shards", str(tmp_path / "shards.json"), "--json"]
    done = pinlater.ok(*arguments, "--host-prefix", "pinlaterdb")
    assert [(row["found"], row["copied"]) for row in done.json["queues"]] == [(1, 1)]
    assert pinlater(*arguments).code == 2
    assert pinlater("server", "import-original").code == 2


def test_the_import_needs_only_a_user_that_may_read(old: OldServer, name: str, pinlater: Pinlater) -> None:
    old.make(name, [OldRow(b"a")])
    old.make(f"{name}2", [OldRow(b"a")])
    user = f"reader{uuid4().hex[:8]}"
    old.execute(f"CREATE USER '{user}'@'%' IDENTIFIED BY '{old.server.password}'")
    old.execute(f"GRANT SELECT ON `plq\\_1\\_{name}`.* TO '{user}'@'%'")
    try:
        done = pinlater.ok(*old.arguments("--json", url=f"mysql://{user}@{old.server.address}/"))
        assert [row["queue"] for row in done.json["queues"]] == [name]
    finally:
        old.execute(f"DROP USER '{user}'@'%'")


def test_a_mysql_server_that_wants_tls(
    start_mysql8: Callable[..., MySql8], pinlater: Pinlater, name: str, tmp_path: Path
) -> None:
    """With its own way to log in; its strictness about dates doesn't matter."""
    old = OldServer(start_mysql8(tls=True, require_secure_transport=True), tmp_path / "password")
    old.make(name, [OldRow(b"a", custom_status="ß", run_after_s=0), OldRow(b"b", SUCCEEDED)])
    assert pinlater(*old.arguments()).code == 1
    authority = old.server.certificates
    assert authority is not None
    (row,) = pinlater.ok(*old.arguments("--json", "--tls-ca", str(authority.authority))).json["queues"]
    assert (row["copied"], row["left"]["succeeded"]) == (1, 1)
    assert jobs_of(pinlater.address, name)[0].custom_status == "ß"


@pytest.mark.crash
def test_into_several_mysql_shards_too_each_job_comes_once(
    old: OldServer, name: str, mariadb_prefix: str, pinlater: Pinlater, tmp_path: Path
) -> None:
    """With the old tables in the same database server. All go to the first shard of their queue."""
    old.make(name, numbered(600))
    entry = {"master": old.server.tcp, "user": old.server.user, "passwd": old.server.password}
    (tmp_path / "shards.json").write_text(json.dumps({"db001": entry, "db002": entry}))
    options = ["--set", f"mysql.database_prefix={mariadb_prefix.rstrip('_')}"]
    with RealServer(tmp_path, *options, store=f"mysql:{tmp_path / 'shards.json'}") as server:
        with in_thread(server.address) as proxy:
            trap = proxy.lose_answer(b"job-00300", hang=True)
            process = start(old.arguments(), proxy.address)
            trap.wait_in_thread(60)
            process.kill()
            process.communicate()
        (row,) = pinlater.ok(*old.arguments("--json", "--server", server.address)).json["queues"]
        assert (row["found"], row["copied"] + row["already_there"]) == (600, 600)
        jobs = jobs_of(server.address, name)
    assert [job.body for job in jobs] == [job.body for job in numbered(600)]
    assert len({job.descriptor.split(":")[1] for job in jobs}) == 1


async def test_an_original_server_is_refused_as_the_one_to_copy_into() -> None:
    """It knows no unique keys, so a second run would double everything."""
    async with FakeServer() as server, AsyncClient(server.address, request_keys=False) as client:
        copy = Copy(CopyPlan(), client, lambda _: None, lambda *_: None, SystemClock())
        with pytest.raises(CallerError, match="is an original PinLater"):
            await copy.run([])
        assert server.called("enqueueJobs") == []


def test_a_long_run_says_where_it_is(
    old: OldServer, name: str, pinlater: Pinlater, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pinlater.cli.commands.server.import_original.progress._LINE_EVERY_S", 0.0)
    old.make(name, numbered(60))
    done = pinlater(*old.arguments("--json"))
    assert [json.loads(line) for line in done.err.splitlines()] == [
        {"note": f"plq_1_{name}.jobs_p1: {copied} copied, 0 there already, 0 left"} for copied in (50, 60)
    ]


def test_large_bodies_make_short_pages() -> None:
    """Memory doesn't follow the size of the table or of the bodies."""
    table = reading.Table("q", 1, "1", "plq_1_q")
    sizes: list[int] = []

    class Rows(reading.Original):
        async def _run(self, statement: str) -> Sequence[tuple[Any, ...]]:
            sizes.append(int(statement.rsplit("LIMIT", 1)[1]))
            return [(number, PENDING, 1, 1, 1, "", b"x" * body) for number in range(sizes[-1])]

    original = Rows(server_of("mysql://u@h/", ""), OriginalTls())

    async def read(pages: int) -> None:
        for _ in range(pages):
            await original.page(table, 0, [JobState.PENDING], bodies=True)

    body = 10
    asyncio.run(read(6))
    assert sizes[-1] == 500
    body = 64 * 1024
    asyncio.run(read(2))
    assert sizes[-1] * body <= 4 * 1024 * 1024
    assert json.dumps(sizes[:4]) == "[50, 100, 200, 400]"
