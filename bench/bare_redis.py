"""What this Redis gives a plain loop on one connection: the reference that needs no server of ours.

A row is what any queue on Redis must write for a job: its record under a key of its own, and its place in a sorted set. Commands go in
pipelines, made by the library beforehand, so the loop costs next to nothing.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import hiredis

from bench.load import BODY_BYTES

_PREFIX = b"bare{1}"
_NEWEST_MS = 1_767_225_600_000


def insert_rate(connection: socket.socket, rows_per_pipeline: int, seconds: float) -> float:
    """Rows a second, `rows_per_pipeline` sent at once, the next when all are answered. Leaves what it wrote."""
    reader = hiredis.Reader()
    numbers = count()
    body = b"x" * BODY_BYTES
    number = 0
    started = time.perf_counter()
    while (now := time.perf_counter()) - started < seconds or not number:
        connection.sendall(b"".join(_row(next(numbers), body) for _ in range(rows_per_pipeline)))
        for answer in _answers(connection, reader, rows_per_pipeline * 2):
            if isinstance(answer, Exception):
                raise answer
        number += rows_per_pipeline
    return number / (now - started)


def _row(number: int, body: bytes) -> bytes:
    key = number.to_bytes(8, "big")
    due = str(_NEWEST_MS + number).encode()
    return _packed(b"SET", _PREFIX + key, body) + _packed(b"ZADD", _PREFIX, due, key)


def _packed(*words: Any) -> bytes:
    packed: bytes = hiredis.pack_command(words)
    return packed


def _answers(connection: socket.socket, reader: hiredis.Reader, wanted: int) -> Iterator[object]:
    while wanted:
        answer = reader.gets()
        if answer is False:
            received = connection.recv(65_536)
            if not received:
                raise ConnectionError("Redis hung up")
            reader.feed(received)
            continue
        wanted -= 1
        yield answer
