"""Sentinels that disagree: one that is cut off from the others still names the master that they have replaced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from pinlater.server.storage.redis.connection import Address, master_address
from pinlater.server.storage.redis.errors import NoConnection
from pinlater.server.storage.redis.settings import RedisEndpoint, RedisSettings

OLD, NEW = ("old", 6379), ("new", 6380)
_NO_PERMISSION = b"-NOPERM no permission\r\n"


class FakeSentinel:
    """Answers as a Sentinel does that knows `master` by that configuration epoch; without one it may not be asked for it."""

    def __init__(self, master: Address | None, epoch: int | None = None, *, hangs: bool = False) -> None:
        self._master = master
        self._epoch = epoch
        self._hangs = hangs
        self._serving: set[asyncio.Task[None] | None] = set()

    @asynccontextmanager
    async def at(self) -> AsyncIterator[Address]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            yield server.sockets[0].getsockname()[:2]
            await asyncio.gather(*filter(None, self._serving))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving.add(asyncio.current_task())
        try:
            while head := await reader.readline():
                words = [await self._word(reader) for _ in range(int(head[1:]))]
                if not self._hangs:
                    writer.write(self._answer([word.upper() for word in words]))
        finally:
            writer.close()

    @staticmethod
    async def _word(reader: asyncio.StreamReader) -> bytes:
        size = int((await reader.readline())[1:])
        return (await reader.readexactly(size + 2))[:-2]

    def _answer(self, words: Sequence[bytes]) -> bytes:
        if words[0] != b"SENTINEL":
            return b"+OK\r\n"
        if words[1] == b"GET-MASTER-ADDR-BY-NAME":
            return b"*-1\r\n" if self._master is None else _texts(self._master[0], str(self._master[1]))
        if self._epoch is None:
            return _NO_PERMISSION
        return _texts("name", "jobs", "config-epoch", str(self._epoch))


def _texts(*texts: str) -> bytes:
    return b"*%d\r\n" % len(texts) + b"".join(b"$%d\r\n%s\r\n" % (len(text), text.encode()) for text in texts)


async def master_by(*sentinels: FakeSentinel) -> Address:
    async with AsyncExitStack() as stack:
        places = [await stack.enter_async_context(sentinel.at()) for sentinel in sentinels]
        endpoint = RedisEndpoint("", 0, sentinels=tuple(places), master="jobs")
        return await master_address(endpoint, RedisSettings(connect_timeout_ms=1_000))


@pytest.mark.parametrize(
    "sentinels",
    [
        (FakeSentinel(OLD, 1), FakeSentinel(NEW, 2), FakeSentinel(NEW, 2)),
        (FakeSentinel(NEW, 2), FakeSentinel(OLD, 1), FakeSentinel(NEW, 2)),
        (FakeSentinel(OLD, 1), FakeSentinel(NEW, 2), FakeSentinel(NEW, 2, hangs=True)),
        (FakeSentinel(OLD, 9), FakeSentinel(NEW, 10)),
    ],
)
async def test_a_sentinel_that_is_cut_off_names_no_master_while_another_knows_a_later_one(
    sentinels: tuple[FakeSentinel, ...],
) -> None:
    """What the old master is given is lost, for as long as they are cut off from each other."""
    assert await master_by(*sentinels) == NEW


@pytest.mark.parametrize(
    "sentinels",
    [
        (FakeSentinel(NEW, 2, hangs=True), FakeSentinel(NEW, 2), FakeSentinel(None, hangs=True)),
        (FakeSentinel(None), FakeSentinel(NEW, 2), FakeSentinel(None)),
        (FakeSentinel(NEW), FakeSentinel(NEW), FakeSentinel(NEW)),
    ],
)
async def test_one_sentinel_that_knows_the_master_is_enough(sentinels: tuple[FakeSentinel, ...]) -> None:
    """The others hang, know no such master, or show no epochs."""
    assert await master_by(*sentinels) == NEW


async def test_where_no_sentinel_knows_the_master_there_is_none() -> None:
    with pytest.raises(NoConnection, match="no Sentinel says where the master is"):
        await master_by(FakeSentinel(None), FakeSentinel(OLD, 1, hangs=True))
