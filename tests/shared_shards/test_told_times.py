"""Servers tell each shard with their heartbeats by which time they go."""

from __future__ import annotations

from collections.abc import Sequence
from secrets import token_urlsafe
from types import SimpleNamespace
from typing import Any

import pytest

from pinlater.domain.errors import ShardConnectionFailed
from pinlater.server.storage.commands import AskShardTime
from pinlater.server.storage.mysql import membership as mysql_membership
from pinlater.server.storage.mysql.connection import MysqlConnection, Result
from pinlater.server.storage.redis import membership as redis_membership
from pinlater.server.storage.redis.readers import Readers
from tests.shared_shards.conftest import AnyDatabase

HOUR_MS = 3_600_000
# A machine may be slow between two statements.
NEAR_MS = 30_000


def let_telling_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection is lost before a shard is told a time; heartbeats come through."""
    run, run_script = MysqlConnection.run, Readers.run

    async def run_but_that(self: MysqlConnection, statements: Sequence[bytes]) -> list[Result]:
        if statements[0].startswith(b"REPLACE INTO clocks"):
            raise ShardConnectionFailed("lost")
        return await run(self, statements)

    async def script_but_that(self: Readers, name: str, *arguments: bytes | int | str) -> Any:
        if name == "renew" and arguments[2]:
            raise ShardConnectionFailed("lost")
        return await run_script(self, name, *arguments)

    monkeypatch.setattr(MysqlConnection, "run", run_but_that)
    monkeypatch.setattr(Readers, "run", script_but_that)


async def near(database: AnyDatabase, slot: int, ahead_ms: int) -> bool:
    told_ms = await database.ahead_ms(slot)
    return told_ms is not None and abs(told_ms - ahead_ms) < NEAR_MS


async def test_a_shard_that_did_not_hear_a_servers_time_is_told_it_with_the_next_heartbeat(
    database: AnyDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a server that starts later goes by another time."""
    shard = await database.open(direct=True)
    now_ms = (await shard.submit(AskShardTime())).ms
    await shard.ping(now_ms)
    assert await near(database, shard.slot, 0)
    with monkeypatch.context() as lost:
        let_telling_fail(lost)
        with pytest.raises(ShardConnectionFailed):
            await shard.ping(now_ms + HOUR_MS)
    assert await near(database, shard.slot, 0)
    await shard.ping(now_ms + HOUR_MS)
    assert await near(database, shard.slot, HOUR_MS)


async def test_a_shard_knows_whether_it_tells_the_time_of_servers(database: AnyDatabase) -> None:
    one, other = await database.open(), await database.open()
    assert not (await one.submit(AskShardTime())).of_servers
    await other.ping((await one.submit(AskShardTime())).ms)
    assert (await one.submit(AskShardTime())).of_servers
    assert not (await other.submit(AskShardTime())).of_servers, "it does not count itself"


@pytest.mark.parametrize("lease", [b"\xed\xbf\x90" * 5 + b"a", b"\x00\xff'\\" * 4])
async def test_a_heartbeat_may_name_a_server_by_any_bytes(
    database: AnyDatabase, monkeypatch: pytest.MonkeyPatch, lease: bytes
) -> None:
    """A database takes the text of an expression as the name of its column, and a driver reads that as text."""
    for module in (mysql_membership, redis_membership):
        monkeypatch.setattr(
            module, "secrets", SimpleNamespace(token_bytes=lambda _: lease, token_urlsafe=token_urlsafe)
        )
    shard = await database.open(direct=True)
    now_ms = (await shard.submit(AskShardTime())).ms
    await shard.ping(now_ms + HOUR_MS)
    assert await near(database, shard.slot, HOUR_MS)
    await shard.ping(now_ms + HOUR_MS)
