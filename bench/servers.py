"""Real servers in processes of their own: the one under test, the wire stub and the constant one. The fault harness uses them too.

A server is told to take any free port and says in its output which; nothing here guesses, and nothing sleeps.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 30.0
# In the line that says it is ready, as JSON or as key=value.
_READY = re.compile(r"^.*\bready\b.*$", re.MULTILINE)
_PORT = re.compile(r"\b(thrift|http)_port\W{1,3}(\d{2,5})\b")


class ServerFailed(Exception):
    """The server did not start, or ended by itself; the text holds its last words."""


class PinLaterServer:
    """A server process. `start` returns when it answers; `kill` is SIGKILL; `stop` is SIGTERM and waits for the drain."""

    def __init__(
        self, command: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None, with_http: bool = True
    ) -> None:
        self._command = list(command)
        self._log = log
        self._env = {"PINLATER_CONSOLE": "false", **os.environ, **(env or {})}
        self._with_http = with_http
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0
        self.http_port = 0

    def __enter__(self) -> PinLaterServer:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return None if self._process is None else self._process.poll()

    def start(self) -> PinLaterServer:
        """Starts it and waits until it has said its ports. Raises `ServerFailed`."""
        offset = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=self._env
            )
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._read_ports(offset):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise ServerFailed(f"{self._command} did not start:\n{self.output()[-4000:]}")
            wait_a_moment(self._process)
        return self

    def _read_ports(self, offset: int) -> bool:
        with self._log.open("rb") as log:
            log.seek(offset)
            ready = _READY.search(log.read().decode(errors="replace"))
        found = dict(_PORT.findall(ready.group())) if ready else {}
        if "thrift" not in found or (self._with_http and "http" not in found):
            return False
        self.port, self.http_port = int(found["thrift"]), int(found.get("http", 0))
        return True

    def output(self) -> str:
        """All it has said so far."""
        return self._log.read_text(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, as often as you like."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(STOP_SECONDS_MAX)

    def stop(self) -> int:
        """SIGTERM; returns the exit code once it is gone."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(STOP_SECONDS_MAX)

    def cpu_seconds(self) -> float:
        """CPU time it has used (`cpu_seconds`)."""
        return cpu_seconds(self.pid)

    def memory_mb(self) -> float:
        """Resident memory now, in MB of 10^6 bytes."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024 / 1e6
        raise ServerFailed("the server is gone")

    def stats(self) -> dict[str, dict[str, Any]]:
        """Its /stats.json."""
        return json.loads(self.get("/stats.json"))  # type: ignore[no-any-return]

    def get(self, path: str) -> str:
        """A page of its HTTP port."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}{path}", timeout=10) as answer:
            return answer.read().decode()  # type: ignore[no-any-return]


def cpu_seconds(pid: int) -> float:
    """Time that the threads a process has now were on a core: theirs, the kernel's for them, and interrupts that came meanwhile."""
    on_core_ns = 0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):  # a thread that has just ended
            on_core_ns += int(path.read_text().split()[0])
    return on_core_ns / 1e9


def wait_a_moment(process: subprocess.Popen[bytes], seconds: float = 0.01) -> None:
    """Until the process ends or a moment has passed: polling with a deadline, without a blind sleep."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return


def serve(
    *arguments: str, log: Path, env: Mapping[str, str] | None = None, module: Sequence[str] = ("pinlater",)
) -> PinLaterServer:
    """The server under test, not started yet. `module` runs the command in another's way (a profiler's)."""
    command = [sys.executable, "-m", *module, "serve", "--thrift-port", "0", "--http-port", "0", *arguments]
    return PinLaterServer(command, log=log, env=env)


def pinlater_server(
    store: Path,
    *arguments: str,
    log: Path,
    env: Mapping[str, str] | None = None,
    module: Sequence[str] = ("pinlater",),
) -> PinLaterServer:
    """The same on a SQLite file."""
    return serve("--store", f"sqlite:{store}", *arguments, log=log, env=env, module=module)


def wire_server(*, log: Path) -> PinLaterServer:
    """The same Thrift server in front of nothing, not started yet."""
    return PinLaterServer([sys.executable, "-m", "bench.wire_stub"], log=log, with_http=False)


def constant_server(*, log: Path) -> PinLaterServer:
    """A server that splits frames and gives one answer to all, not started yet."""
    return PinLaterServer([sys.executable, "-m", "bench.constant_stub"], log=log, with_http=False)
