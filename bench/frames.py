"""Requests as the bytes an old client sends, and just enough reading of the answers to go on.

Written by hand, on purpose without the package's own codec: the load must cost less than the server it measures, and a mistake that
client and server share would go unseen. Only what the benchmark and the fault harness ask for is here, no general codec.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import NamedTuple

_STRUCT, _MAP, _LIST, _STRING, _I64, _I32, _BYTE, _BOOL = 12, 13, 15, 11, 10, 8, 3, 2
_REPLY, _EXCEPTION = 2, 3
_STOP = b"\0"
_I32_FORMAT = struct.Struct(">i")
_i32 = _I32_FORMAT.pack
_read_i32: Callable[[bytes, int], tuple[int]] = _I32_FORMAT.unpack_from


class RefusedFrame(Exception):
    """The server answered with an error; `code` is the contract's, or 0 for one that only Thrift knows."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Claimed(NamedTuple):
    """A job of a dequeue's answer, as its bytes came."""

    descriptor: bytes
    body: bytes


def _field(kind: int, number: int, value: bytes) -> bytes:
    return struct.pack(">bh", kind, number) + value


def _text(value: bytes) -> bytes:
    return _i32(len(value)) + value


def _string(number: int, value: bytes) -> bytes:
    return _field(_STRING, number, _text(value))


def _call(method: str, *arguments: bytes, source: bytes = b"bench") -> bytes:
    context = _field(_STRUCT, 1, _string(1, source) + _string(2, b"") + _STOP)
    head = b"\x80\x01\x00\x01" + _text(method.encode()) + _i32(1)
    return _text(head + context + b"".join(arguments) + _STOP)


def create_queue(queue: str) -> bytes:
    """A createQueue frame."""
    return _call("createQueue", _string(2, queue.encode()))


def divide_queue(queue: str, partitions: int) -> bytes:
    """A configureQueue frame that says on how many shards the queue is stored."""
    config = _field(_I32, 101, _i32(partitions)) + _STOP
    return _call("configureQueue", _string(2, queue.encode()), _field(_STRUCT, 3, config))


def enqueue(
    queue: str, bodies: Sequence[bytes], *, run_after_ms: int | None = None, ordering_key: bytes = b""
) -> bytes:
    """An enqueueJobs frame with every field that a generated client writes by default."""
    due = b"" if run_after_ms is None else _field(_I64, 3, struct.pack(">q", run_after_ms))
    ordered = _string(106, ordering_key) if ordering_key else b""
    tail = _field(_BYTE, 2, b"\x01") + due + _field(_I32, 4, _i32(2)) + _string(5, b"") + ordered + _STOP
    jobs = b"".join(_string(1, body) + tail for body in bodies)
    request = _string(1, queue.encode()) + _field(_LIST, 2, bytes([_STRUCT]) + _i32(len(bodies)) + jobs) + _STOP
    return _call("enqueueJobs", _field(_STRUCT, 2, request))


class OrderedEnqueue:
    """An enqueueJobs frame whose jobs have ordering keys, each time others: for each job one of `KEYS`, at random."""

    KEYS = 10_000

    def __init__(self, queue: str, bodies: Sequence[bytes]) -> None:
        key = b"key-00000"
        self._template = enqueue(queue, bodies, ordering_key=key).replace(b"%", b"%%").replace(key, b"key-%05d")
        self._jobs = len(bodies)
        self._random = Random()

    def frame(self) -> bytes:
        """The next one."""
        return self._template % tuple([int(self._random.random() * self.KEYS) for _ in range(self._jobs)])


class KeyedEnqueue:
    """An enqueueJobs frame that carries another request key each time, as our own clients' do."""

    KEY_BYTES = 24

    def __init__(self, queue: str, bodies: Sequence[bytes], name: str) -> None:
        plain = enqueue(queue, bodies)[4:-2]  # without length and the two stops
        self._head = _text(plain + _string(100, bytes(self.KEY_BYTES)) + b"\0\0")[: -self.KEY_BYTES - 2]
        self._name = name
        self._number = 0

    def frame(self) -> bytes:
        """The next one."""
        self._number += 1
        key = f"{time.time_ns() // 1_000_000:012x}{self._name}{self._number}".ljust(self.KEY_BYTES, "-")
        return self._head + key.encode() + b"\0\0"


def key_of(frame: bytes) -> str:
    """The request key of a frame of `KeyedEnqueue`."""
    return frame[-KeyedEnqueue.KEY_BYTES - 2 : -2].decode()


def enqueued(descriptor: str) -> bytes:
    """A reply to an enqueue of one job."""
    names = _field(_LIST, 1, bytes([_STRING]) + _i32(1) + _text(descriptor.encode())) + _STOP
    return _text(b"\x80\x01\x00\x02" + _text(b"enqueueJobs") + _i32(1) + _field(_STRUCT, 0, names) + _STOP)


def dequeue(queue: str, limit: int, *, wait_ms: int | None = None) -> bytes:
    """A dequeueJobs frame; `wait_ms` makes it a long poll."""
    request = _string(1, queue.encode()) + _field(_I32, 2, _i32(limit)) + _field(_BOOL, 4, b"\0")
    request += _field(4, 5, struct.pack(">d", 1.0))
    if wait_ms is not None:
        request += _field(_I32, 100, _i32(wait_ms))
    return _call("dequeueJobs", _field(_STRUCT, 2, request + _STOP))


class AckMaker:
    """Makes ackDequeuedJobs frames for one queue, without tokens, as old clients do. Caches all that stays the same.

    Of successes, unless `failure` says why the jobs failed; then they are due again in an hour.
    """

    def __init__(self, queue: str, failure: str = "") -> None:
        probe = _call("ackDequeuedJobs", _field(_STRUCT, 2, _string(1, queue.encode())))
        self._head = probe[4:-1]  # without length and the arguments' stop
        self._list = struct.pack(">bhb", _LIST, 3 if failure else 2, _STRUCT)
        delay_ms = struct.pack(">q", 3_600_000 if failure else 0)
        self._tail = _string(2, failure.encode()) + _field(_I64, 3, delay_ms) + _STOP
        self._item_heads: dict[int, bytes] = {}

    def frame(self, descriptors: Iterable[bytes]) -> bytes:
        """The frame that acks these."""
        items = [self._item(descriptor) for descriptor in descriptors]
        parts = [self._head, self._list, _i32(len(items)), *items, b"\0\0"]
        return _text(b"".join(parts))

    def _item(self, descriptor: bytes) -> bytes:
        size = len(descriptor)
        head = self._item_heads.get(size)
        if head is None:
            head = self._item_heads[size] = _field(_STRING, 1, _i32(size))
        return head + descriptor + self._tail


def result_at(reply: bytes) -> int:
    """Where the result struct of a whole reply frame (length included) begins; raises `RefusedFrame` for an error."""
    kind = reply[7]
    at = 16 + _read_i32(reply, 8)[0]
    if kind == _EXCEPTION:
        raise RefusedFrame(0, repr(reply[at : at + 200]))
    if kind != _REPLY:
        raise RefusedFrame(0, f"not a reply: message type {kind}")
    if reply[at] and reply[at + 2] == 1:
        raise _refusal(reply, at + 3)
    return at


def _refusal(reply: bytes, at: int) -> RefusedFrame:
    """The declared exception: fields 1 (code) and 2 (message), in the order every generated server writes them."""
    code = _read_i32(reply, at + 3)[0]
    size = _read_i32(reply, at + 10)[0]
    return RefusedFrame(code, reply[at + 14 : at + 14 + size].decode(errors="replace"))


def claimed_jobs(reply: bytes) -> list[Claimed]:
    """The jobs of a dequeueJobs reply, in the order of its map."""
    at = result_at(reply) + 3
    if reply[at] != _MAP:
        return []
    count = _read_i32(reply, at + 5)[0]
    at += 9
    jobs = []
    for _ in range(count):
        key_end = at + 4 + _read_i32(reply, at)[0]
        end = key_end + 4 + _read_i32(reply, key_end)[0]
        jobs.append(Claimed(reply[at + 4 : key_end], reply[key_end + 4 : end]))
        at = end
    return jobs


def claimed_descriptors(reply: bytes) -> list[bytes]:
    """Only the descriptors of a dequeueJobs reply: the cheap way for the load."""
    at = result_at(reply) + 3
    if reply[at] != _MAP:
        return []
    count = _read_i32(reply, at + 5)[0]
    at += 9
    descriptors = []
    for _ in range(count):
        key_end = at + 4 + _read_i32(reply, at)[0]
        descriptors.append(reply[at + 4 : key_end])
        at = key_end + 4 + _read_i32(reply, key_end)[0]
    return descriptors
