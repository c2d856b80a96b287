"""What this disk and SQLite give a plain loop: the reference that needs no server.

The table has the columns of the SQLite store's `jobs` table, so that a row weighs the same.
"""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

from bench.load import BODY_BYTES

ROWS_PER_BATCH = 500
_SCHEMA = """
CREATE TABLE jobs (
  id INTEGER PRIMARY KEY, queue INTEGER NOT NULL, priority INTEGER NOT NULL, created_at INTEGER NOT NULL,
  run_after INTEGER NOT NULL, attempts INTEGER NOT NULL, body BLOB NOT NULL, status TEXT, headers TEXT,
  unique_key TEXT, claim_timeout INTEGER, expires_at INTEGER
)
"""
_INSERT = "INSERT INTO jobs VALUES (?, 1, 1, 1767225600000, 1767225600000, 2, ?, NULL, NULL, NULL, NULL, NULL)"


def _open(path: Path) -> sqlite3.Connection:
    for each in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        each.unlink(missing_ok=True)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(_SCHEMA)
    return connection


def insert_rate(path: Path, rows_per_commit: int, seconds: float) -> float:
    """Rows a second, `rows_per_commit` in each transaction."""
    connection = _open(path)
    body, number = b"x" * BODY_BYTES, 0
    started = time.perf_counter()
    while (now := time.perf_counter()) - started < seconds or not number:
        rows = [(number + offset, body) for offset in range(rows_per_commit)]
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(_INSERT, rows)
        connection.execute("COMMIT")
        number += rows_per_commit
    connection.close()
    path.unlink()
    return number / (now - started)


def flush_cost_ms(path: Path, times: int) -> float:
    """Median of a 4 KiB append and its fdatasync, in milliseconds."""
    block, costs = b"x" * 4096, []
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    try:
        for _ in range(times):
            os.write(file, block)
            started = time.perf_counter()
            os.fdatasync(file)
            costs.append(time.perf_counter() - started)
    finally:
        os.close(file)
        path.unlink()
    return sorted(costs)[len(costs) // 2] * 1000
