"""What this disk and MariaDB give a plain loop on one connection: the reference that needs no server of ours.

The table has the columns of the MySQL store's `jobs` table, so that a row weighs the same, and no index beside its key. The statement is
made once and sent again and again; the database numbers the rows. So this is the most that one connection reaches.
"""

from __future__ import annotations

import time

from bench.load import BODY_BYTES
from tests.databases.mariadb import MariaDb

_DATABASE = "bare"
_SCHEMA = f"""
CREATE TABLE {_DATABASE}.jobs (
  id BIGINT NOT NULL PRIMARY KEY AUTO_INCREMENT,
  queue_id INT UNSIGNED NOT NULL,
  priority SMALLINT UNSIGNED NOT NULL,
  run_after_ms BIGINT NOT NULL,
  attempts_allowed INT NOT NULL,
  created_at_ms BIGINT NOT NULL,
  options MEDIUMTEXT,
  body LONGBLOB NOT NULL
) ENGINE = InnoDB
"""
_ROW = f"(1, 1, 1767225600000, 2, 1767225600000, NULL, '{'x' * BODY_BYTES}')"


async def insert_rate(server: MariaDb, rows_per_commit: int, seconds: float) -> float:
    """Rows a second, `rows_per_commit` in each statement, each statement a transaction."""
    columns = "queue_id, priority, run_after_ms, attempts_allowed, created_at_ms, options, body"
    statement = f"INSERT INTO {_DATABASE}.jobs ({columns}) VALUES {', '.join([_ROW] * rows_per_commit)}"
    async with server.connect(**server.login()) as connection, connection.cursor() as cursor:
        await cursor.execute(f"CREATE DATABASE {_DATABASE}")
        await cursor.execute(_SCHEMA)
        number = 0
        started = time.perf_counter()
        while (now := time.perf_counter()) - started < seconds or not number:
            await cursor.execute(statement)
            number += rows_per_commit
        await cursor.execute(f"DROP DATABASE {_DATABASE}")
    return number / (now - started)
