"""Runs several worker processes and keeps them running: what `pinlater worker --processes N` and `--reload` are.

It imports no user's code, so it can hardly crash or grow, and nothing of it gets into its workers. At the first SIGTERM or SIGINT they
stop in order, at a second one they hurry; killed by -9 it takes them along, since each holds a line to it. Probes and metrics of all of
them are served here, as one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

from pinlater.worker._process import metrics as _metrics
from pinlater.worker._process.control_channel import Hello
from pinlater.worker._process.endpoint import Endpoint
from pinlater.worker._process.health import Report
from pinlater.worker._supervisor.file_changes import changes
from pinlater.worker._supervisor.process_slot import Workplace

_log = logging.getLogger("pinlater.worker")
CANT_LISTEN = 1
# Beyond a process's own time to stop, and after a second signal.
_EXTRA_S, _HURRIED_S = 30.0, 10.0
STARTS = "pinlater_worker_process_starts_total"


class Supervisor:
    """Runs `processes` of `command`, each with the option `--line`. `reload`: the folder whose changes start them anew."""

    def __init__(self, command: Sequence[str], processes: int, *, reload: Path | None = None) -> None:
        self._reload = reload
        self._stopping = asyncio.Event()
        self._places = [Workplace(number, command, self._came, self._stopping) for number in range(processes)]
        self._endpoint: Endpoint | None = None
        self._opening: asyncio.Task[None] | None = None
        self._asking = asyncio.Lock()
        self._code = 0

    async def run(self) -> int:
        """Until a signal comes, or what can't be started is given up; the exit code."""
        with self._signals():
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(self._watch())
                async with asyncio.TaskGroup() as keeping:
                    for place in self._places:
                        keeping.create_task(self._keep(place))
                        await place.settled.wait()  # a wrong module is found by the first, and said once
                        if self._stopping.is_set():
                            break
                watching.cancel()
        if self._endpoint is not None:
            self._endpoint.stop()
        return self._code

    async def _keep(self, place: Workplace) -> None:
        code = await place.keep(patient=self._reload is not None)
        if code:
            self._give_up(code)

    def _give_up(self, code: int) -> None:
        self._code = self._code or code
        self._stop()

    async def _watch(self) -> None:
        if self._reload is None:
            return
        async for files in changes(self._reload):
            _log.info("changed, starting anew: %s", ", ".join(files[:3]) + (" …" if len(files) > 3 else ""))
            for place in self._places:
                place.start_anew()

    # --- stopping -----------------------------------------------------------------------------------------------------------
    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGTERM, signal.SIGINT)
        for number in numbers:
            loop.add_signal_handler(number, self._signalled)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    def _signalled(self) -> None:
        if not self._stopping.is_set():
            self._stop()
            return
        for place in self._places:
            place.hurry()
        self._kill_in(_HURRIED_S)

    def _stop(self) -> None:
        if self._stopping.is_set():
            return
        self._stopping.set()
        for place in self._places:
            place.stop()
            place.settled.set()
        self._kill_in(max(place.grace_s for place in self._places) + _EXTRA_S)

    def _kill_in(self, seconds: float) -> None:
        for place in self._places:
            asyncio.get_running_loop().call_later(seconds, place.kill)

    # --- probes -------------------------------------------------------------------------------------------------------------
    def _came(self, hello: Hello) -> None:
        if hello.health_port is not None and self._opening is None:
            self._opening = asyncio.create_task(self._open(hello.health_host, hello.health_port))

    async def _open(self, host: str, port: int) -> None:
        self._endpoint = Endpoint(host, port, self._ask)
        try:
            await self._endpoint.start()
        except OSError as error:
            _log.error("probes can't be answered: %s", error)
            self._give_up(CANT_LISTEN)
            return
        _log.info("probes are answered", extra={"host": host, "port": self._endpoint.port})

    async def _ask(self) -> Report:
        async with self._asking:
            running = [place for place in self._places if place.runs]
            reports = dict(zip(running, await asyncio.gather(*(place.report() for place in running)), strict=True))
        ill: list[str] = []
        unready: list[str] = ["stopping"] if self._stopping.is_set() else []
        for place in self._places:
            if place not in reports:
                unready.append(f"process {place.number}: does not run yet")
                continue
            report = reports[place] or Report(["no answer"], ["no answer"], "")
            ill += [f"process {place.number}: {problem}" for problem in report.ill]
            unready += [f"process {place.number}: {problem}" for problem in report.unready]
        pages = [self._starts(), *(report.metrics for report in reports.values() if report is not None)]
        return Report(ill, unready, _metrics.merged(pages))

    def _starts(self) -> str:
        lines = [f'{STARTS}{{process="{place.number}"}} {place.starts}' for place in self._places]
        return "\n".join((f"# HELP {STARTS} Starts of the process", f"# TYPE {STARTS} counter", *lines)) + "\n"
