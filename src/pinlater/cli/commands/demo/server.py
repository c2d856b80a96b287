"""The demo's server: `pinlater serve` in a process of its own, on free ports."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pinlater.supervision import signals

_READY_S = 30.0
_CONSOLE_S = 60.0
_STOP_S = 15.0
_LINES_KEPT = 5


class DemoServerFailed(Exception):
    """The server did not start. The error text contains its output."""


class DemoConsoleFailed(Exception):
    """The console does not run; the text says why."""


class DemoServer:
    """Runs while the block runs. `address` and `http_port` are known inside. `console`: whether to run one, too."""

    def __init__(self, path: Path, *, console: bool) -> None:
        self._command = [
            *(sys.executable, "-m", "pinlater", "serve", "--store", f"sqlite:{path}"),
            *("--thrift-port", "0", "--http-port", "0", "--set", "telemetry.log_format=json"),
            *(("--set", "console=true", "--set", "console_port=0") if console else ("--no-console",)),
            "--stop-with-stdin",  # a demo that is killed can't stop the server, but the server ends with its end of the pipe
        ]
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._said: deque[str] = deque(maxlen=_LINES_KEPT)
        self._ready = asyncio.Event()
        self._console: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self.address = ""
        self.http_port = 0

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the demo, which then stops the server in order
        )
        self._reading = asyncio.create_task(self._read())
        ready = asyncio.create_task(self._ready.wait())
        await asyncio.wait([self._reading, ready], timeout=_READY_S, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if not self._ready.is_set():
            await self._stop()
            raise DemoServerFailed("the server did not start: " + (" | ".join(self._said) or "it said nothing"))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop()

    async def console_address(self) -> str:
        """The URL of the console, once it serves. Raises DemoConsoleFailed."""
        if self._reading is not None:
            waits: list[asyncio.Future[Any]] = [self._console, self._reading]
            await asyncio.wait(waits, timeout=_CONSOLE_S, return_when=asyncio.FIRST_COMPLETED)
        if not self._console.done():
            raise DemoConsoleFailed("the console did not start")
        entry = self._console.result()
        if "address" not in entry:
            raise DemoConsoleFailed(f"{entry['event']} ({entry.get('install') or entry['reason']})")
        return str(entry["address"])

    async def _read(self) -> None:
        """Reads the log to its end, so that the pipe never fills up."""
        if self._process is None or self._process.stderr is None:
            return
        async for line in self._process.stderr:
            text = line.decode("utf-8", "replace").strip().removeprefix("error: ")
            self._said.append(text)
            with contextlib.suppress(ValueError, TypeError, KeyError):
                self._note(json.loads(text))

    def _note(self, entry: Mapping[str, Any]) -> None:
        event = entry["event"]
        if event == "ready":
            self.address, self.http_port = f"127.0.0.1:{entry['thrift_port']}", entry["http_port"]
            self._ready.set()
        elif event.startswith(("the console is ready", "the console does not run")) and not self._console.done():
            self._console.set_result(entry)

    async def _stop(self) -> None:
        process = self._process
        if process is None:
            return
        signals.send(process, signal.SIGTERM)
        try:
            async with asyncio.timeout(_STOP_S):
                await process.wait()
        except TimeoutError:
            signals.send(process, signal.SIGKILL)
            await process.wait()
        if self._reading is not None:
            await self._reading
