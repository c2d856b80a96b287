"""The demo's server: `pinlater serve` in a process of its own, on free ports."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Self

from pinlater.supervision import signals

_READY_S = 30.0
_STOP_S = 15.0
_LINES_KEPT = 5


class DemoServerFailed(Exception):
    """The server did not start; the text holds what it said."""


class DemoServer:
    """Runs while the block runs. `address` and `http_port` are known inside."""

    def __init__(self, path: Path) -> None:
        self._command = [
            *(sys.executable, "-m", "pinlater", "serve", "--store", f"sqlite:{path}"),
            *("--thrift-port", "0", "--http-port", "0", "--no-console", "--set", "telemetry.log_format=json"),
            "--stop-with-stdin",  # a demo that is killed can't stop it, but its end of the pipe goes with it
        ]
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._said: deque[str] = deque(maxlen=_LINES_KEPT)
        self._ready = asyncio.Event()
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

    async def _read(self) -> None:
        """Reads the log to its end, so that the pipe never fills up."""
        if self._process is None or self._process.stderr is None:
            return
        async for line in self._process.stderr:
            text = line.decode("utf-8", "replace").strip().removeprefix("error: ")
            self._said.append(text)
            with contextlib.suppress(ValueError, TypeError, KeyError):
                entry = json.loads(text)
                if entry["event"] == "ready":
                    self.address, self.http_port = f"127.0.0.1:{entry['thrift_port']}", entry["http_port"]
                    self._ready.set()

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
