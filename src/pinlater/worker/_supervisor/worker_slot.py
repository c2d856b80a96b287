"""The slot of one worker process: asks for its health, and replaces it when the program has changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from pinlater.supervision.process_slot import ProcessSlot
from pinlater.supervision.restarts import OK, Next, next_start
from pinlater.worker._consumer.recycling import EXIT_CODE as RECYCLED
from pinlater.worker._process.control_channel import HealthAnswer, HealthRequest, WorkerHello, from_worker
from pinlater.worker._process.health import HealthReport

_ANSWER_S = 3.0
_GRACE_S = 30.0


class WorkerSlot(ProcessSlot[HealthReport]):
    """Calls `started` when a process runs. With `reloading` it waits for a change of the program instead of giving up."""

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
        after = next_start(code, lived_s, crashes, self._ever_ran, spread, (OK, RECYCLED))
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
