"""Runs several worker processes: `pinlater worker --processes N` and `--reload`.

The supervisor imports no user code, so it hardly grows, and its workers share nothing with it. The first SIGTERM or SIGINT stops them in
order, a second one without their grace time. If the supervisor is killed, its workers stop: their control channels break. It serves the
probes and metrics of all of them as one.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from pinlater.supervision.process_group import ProcessGroup
from pinlater.supervision.process_slot import ProcessSlot
from pinlater.supervision.restarts import OK, Next, next_start
from pinlater.supervision.signals import handled
from pinlater.supervision.start_signals import STOP_SIGNALS
from pinlater.worker._process.control_channel import HealthAnswer, HealthRequest, WorkerHello, from_worker
from pinlater.worker._process.endpoint import HealthEndpoint
from pinlater.worker._process.health import HealthReport, merged
from pinlater.worker._supervisor.file_changes import changes

_log = logging.getLogger("pinlater.worker")
CANT_LISTEN = 1
# How long a process may take to stop, beyond its grace time.
_EXTRA_S = 30.0
# Its grace time, until it says hello.
_GRACE_S = 30.0
_ANSWER_S = 3.0
STARTS = "pinlater_worker_process_starts_total"


class WorkerSlot(ProcessSlot[HealthReport]):
    """The slot of one worker process: asks for its health, and replaces it when the program has changed.

    Calls `started` when a process runs. With `reloading` it waits for a change of the program instead of giving up.
    """

    kind = "worker process"

    def __init__(
        self,
        number: int,
        command: Sequence[str],
        stopping: asyncio.Event,
        started: Callable[[WorkerHello], None],
        *,
        reloading: bool,
    ) -> None:
        super().__init__(number, command, stopping, _ANSWER_S)
        self._call_started = started
        self._reloading = reloading
        self._ever_ran = False  # with the program as it is now
        self.grace_s = _GRACE_S

    def _channel_option(self, descriptor: int) -> str:
        return f"{descriptor}:{self.number}"

    def _received(self, body: bytes) -> None:
        message = from_worker.decode(body)
        if isinstance(message, HealthAnswer):
            self._answered(message.number, message.report)
            return
        self.grace_s = message.grace_ms / 1000
        self._ever_ran = True
        self._says_it_serves()
        self._call_started(message)

    def _next_start(self, code: int, lived_s: float, crashes: int, spread: float) -> Next | None:
        after = next_start(code, lived_s, crashes, self._ever_ran, spread, (OK, os.EX_TEMPFAIL))
        return None if after.delay_s is None and not self._reloading else after

    async def report(self) -> HealthReport | None:
        """The health of the process; None if it doesn't answer in time."""
        return await self._ask(HealthRequest)

    def replace(self) -> None:
        """Ends the process, and starts another at once."""
        self._replaced.set()
        self._ever_ran = False
        self.stop()
        self.stop_now()


class WorkerSupervisor:
    """Runs `processes` of `command`, each with the option `--control-channel`. A change in the folder `reload` restarts them."""

    def __init__(self, command: Sequence[str], processes: int, *, reload: Path | None = None) -> None:
        self._reload = reload
        self._stopping = asyncio.Event()
        self._slots = [
            WorkerSlot(number, command, self._stopping, self._worker_started, reloading=reload is not None)
            for number in range(processes)
        ]
        self._processes = ProcessGroup(
            self._slots, self._stopping, lambda: max(slot.grace_s for slot in self._slots) + _EXTRA_S
        )
        self._endpoint: HealthEndpoint | None = None
        self._opening: asyncio.Task[None] | None = None
        self._code = 0

    async def run(self) -> int:
        """Runs until a signal comes, or a process can't start. Returns the exit code."""
        with handled(dict.fromkeys(STOP_SIGNALS, self._processes.signalled)):
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(self._restart_after_changes())
                await self._processes.keep(lambda _, code: self._give_up(code))
                watching.cancel()
        if self._endpoint is not None:
            self._endpoint.stop()
        return self._code

    def _give_up(self, code: int) -> None:
        self._code = self._code or code
        self._processes.stop()

    async def _restart_after_changes(self) -> None:
        if self._reload is None:
            return
        async for files in changes(self._reload):
            _log.info("files changed, restarting: %s", ", ".join(files[:3]) + (" …" if len(files) > 3 else ""))
            for slot in self._slots:
                slot.replace()

    # --- probes -----------------------------------------------------------------------------------------------------------
    def _worker_started(self, hello: WorkerHello) -> None:
        if hello.health_port is not None and self._opening is None:
            self._opening = asyncio.create_task(self._open(hello.health_host, hello.health_port))

    async def _open(self, host: str, port: int) -> None:
        self._endpoint = HealthEndpoint(host, port, self._report)
        try:
            await self._endpoint.start()
        except OSError as error:
            _log.error("can't answer probes: %s", error.strerror or error)
            self._give_up(CANT_LISTEN)
            return
        _log.info("answering probes", extra={"host": host, "port": self._endpoint.port})

    async def _report(self, metrics: bool) -> HealthReport:
        serving = [slot for slot in self._slots if slot.serves]
        reports = dict(zip(serving, await asyncio.gather(*(slot.report() for slot in serving)), strict=True))
        unhealthy: list[str] = []
        unready: list[str] = ["stopping"] if self._stopping.is_set() else []
        for slot in self._slots:
            if slot not in reports:
                unready.append(f"process {slot.number}: does not run yet")
                continue
            report = reports[slot] or HealthReport(["no answer"], ["no answer"], "")
            unhealthy += [f"process {slot.number}: {problem}" for problem in report.unhealthy]
            unready += [f"process {slot.number}: {problem}" for problem in report.unready]
        pages = [self._starts(), *(report.metrics for report in reports.values() if report is not None)]
        return HealthReport(unhealthy, unready, merged(pages) if metrics else "")

    def _starts(self) -> str:
        lines = [f'{STARTS}{{process="{slot.number}"}} {slot.starts}' for slot in self._slots]
        return "\n".join((f"# HELP {STARTS} Starts of the process", f"# TYPE {STARTS} counter", *lines)) + "\n"
