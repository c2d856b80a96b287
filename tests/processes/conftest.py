"""A supervisor in the test's own event loop, whose processes serve nothing."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pinlater.server.config.settings import Settings
from pinlater.server.http.settings import HttpSettings
from pinlater.server.main.processes.server_slot import Timeouts
from pinlater.server.main.processes.supervisor import ServerSupervisor
from pinlater.server.thrift.settings import ThriftSettings
from tests.databases.ports import free_port

FAKE = Path(__file__).with_name("fake_child.py")
DEADLINE_S = 30.0


class Many:
    """A supervisor of fake processes. Their orders and starts are files in `folder`."""

    def __init__(
        self,
        folder: Path,
        processes: int,
        timeouts: Timeouts,
        *,
        console: bool = False,
        program: str = sys.executable,
    ) -> None:
        self.folder = folder
        self._processes = processes
        self._http_port = free_port()
        http = HttpSettings(port=self._http_port)
        settings = Settings(console=console, console_port=0, thrift=ThriftSettings(port=0), http=http)
        command = [program, str(FAKE), str(folder)]
        self.supervisor = ServerSupervisor(replace(settings, processes=processes), command, timeouts)
        self.running: asyncio.Task[int] | None = None

    def behave(self, number: int, mode: str) -> None:
        """From its next start on."""
        (self.folder / f"mode-{number}").write_text(mode)

    def _mode(self, number: int) -> str:
        file = self.folder / f"mode-{number}"
        return file.read_text() if file.exists() else "serve"

    async def start(self) -> Many:
        """Returns when it answers HTTP and all that can serve do."""
        running = self.begin()
        can_serve = [str(number) for number in range(self._processes) if self._mode(number) != "fail"]
        async with asyncio.timeout(DEADLINE_S):
            while not running.done():
                with contextlib.suppress(ConnectionError):
                    serves = await self.metric("pinlater_process_serves")
                    if all(serves.get(number) for number in can_serve):
                        return self
                await asyncio.sleep(0.01)
        running.result()
        raise RuntimeError("the supervisor has ended")

    def begin(self) -> asyncio.Task[int]:
        self.running = asyncio.create_task(self.supervisor.run())
        return self.running

    async def until(self, true: Callable[[], object]) -> None:
        """Waits for what the supervisor or a process does."""
        async with asyncio.timeout(DEADLINE_S):
            while not true():
                if self.running is not None and self.running.done():
                    self.running.result()
                await asyncio.sleep(0.01)

    def orders(self, number: int) -> list[str]:
        file = self.folder / f"orders-{number}"
        return file.read_text().split() if file.exists() else []

    def starts(self, number: int) -> int:
        file = self.folder / f"starts-{number}"
        return int(file.read_text() or 0) if file.exists() else 0

    async def process_id(self, number: int) -> int:
        return int((await self.info())["processes"][number]["pid"])

    def signal(self, number: signal.Signals) -> None:
        """As `kill` would."""
        os.kill(os.getpid(), number)

    async def get(self, path: str) -> tuple[int, str]:
        return await asyncio.to_thread(self._get, path)

    def _get(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self._http_port, timeout=DEADLINE_S)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    async def metric(self, name: str) -> dict[str, float]:
        """A metric's values by its one label; '' where it has none."""
        found = re.findall(rf'^{name}(?:{{\w+="([^"]*)"}})? (\S+)$', (await self.get("/metrics"))[1], re.MULTILINE)
        return {member: float(value) for member, value in found}

    async def until_serves(self, number: int, *, starts: int = 1) -> None:
        """Waits until a process of that number serves. `starts`: how many times at least it has been started."""
        async with asyncio.timeout(DEADLINE_S):
            while self.starts(number) < starts or not (await self.metric("pinlater_process_serves"))[str(number)]:
                await asyncio.sleep(0.01)

    async def info(self) -> dict[str, Any]:
        return dict(json.loads((await self.get("/server_info"))[1]))

    async def end(self) -> None:
        if self.running is None or self.running.done():
            return
        # Not by a signal, which would end the tests where the supervisor does not handle it yet.
        self.supervisor._processes.stop()
        for slot in self.supervisor._slots:
            slot.kill()
        with contextlib.suppress(OSError):
            await self.running


Start = Callable[..., Awaitable[Many]]


@pytest.fixture
async def many(tmp_path: Path) -> AsyncIterator[Callable[..., Many]]:
    """Makes supervisors; they end with the test."""
    made: list[Many] = []

    def make(processes: int = 2, *, answer_s: float = DEADLINE_S, stuck_s: float = 600.0, **more: Any) -> Many:
        """`more`: as `Many` takes it."""
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(Many(folder, processes, Timeouts(answer_s, stuck_s), **more))
        return made[-1]

    yield make
    for one in made:
        await one.end()
