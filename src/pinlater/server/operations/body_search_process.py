"""What a search process does: it reads orders from the server, searches bodies with RE2, and answers.

The server runs this file as a program of its own, because RE2 can't be interrupted: an operating system can kill a process, but nothing
can stop a thread. Order and answer are frames of a length and their content. The process ends when the server closes the socket, and the
kernel ends it if one search outlasts the time that its order allows, so that a killed server leaves nothing running for long.

This module imports the standard library and RE2 only: it has to start fast.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
from collections.abc import Sequence
from typing import Any

LENGTH = struct.Struct("!I")
# Seconds that the search may take, bytes of the pattern, number of bodies; then the lengths of the bodies, the pattern, the bodies.
ORDER = struct.Struct("!dII")
# Whether the pattern is valid, instructions of its program; then a byte for each body (1: found), or the reason it is not valid.
ANSWER = struct.Struct("!?I")
FOUND, NOT_FOUND = 1, 0

_PROGRAM_BYTES_MAX = 8 * 1024 * 1024
_PATTERNS_KEPT = 8
_NICENESS = 10  # searches must not slow down the server beside them


def order_frame(pattern: bytes, bodies: Sequence[bytes], seconds: float) -> list[bytes]:
    """An order in parts: search for `pattern` in `bodies`; with none, only compile it."""
    head = ORDER.pack(seconds, len(pattern), len(bodies)) + b"".join([LENGTH.pack(len(body)) for body in bodies])
    size = len(head) + len(pattern) + sum(map(len, bodies))
    return [LENGTH.pack(size) + head + pattern, *bodies]


class _Searcher:
    """Compiles patterns, and keeps the newest few compiled."""

    def __init__(self) -> None:
        import re2  # here, so that the server itself loads it only if it must

        self._re2 = re2
        self._options = re2.Options()
        self._options.log_errors = False
        self._options.never_capture = True  # groups only make it slower
        self._options.max_mem = _PROGRAM_BYTES_MAX
        self._compiled: dict[bytes, Any] = {}

    def answer(self, order: bytes) -> bytes:
        seconds, pattern_bytes, count = ORDER.unpack_from(order)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            start = ORDER.size + count * LENGTH.size
            sizes = [size for (size,) in LENGTH.iter_unpack(order[ORDER.size : start])]
            end = start + pattern_bytes
            try:
                regex = self._compile(order[start:end])
            except (self._re2.error, UnicodeError) as error:
                reason = error.args[0] if error.args and isinstance(error.args[0], bytes) else str(error).encode()
                return ANSWER.pack(False, 0) + reason
            found = bytearray()
            for size in sizes:
                found.append(NOT_FOUND if regex.search(order[end : end + size]) is None else FOUND)
                end += size
            return ANSWER.pack(True, regex.programsize) + found
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _compile(self, pattern: bytes) -> Any:
        regex = self._compiled.get(pattern)
        if regex is None:
            if len(self._compiled) >= _PATTERNS_KEPT:
                self._compiled.clear()
                self._re2.purge()
            regex = self._compiled[pattern] = self._re2.compile(pattern, options=self._options)
        return regex


def _read(server: socket.socket, size: int) -> bytes | None:
    """Exactly `size` bytes; None if the server is gone."""
    content = bytearray(size)
    view = memoryview(content)
    while view:
        came = server.recv_into(view)
        if not came:
            return None
        view = view[came:]
    return bytes(content)


def run_behind_the_server() -> None:
    """Lowers the priority of this process, if the system allows it: our systemd unit, for example, does not."""
    with contextlib.suppress(OSError):
        os.nice(_NICENESS)


def main() -> None:
    """Answers orders on standard input, a socket, until the server closes it."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    for stop in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stop, signal.SIG_IGN)  # the server is told, and closes the socket
    run_behind_the_server()
    searcher = _Searcher()
    with socket.socket(fileno=0) as server:
        while (length := _read(server, LENGTH.size)) is not None:
            order = _read(server, LENGTH.unpack(length)[0])
            if order is None:
                return
            answer = searcher.answer(order)
            server.sendall(LENGTH.pack(len(answer)) + answer)


if __name__ == "__main__":
    with contextlib.suppress(ConnectionError, KeyboardInterrupt):
        main()
