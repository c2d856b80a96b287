"""Which database servers are taken, and what is said of those that don't keep what an answer promises."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from pinlater.domain.errors import ShardConnectionFailed
from pinlater.server.storage.mysql.server_requirements import judge
from pinlater.server.storage.mysql.settings import MysqlEndpoint
from pinlater.server.storage.mysql.shard import MysqlShard
from tests.databases.database import DatabaseServer


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
