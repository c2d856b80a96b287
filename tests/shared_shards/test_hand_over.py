"""A server that stops gives its slices to the others at once: no timer lies between, only a few calls to the shard."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any
from unittest.mock import AsyncMock

import pytest

from pinlater.domain.slices import SLICES
from pinlater.server.main.app import App
from pinlater.server.storage.commands import ListOwners
from pinlater.server.storage.mysql.connection import MysqlConnection, Result
from pinlater.server.storage.redis.readers import Readers
from tests.shared_shards.conftest import Start
from tests.shared_shards.proxied_database import until

GAVE_AWAY = "gave its slices away"
# One round trip each. A transaction of MySQL goes there in one packet.
NEEDED = {
    "mysql": ["announce", "read owners", "change owners", GAVE_AWAY],
    "redis": ["renew", "keep_secret", "find_owners", "change_owners", GAVE_AWAY],
}
_STATEMENTS = {rb"UPDATE servers SET address": "announce", rb"UPDATE meta": "change owners", rb"SELECT": "read owners"}

stopping: ContextVar[bool] = ContextVar("stopping", default=False)
"""Whether a call to a shard is made because a server stops, and not by periodic work or another server."""


class NotedLines(logging.Handler):
    """Adds messages to `noted`."""

    def __init__(self, noted: list[str]) -> None:
        super().__init__()
        self.noted = noted
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() == GAVE_AWAY:
            self.noted.append(GAVE_AWAY)
            self.records.append(record)


def note_round_trips(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows by each round trip to the shard of a server that stops."""
    noted: list[str] = []
    run, run_script = MysqlConnection.run, Readers.run

    async def run_noted(self: MysqlConnection, statements: Sequence[bytes]) -> list[Result]:
        if stopping.get():
            text = b"; ".join(statements)
            noted.append(next((name for found, name in _STATEMENTS.items() if re.search(found, text)), str(text)))
        return await run(self, statements)

    async def script_noted(self: Readers, name: str, *arguments: bytes | int | str) -> Any:
        if stopping.get():
            noted.append(name)
        return await run_script(self, name, *arguments)

    monkeypatch.setattr(MysqlConnection, "run", run_noted)
    monkeypatch.setattr(Readers, "run", script_noted)
    return noted


def address_of(app: App) -> str:
    assert app.cluster.address is not None
    return app.cluster.address


def slices_of(app: App, seen_by: App) -> int:
    assert seen_by.cluster.ownership is not None
    [shard] = seen_by.core.shards
    return seen_by.cluster.ownership.owners(shard.name).count(address_of(app))


async def share_all(apps: Sequence[App]) -> bool:
    """Whether these servers own all slices in equal shares, and know it."""
    counts = [[slices_of(app, seen_by) for app in apps] for seen_by in apps]
    return all(sum(seen) == SLICES and max(seen) - min(seen) <= 1 for seen in counts)


async def test_a_clean_stop_hands_over_with_a_few_calls_to_the_shard_and_says_how_long_it_took(
    start: Start, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    apps = [await start() for _ in range(3)]
    await until(partial(share_all, apps))
    stops, *others = apps
    owned = slices_of(stops, stops)
    noted = note_round_trips(monkeypatch)
    lines = NotedLines(noted)
    logger = logging.getLogger("pinlater.server.cluster.ownership.ownership")
    logger.addHandler(lines)
    level = logger.level
    logger.setLevel(logging.INFO)
    looks = [other.cluster.look for other in others]
    for other in others:  # a change of theirs at the same moment would cost a second try
        other.cluster.look = AsyncMock()  # type: ignore[method-assign]
    stopping.set(True)
    try:
        await stops.stop(5.0)
    finally:
        stopping.set(False)
        logger.removeHandler(lines)
        logger.setLevel(level)

    *needed, read, change, _ = NEEDED["redis" if kind == "redis" else "mysql"]
    # A look of another server that had begun before may change owners at the same moment: then a second try follows.
    assert noted[: noted.index(GAVE_AWAY)] in ([*needed, read, change], [*needed, read, change, read, change])
    [record] = lines.records
    assert vars(record)["slices"] == owned > 0
    assert vars(record)["took_ms"] >= 0
    [shard] = others[0].core.shards
    assert set((await shard.store.submit(ListOwners())).by_slice) == {address_of(other) for other in others}
    for other, look in zip(others, looks, strict=True):
        other.cluster.look = look  # type: ignore[method-assign]
    await until(partial(share_all, others))
