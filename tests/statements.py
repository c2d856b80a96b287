"""What stores are sent."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import pytest

from pinlater.server.storage.mysql.connection import MysqlConnection, Result
from pinlater.server.storage.redis.readers import Readers


def noted_statements(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Grows by what all connections of stores that are opened from now on are sent: statements of SQLite and MySQL, and the reading
    scripts of Redis. SQLite's checkpoints, which run in the background, are left out."""
    sent: list[object] = []
    connect, run, run_script = sqlite3.connect, MysqlConnection.run, Readers.run

    def traced(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **kwargs)
        connection.set_trace_callback(lambda text: None if text.startswith("PRAGMA") else sent.append(text))
        return connection

    async def run_noted(self: MysqlConnection, statements: Sequence[bytes]) -> list[Result]:
        sent.extend(statements)
        return await run(self, statements)

    async def script_noted(self: Readers, name: str, *arguments: bytes | int | str) -> Any:
        sent.append(name)
        return await run_script(self, name, *arguments)

    monkeypatch.setattr(sqlite3, "connect", traced)
    monkeypatch.setattr(MysqlConnection, "run", run_noted)
    monkeypatch.setattr(Readers, "run", script_noted)
    return sent
