"""Which database servers are taken, and what is said of those that don't keep what an answer promises."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from pinlater.domain.errors import ShardConnectionFailed
from pinlater.server.storage.mysql.offline import look_at_shard, migrate_shard
from pinlater.server.storage.mysql.server_requirements import judge
from pinlater.server.storage.mysql.settings import MysqlEndpoint, MysqlSettings
from pinlater.server.storage.mysql.shard import MysqlShard
from tests.databases.database import DatabaseServer
from tests.databases.mariadb import MariaDb


@pytest.mark.parametrize(
    ("version", "refused"),
    [
        ("8.0.15", None),
        ("9.4.0", None),
        ("8.0.36-28.1 Percona", None),
        ("10.6.0-MariaDB", None),
        ("10.11.14-MariaDB-0+deb12u2", None),
        ("11.4.2-MariaDB", None),
        ("5.7.44-log", "MySQL 5.7 is too old: 8.0 or newer is needed"),
        ("10.5.29-MariaDB", "MariaDB 10.5 is too old: 10.6 or newer is needed"),
        ("who knows", None),
    ],
)
def test_a_server_that_is_too_old_is_refused(version: str, refused: str | None) -> None:
    assert judge({"version": version}).refused == refused


@pytest.mark.parametrize(
    ("version", "comment", "name"),
    [
        ("8.0.11-TiDB-v7.5.1", "", "TiDB"),
        ("5.7.25-TiDB-v6.5.0-serverless", "", "TiDB"),
        ("8.0.36", "TiDB Server (Apache License 2.0) Community Edition, MySQL 8.0 compatible", "TiDB"),
        ("8.0.30-Vitess", "", "Vitess"),
        ("8.0.23-vitess", "", "PlanetScale"),
        ("8.0.34-PlanetScale", "", "PlanetScale"),
        (
            "5.7.32",
            "SingleStoreDB source distribution (compatible; MySQL Enterprise & MySQL Commercial)",
            "SingleStore",
        ),
        ("5.5.8", "MemSQL source distribution (compatible; MySQL Enterprise & MySQL Commercial)", "SingleStore"),
        ("8.0.33", "Dolt", "Dolt"),
    ],
)
def test_a_product_that_breaks_a_promise_is_refused_by_name(version: str, comment: str, name: str) -> None:
    refused = judge({"version": version, "version_comment": comment}).refused
    assert refused is not None
    assert name in refused
    assert "use MySQL or MariaDB" in refused


@pytest.mark.parametrize(
    ("version", "comment"),
    [
        ("8.0.35", "MySQL Community Server - GPL"),
        ("8.0.32", "Source distribution"),  # Amazon RDS and Aurora
        ("8.0.31-google", "(Google)"),
        ("8.0.35-azure", "MySQL Community Server - GPL"),
        ("8.4.3-3", "Percona Server (GPL), Release 3, Revision ac548e54"),
        ("8.0.36-28.1", "Percona XtraDB Cluster (GPL), Release rel28, Revision bfb687f, WSREP version 26.1.4.3"),
        ("10.11.14-MariaDB-0+deb12u2-log", "Debian 12"),
        ("11.4.2-MariaDB", "mariadb.org binary distribution"),
    ],
)
def test_each_build_of_mysql_and_mariadb_is_taken(version: str, comment: str) -> None:
    assert judge({"version": version, "version_comment": comment}).refused is None


@pytest.mark.parametrize("after", [0, 1], ids=["from the first word on", "only in its variables"])
async def test_a_server_that_calls_itself_another_product_is_refused_before_anything_is_made(
    mariadb: MariaDb, mariadb_prefix: str, after: int
) -> None:
    async with renamed(mariadb, b"-MariaDB", b"-TiDB-v7", after) as port:
        endpoint = MysqlEndpoint("127.0.0.1", port, mariadb.user, mariadb.password, f"{mariadb_prefix}1")
        with pytest.raises(
            ShardConnectionFailed, match=r"it is TiDB, which locks no row .* hand out one job"
        ) as refused:
            await MysqlShard(endpoint).open(0)
        with pytest.raises(ShardConnectionFailed, match="it is TiDB"):
            await migrate_shard(endpoint, MysqlSettings(), "1")
    assert not refused.value.retryable
    assert await mariadb.execute("SHOW DATABASES LIKE %s", f"{mariadb_prefix}%") == []


@asynccontextmanager
async def renamed(server: DatabaseServer, old: bytes, new: bytes, after: int) -> AsyncIterator[int]:
    """The port of a proxy in which the server says `new` in the place of `old`, from its answer number `after` on."""
    assert len(old) == len(new)
    tasks: set[asyncio.Task[None]] = set()

    async def pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter, first: int | None) -> None:
        answers = 0
        with contextlib.suppress(OSError):
            while data := await source.read(65_536):
                target.write(data if first is None or answers < first else data.replace(old, new))
                answers += 1
                await target.drain()
        target.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind = await asyncio.open_connection(server.host, server.port)
        for one in (pass_on(reader, behind[1], None), pass_on(behind[0], writer, after)):
            tasks.add(asyncio.create_task(one))

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listener:
        yield listener.sockets[0].getsockname()[1]
    await asyncio.gather(*tasks)


@pytest.mark.parametrize(
    ("said", "warned"),
    [
        ({"rpl_semi_sync_master_enabled": "ON", "rpl_semi_sync_master_status": "OFF"}, True),
        ({"rpl_semi_sync_source_enabled": "ON", "rpl_semi_sync_source_status": "OFF"}, True),
        ({"rpl_semi_sync_source_enabled": "ON", "rpl_semi_sync_source_status": "ON"}, False),
        ({"rpl_semi_sync_master_enabled": "OFF", "rpl_semi_sync_master_status": "OFF"}, False),
        ({}, False),
    ],
)
def test_semi_synchronous_replication_that_is_not_is_warned_of(said: dict[str, str], warned: bool) -> None:
    """By the names of MariaDB and older MySQLs, and by those of MySQL from 8.0.26 on."""
    assert ["has fallen back" in warning for warning in judge(said).warnings] == [True] * warned


async def test_a_fall_back_from_semi_synchronous_replication_is_said_at_the_start(
    start_mariadb: Callable[..., MariaDb], caplog: pytest.LogCaptureFixture
) -> None:
    """There is no replica: the first COMMIT waits for one in vain."""
    server = start_mariadb(
        log_bin="log", server_id=1, rpl_semi_sync_master_enabled=True, rpl_semi_sync_master_timeout=1
    )
    shard = shard_on(server)
    await shard.open(1)
    await shard.close()
    with caplog.at_level(logging.WARNING, "pinlater"):
        await shard.open(1)
    await shard.close()
    assert "semi-synchronous replication has fallen back to asynchronous" in caplog.text
    look = await look_at_shard(shard.endpoint, MysqlSettings(), "1", 1)
    assert any("has fallen back" in warning for warning in look.warnings)
    await server.execute("SET GLOBAL rpl_semi_sync_master_enabled = OFF")
    look = await look_at_shard(shard.endpoint, MysqlSettings(), "1", 1)
    assert not any("has fallen back" in warning for warning in look.warnings)


def test_settings_that_keep_every_promise_give_no_warning() -> None:
    good = {"innodb_flush_log_at_trx_commit": "1", "log_bin": "ON", "sync_binlog": "1", "binlog_format": "ROW"}
    assert judge(good).warnings == ()
    assert judge({"log_bin": "OFF", "sync_binlog": "0", "binlog_format": "STATEMENT"}).warnings == ()


@pytest.fixture(params=["mariadb", "mysql8"])
def start_server(request: pytest.FixtureRequest) -> Callable[..., DatabaseServer]:
    start: Callable[..., DatabaseServer] = request.getfixturevalue(f"start_{request.param}")
    return start


def shard_on(server: DatabaseServer) -> MysqlShard:
    return MysqlShard(MysqlEndpoint(server.host, server.port, server.user, server.password, "pinlater_1"))


async def test_flushes_that_are_switched_off_are_said(
    start_server: Callable[..., DatabaseServer], caplog: pytest.LogCaptureFixture
) -> None:
    server = start_server(innodb_flush_log_at_trx_commit=2, log_bin="log", server_id=1, sync_binlog=0)
    shard = shard_on(server)
    with caplog.at_level(logging.WARNING, "pinlater"):
        await shard.open(1)
    await shard.close()
    said = [
        record.message
        for record in caplog.records
        if record.name == "pinlater.server.storage.mysql.server_requirements"
    ]
    assert [message.partition(":")[0] for message in said] == [
        "innodb_flush_log_at_trx_commit is not 1",
        "there is a binary log and sync_binlog is not 1",
    ]


async def test_a_binary_log_of_statements_is_refused_with_what_to_do(
    start_server: Callable[..., DatabaseServer],
) -> None:
    server = start_server(log_bin="log", server_id=1, binlog_format="STATEMENT")
    with pytest.raises(ShardConnectionFailed, match="make it ROW or MIXED") as caught:
        await shard_on(server).open(1)
    assert not caught.value.retryable
