"""Whatever bytes come, the decoder gives a value or our one wire error, in bounded time and memory. A failing run prints its seed."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from pinlater.wire.codec import DecodedCall, Decoder, encode_reply
from pinlater.wire.errors import WireError
from pinlater.wire.framing import FrameSplitter
from pinlater.wire.generated import structs as types
from pinlater.wire.limits import WireLimits
from pinlater.wire.methods import METHODS_BY_NAME
from tests.wire.samples import full_calls, message

SEED = 20260101
MUTATIONS = 20_000
MEMORY_BYTES_MAX = 8 * 1024 * 1024
_LENGTHS = (-(2**31), -1, 0, 1, 2**16, 100_000, 100_001, 2**31 - 1)


def call_or_error(frame: bytes) -> None:
    try:
        call = Decoder().call(frame)
    except WireError:
        return
    assert isinstance(call, DecodedCall)


def reply_or_error(frame: bytes) -> None:
    try:
        Decoder().reply(frame)
    except WireError:
        return


def flip(rng: random.Random, frame: bytearray) -> None:
    for _ in range(rng.choice((1, 1, 1, 2, 4, 8))):
        frame[rng.randrange(len(frame))] ^= 1 << rng.randrange(8)


def overwrite_length(rng: random.Random, frame: bytearray) -> None:
    at = rng.randrange(len(frame))
    frame[at : at + 4] = struct.pack(">i", rng.choice(_LENGTHS))


def overwrite_type(rng: random.Random, frame: bytearray) -> None:
    frame[rng.randrange(len(frame))] = rng.randrange(20)


def cut(rng: random.Random, frame: bytearray) -> None:
    del frame[rng.randrange(len(frame)) :]


def remove(rng: random.Random, frame: bytearray) -> None:
    at = rng.randrange(len(frame))
    del frame[at : at + rng.randrange(1, 12)]


def double(rng: random.Random, frame: bytearray) -> None:
    at = rng.randrange(len(frame))
    frame[at:at] = frame[at : at + rng.randrange(1, 60)] * rng.choice((1, 2, 50))


def garbage(rng: random.Random, frame: bytearray) -> None:
    at = rng.randrange(len(frame))
    frame[at:at] = rng.randbytes(rng.randrange(1, 40))


MUTATORS: tuple[Callable[[random.Random, bytearray], None], ...] = (
    flip, overwrite_length, overwrite_type, cut, remove, double, garbage,
)  # fmt: skip


def mutated(rng: random.Random, originals: list[bytes]) -> bytes:
    frame = bytearray(rng.choice(originals))
    for _ in range(rng.choice((1, 1, 2, 3))):
        if frame:
            rng.choice(MUTATORS)(rng, frame)
    return bytes(frame)


def sample_replies() -> list[bytes]:
    metadata = types.DequeueMetadata(2, 1, "token", {"a": "b"}, 5, 6, 1)
    dequeued = types.DequeueResponse({"d": b"\xff"}, {"d": metadata}, [types.AckResult("d", 2, "h", 1, 2)], ["d"])
    info = types.JobInfo("d", 1, 2, 1, "s", 1, 2, 3, "c", b"b", {"a": "b"}, "k", 1, "t", "x", [types.Attempt(1)], 4)
    return [
        message(encode_reply(METHODS_BY_NAME["dequeueJobs"], 1, dequeued)),
        message(encode_reply(METHODS_BY_NAME["lookupJobs"], 1, {"d": info})),
    ]


def test_twenty_thousand_mutated_calls_give_a_call_or_the_one_error_in_bounded_memory() -> None:
    rng, originals = random.Random(SEED), [message(frame) for frame in full_calls().values()]
    tracemalloc.start()
    try:
        for number in range(MUTATIONS):
            frame = mutated(rng, originals)
            try:
                call_or_error(frame)
            except Exception as error:
                raise AssertionError(f"seed {SEED}, mutation {number}: {frame!r}") from error
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MEMORY_BYTES_MAX, peak


def test_mutated_replies_give_a_reply_or_the_one_error() -> None:
    rng, originals = random.Random(SEED), sample_replies()
    for number in range(MUTATIONS // 4):
        frame = mutated(rng, originals)
        try:
            reply_or_error(frame)
        except Exception as error:
            raise AssertionError(f"seed {SEED}, mutation {number}: {frame!r}") from error


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300))
def test_random_bytes_give_a_call_or_the_one_error(frame: bytes) -> None:
    call_or_error(frame)
    reply_or_error(frame)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(METHODS_BY_NAME)), st.binary(max_size=300))
def test_random_arguments_give_a_call_or_the_one_error(name: str, body: bytes) -> None:
    method = METHODS_BY_NAME[name]
    call_or_error(method.call_head + b"\0\0\0\1" + body)
    reply_or_error(method.reply_head + b"\0\0\0\1" + body)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=200), max_size=10))
def test_random_streams_give_frames_or_the_one_error(chunks: list[bytes]) -> None:
    splitter = FrameSplitter(1 << 20)
    for chunk in chunks:
        frames, error = splitter.take_while_good(chunk)
        for frame in frames:
            call_or_error(frame)
        if error is not None:
            break
    assert len(splitter.partial) <= sum(map(len, chunks))


def test_claims_of_great_lengths_set_no_memory_aside() -> None:
    """A frame of a hundred bytes must not be able to ask for gigabytes."""
    method = METHODS_BY_NAME["lookupJobs"]
    context = b"\x0c\x00\x01\x0b\x00\x01\x00\x00\x00\x01s\x00"
    limits = WireLimits()
    tracemalloc.start()
    try:
        for kind in (b"\x0b", b"\x0c", b"\x0f", b"\x02"):
            for length in (2**31 - 1, limits.max_container_items):
                claim = b"\x0c\x00\x02\x0f\x00\x01" + kind + struct.pack(">i", length) + b"\0" * 60
                call_or_error(method.call_head + b"\0\0\0\1" + context + claim)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * 1024 * 1024, peak


def test_a_full_frame_of_the_smallest_structs_takes_bounded_memory() -> None:
    """The worst a megabyte can do: a hundred thousand jobs of eight bytes each."""
    count = WireLimits().max_container_items
    context = b"\x0c\x00\x01\x0b\x00\x01\x00\x00\x00\x01s\x00"
    jobs = b"\x0f\x00\x02\x0c" + struct.pack(">i", count) + b"\x0b\x00\x01\x00\x00\x00\x00\x00" * count
    request = b"\x0c\x00\x02\x0b\x00\x01\x00\x00\x00\x01q" + jobs + b"\0\0"
    frame = METHODS_BY_NAME["enqueueJobs"].call_head + b"\0\0\0\1" + context + request
    tracemalloc.start()
    try:
        call = Decoder().call(frame)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(call.arguments.request.jobs) == count
    assert peak < 60 * len(frame), peak
