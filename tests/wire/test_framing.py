"""The splitter gives back what was sent, however the stream is cut, and believes no length."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinlater.wire.errors import WireError
from pinlater.wire.framing import FrameSplitter


def framed(*messages: bytes) -> bytes:
    return b"".join(len(message).to_bytes(4, "big") + message for message in messages)


@given(st.lists(st.binary(max_size=40), max_size=8), st.lists(st.integers(1, 30), max_size=40))
def test_frames_come_out_as_they_went_in_however_the_stream_is_cut(messages: list[bytes], cuts: list[int]) -> None:
    stream, splitter, got = framed(*messages), FrameSplitter(1000), []
    for cut in cuts:
        got += splitter.feed(stream[:cut])
        stream = stream[cut:]
    got += splitter.feed(stream)
    assert got == messages
    assert not splitter.partial


def test_single_bytes_make_a_frame() -> None:
    splitter = FrameSplitter(1000)
    got = [frame for byte in framed(b"hello", b"you") for frame in splitter.feed(bytes([byte]))]
    assert got == [b"hello", b"you"]


@pytest.mark.parametrize("length", [-1, -(2**31), 1001, 2**31 - 1])
def test_a_length_that_cannot_be_is_an_error_at_once(length: int) -> None:
    with pytest.raises(WireError) as caught:
        FrameSplitter(1000).feed(length.to_bytes(4, "big", signed=True))
    assert caught.value.fatal


def test_a_bad_length_that_comes_in_two_parts_is_an_error_too() -> None:
    splitter = FrameSplitter(1000)
    assert splitter.feed(b"\xff\xff") == []
    with pytest.raises(WireError):
        splitter.feed(b"\xff\xff")


def test_whole_frames_before_a_bad_length_are_not_lost() -> None:
    frames, error = FrameSplitter(1000).take_while_good(framed(b"good") + b"\xff\xff\xff\xff")
    assert frames == [b"good"]
    assert error is not None


def test_the_largest_frame_passes_and_one_byte_more_does_not() -> None:
    assert FrameSplitter(10).feed(framed(b"x" * 10)) == [b"x" * 10]
    with pytest.raises(WireError):
        FrameSplitter(10).feed(framed(b"x" * 11))


def test_an_announced_length_sets_no_memory_aside() -> None:
    tracemalloc.start()
    try:
        splitter = FrameSplitter(64 * 1024 * 1024)
        splitter.feed((64 * 1024 * 1024).to_bytes(4, "big") + b"x")
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_a_large_frame_in_many_chunks_is_not_copied_again_and_again() -> None:
    """16 MiB in 4,096 chunks: were each chunk to copy all before it, this would move 32 GiB and not end within the time-out."""
    splitter, chunk = FrameSplitter(16 * 1024 * 1024), b"x" * 4096
    got = splitter.feed((4096 * 4096).to_bytes(4, "big"))
    for _ in range(4096):
        got += splitter.feed(chunk)
    assert [len(frame) for frame in got] == [4096 * 4096]


def test_many_small_frames_in_one_chunk_come_out_in_one_go() -> None:
    assert len(FrameSplitter(1000).feed(framed(*[b"x"] * 50_000))) == 50_000
