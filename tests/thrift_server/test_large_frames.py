"""Large frames are decoded one at a time; the addresses that they come from take turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from threading import Event

import pytest

from pinlater.server.thrift.large_frames import LargeFrames
from pinlater.wire.limits import WireLimits


class Decoding:
    """Stands for the decoder: notes which frames are decoded, and holds the first until it is told to go on."""

    def __init__(self) -> None:
        self.order: list[bytes] = []
        self.go_on = Event()

    def __call__(self, frame: bytes) -> bytes:
        self.order.append(frame)
        assert self.go_on.wait(30)
        return frame


@pytest.fixture
async def frames() -> AsyncIterator[LargeFrames]:
    frames = LargeFrames(WireLimits())
    yield frames
    frames.close()


async def test_addresses_take_turns_with_their_large_frames(frames: LargeFrames) -> None:
    decoding = Decoding()
    frames._decode = decoding  # type: ignore[assignment]
    calls = [asyncio.create_task(frames.decode(b"a%d" % number, "a")) for number in range(5)]
    await asyncio.sleep(0)
    calls += [asyncio.create_task(frames.decode(frame, frame[:1].decode())) for frame in (b"b1", b"c1", b"b2")]
    await asyncio.sleep(0)
    decoding.go_on.set()
    await asyncio.gather(*calls)
    assert decoding.order == [b"a0", b"a1", b"b1", b"c1", b"a2", b"b2", b"a3", b"a4"]


async def test_a_caller_that_has_gone_gives_its_turn_to_the_next(frames: LargeFrames) -> None:
    decoding = Decoding()
    frames._decode = decoding  # type: ignore[assignment]
    calls = [asyncio.create_task(frames.decode(frame, "a")) for frame in (b"1", b"2", b"3")]
    await asyncio.sleep(0)
    calls[1].cancel()
    decoding.go_on.set()
    await asyncio.gather(*calls, return_exceptions=True)
    assert decoding.order == [b"1", b"3"]
    await frames.decode(b"4", "a")
    assert decoding.order == [b"1", b"3", b"4"]


async def test_a_caller_that_goes_as_its_turn_comes_gives_it_to_the_next(frames: LargeFrames) -> None:
    decoding = Decoding()
    decoding.go_on.set()
    frames._decode = decoding  # type: ignore[assignment]
    frames._decoding = True
    calls = [asyncio.create_task(frames.decode(frame, "a")) for frame in (b"1", b"2")]
    await asyncio.sleep(0)
    frames._next()
    calls[0].cancel()
    await calls[1]
    assert (decoding.order, frames._decoding) == ([b"2"], False)
