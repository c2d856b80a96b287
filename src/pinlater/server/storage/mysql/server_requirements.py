"""Checks the version and the settings of a database server.

A server that is too old, or whose settings do not allow our transactions, is refused with what to do. A server that does not flush its
commits gets a warning: an operator may have chosen that, and a crash of its machine may then lose acknowledged jobs.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import NamedTuple

from pinlater.domain.errors import ShardConnectionFailed
from pinlater.server.storage.mysql.connection import MysqlConnection
from pinlater.server.storage.mysql.products import refusal_of
from pinlater.server.storage.mysql.settings import MysqlEndpoint
from pinlater.server.storage.mysql.statements import sql

logger = logging.getLogger(__name__)

_LOAD_SERVER_SETTINGS = sql("load_server_settings")
_LOAD_REPLICATION_STATUS = sql("load_replication_status")
# A lower value would limit the bodies of all shards.
_LEAST_PACKET = 256 * 1024
_LEAST = {"MariaDB": (10, 6), "MySQL": (8, 0)}


class Verdict(NamedTuple):
    """`refused`: why it can't be used, or None. `warnings`: the promises that it doesn't keep."""

    refused: str | None = None
    warnings: tuple[str, ...] = ()


async def check_server(connection: MysqlConnection, endpoint: MysqlEndpoint) -> None:
    """Logs the warnings. Raises `ShardConnectionFailed`, which no retry helps, if the server can't be used."""
    verdict = await verdict_on(connection)
    if verdict.refused is not None:
        raise ShardConnectionFailed(f"{endpoint}: {verdict.refused}", retryable=False)
    for warning in verdict.warnings:
        logger.warning(warning, extra={"shard": str(endpoint)})


async def verdict_on(connection: MysqlConnection) -> Verdict:
    """Asks the server for its settings, and judges them."""
    found = await connection.run([_LOAD_SERVER_SETTINGS(), _LOAD_REPLICATION_STATUS()])
    return judge({_text(name).lower(): _text(value) for result in found for name, value in result.rows})


def judge(variables: Mapping[str, str]) -> Verdict:
    """Returns the server's global variables and status variables, by their names in lower case. A variable that it doesn't
    have counts as good."""
    version = variables.get("version", "")
    refused = refusal_of(f"{version} {variables.get('version_comment', '')}")
    if refused is not None:
        return Verdict(refused)
    kind = "MariaDB" if "mariadb" in version.lower() else "MySQL"
    numbers = re.match(r"(\d+)\.(\d+)", version)
    least = _LEAST[kind]
    if numbers is not None and (int(numbers[1]), int(numbers[2])) < least:
        return Verdict(f"{kind} {numbers[0]} is too old: {least[0]}.{least[1]} or newer is needed")
    logs = variables.get("log_bin", "OFF") == "ON"
    if logs and variables.get("binlog_format", "ROW") == "STATEMENT":
        return Verdict("its binlog_format is STATEMENT, which READ COMMITTED forbids; make it ROW or MIXED")
    packet = int(variables.get("max_allowed_packet", _LEAST_PACKET))
    if packet < _LEAST_PACKET:
        return Verdict(
            f"its max_allowed_packet is {packet}, which holds next to nothing; make it {_LEAST_PACKET} or more"
        )
    warnings = []
    if variables.get("innodb_flush_log_at_trx_commit", "1") != "1":
        warnings.append(
            "innodb_flush_log_at_trx_commit is not 1: what was answered can be lost with the database's machine"
        )
    if logs and variables.get("sync_binlog", "1") != "1":
        warnings.append(
            "there is a binary log and sync_binlog is not 1: what was answered can be lost with the database's machine"
        )
    for role in ("master", "source"):
        enabled, status = (variables.get(f"rpl_semi_sync_{role}_{name}") for name in ("enabled", "status"))
        if (enabled, status) == ("ON", "OFF"):
            warnings.append(
                "semi-synchronous replication has fallen back to asynchronous: no COMMIT waits for a replica, "
                "and a failover loses what was answered"
            )
    if variables.get("innodb_file_per_table", "ON") != "ON":
        warnings.append(
            "innodb_file_per_table is OFF: what is dropped gives no disk back, the shared file only ever grows"
        )
    return Verdict(None, tuple(warnings))


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
