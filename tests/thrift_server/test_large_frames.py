"""Large frames are decoded one at a time; the addresses that they come from take turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import chain

import pytest
import pytest_asyncio

from pinlater.server.thrift.large_frames import LargeFrames
from pinlater.wire.codec import encode_call
from pinlater.wire.framing import LENGTH_BYTES
from pinlater.wire.limits import WireLimits
from tests.thrift_server.conftest import CONTEXT


class Decoding:
    """Frames that are decoded for callers at the addresses with which their names begin. `order`: those that are done."""

    def __init__(self) -> None:
        self.frames = LargeFrames(WireLimits())
        self.order: list[str] = []

    async def one(self, name: str) -> None:
        frame = encode_call("createQueue", 1, context=CONTEXT, name=name)[LENGTH_BYTES:]
        call = await self.frames.decode(frame, name[0])
        self.order.append(call.arguments.name)


@pytest_asyncio.fixture
async def decoding() -> AsyncIterator[Decoding]:
    decoding = Decoding()
    yield decoding
    decoding.frames.close()


async def test_addresses_take_turns_with_their_large_frames(decoding: Decoding) -> None:
    """All are asked for in one turn of the loop."""
    names = [f"a{number}" for number in range(5)]
    await asyncio.gather(*map(decoding.one, chain(names, ["b1", "c1", "b2"])))
    assert decoding.order == ["a0", "a1", "b1", "c1", "a2", "b2", "a3", "a4"]


async def test_a_caller_that_has_gone_gives_its_turn_to_the_next(decoding: Decoding) -> None:
    calls = [asyncio.create_task(decoding.one(name)) for name in ("a1", "a2", "a3")]
    await asyncio.sleep(0)
    calls[1].cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert decoding.order == ["a1", "a3"]
    await decoding.one("a4")
    assert decoding.order == ["a1", "a3", "a4"]


async def test_a_caller_that_goes_as_its_turn_comes_gives_it_to_the_next(decoding: Decoding) -> None:
    """The first call is done, and the second has its turn, but not yet taken it."""

    async def first() -> None:
        await decoding.one("a1")
        calls[0].cancel()

    before = asyncio.create_task(first())
    calls = [asyncio.create_task(decoding.one(name)) for name in ("a2", "a3")]
    await before
    with pytest.raises(asyncio.CancelledError):
        await calls[0]
    await calls[1]
    await decoding.one("a4")
    assert decoding.order == ["a1", "a3", "a4"]
