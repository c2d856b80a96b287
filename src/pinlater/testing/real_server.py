"""The real server, `pinlater serve` on a SQLite file or another store, in a process of its own that ends with the test's.

Needs the extra `server`. A test can kill it and start it again on the same file and port, to see the effect on its own code.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections import deque
from concurrent.futures import Future, wait
from pathlib import Path
from types import TracebackType
from typing import IO, ClassVar, Self
from weakref import WeakSet

_READY_S, _STOP_S = 30.0, 15.0
_LINES_KEPT = 20


class ServerDidNotStart(Exception):
    """The server did not start. The error text contains its output."""


class _HeldPort:
    """A port of this machine, reserved against other programs until `release`, even while the server that has it is down: a connection of
    another program could otherwise get it meanwhile. Linux lets a second socket of a port listen if the first one does not; on other
    systems the port number is 0."""

    def __init__(self) -> None:
        holder = socket.socket()
        self.release = weakref.finalize(self, holder.close)
        self.number = 0
        if sys.platform == "linux":
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind(("127.0.0.1", 0))
            self.number = holder.getsockname()[1]


class RealServer:
    """A server with its file in `folder`. Use as `with RealServer(folder) as server: ... server.address`.

    `options`: further command line options, such as `("--set", "thrift.idle_timeout_s=1")`. `store`: another store than that file, in the
    syntax of `--store`.
    """

    _running: ClassVar[WeakSet[RealServer]] = WeakSet()

    def __init__(self, folder: str | Path, *options: str, store: str | None = None) -> None:
        self._store = store or f"sqlite:{Path(folder) / 'jobs.db'}"
        self._options = options
        self._port = 0
        self._held: list[_HeldPort] = []
        self._process: subprocess.Popen[str] | None = None
        self._said: deque[str] = deque(maxlen=_LINES_KEPT)
        self.http_port = 0

    @property
    def address(self) -> str:
        """Where it listens for Thrift; stays the same when it is started again."""
        return f"127.0.0.1:{self._port}"

    @property
    def said(self) -> list[str]:
        """The last lines of its log."""
        return list(self._said)

    @property
    def process_id(self) -> int:
        """The process id of the running server."""
        if self._process is None:
            raise RuntimeError("the server does not run")
        return self._process.pid

    @classmethod
    def addresses(cls) -> frozenset[str]:
        """The addresses of the servers that this process has started."""
        return frozenset(server.address for server in cls._running)

    def start(self) -> Self:
        """Starts it and returns when it is ready. Raises `ServerDidNotStart`."""
        command = [sys.executable, "-m", "pinlater", "serve", "--store", self._store, "--stop-with-stdin"]
        if not self._port:
            self._held = [_HeldPort(), _HeldPort()]
        thrift_port, http_port = (self._port, self.http_port) if self._port else [held.number for held in self._held]
        ports = ["--thrift-port", str(thrift_port), "--http-port", str(http_port)]
        self._process = subprocess.Popen(  # noqa: S603 - our own command
            [*command, *ports, "--set", "telemetry.log_format=json", *self._options],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for the tests
        )
        started: Future[bool] = Future()
        threading.Thread(target=self._read, args=(self._process.stderr, started), daemon=True).start()
        wait([started], _READY_S)
        if not started.done() or not started.result():
            self.kill()
            raise ServerDidNotStart("the server did not start: " + (" | ".join(self._said) or "it said nothing"))
        self._running.add(self)
        return self

    def _read(self, log: IO[str], started: Future[bool]) -> None:
        """Continues reading to the end, or the server would block on a full log pipe. `started`: whether it became ready before that."""
        with log:
            for line in log:
                self._said.append(line.rstrip())
                if not started.done() and '"ready"' in line:
                    entry = json.loads(line)
                    if entry.get("event") == "ready":
                        self._port, self.http_port = entry["thrift_port"], entry["http_port"]
                        started.set_result(True)
        if not started.done():
            started.set_result(False)

    def reload(self) -> None:
        """Makes the server reread its files now (SIGHUP). Its log has the result."""
        os.kill(self.process_id, signal.SIGHUP)

    def stop(self) -> None:
        """Stops the server in order: it finishes the calls under way."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kills it at once (SIGKILL)."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdin is not None:
            process.stdin.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        for held in self._held:
            held.release()
