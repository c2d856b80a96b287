"""The pages of statistics and health over several processes, each asked when the page is requested.

The last known counts of a process that has ended stay in the sums, so that no counter ever falls. A process that does not answer in time
counts with its last numbers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Literal

import msgspec
from prometheus_client.registry import Collector

from pinlater.domain.clock import Clock
from pinlater.server.http.status import Readiness
from pinlater.server.main.processes.control_channel import StatusAnswer
from pinlater.server.main.processes.server_slot import ServerSlot
from pinlater.server.telemetry.joining import join, join_readings, only_queues
from pinlater.server.telemetry.metrics import GaugeReading, Metrics
from pinlater.server.telemetry.numbers import NOTHING, Numbers, look
from pinlater.server.telemetry.processes import Processes, ProcessVitals
from pinlater.server.telemetry.snapshots import Reading
from pinlater.version import __version__

SUPERVISOR = "supervisor"
_unpack: msgspec.msgpack.Decoder[Numbers | None] = msgspec.msgpack.Decoder(Numbers | None)


class Joined:
    """Implements `http.status.StatusSource`. `state`: that of the whole: starting, ready, draining."""

    def __init__(self, slots: Sequence[ServerSlot], metrics: Metrics, clock: Clock, state: Callable[[], str]) -> None:
        self._slots = slots
        self._metrics = metrics
        self._clock = clock
        self._state = state
        self._started_at_ms = clock.now_ms()
        self._started_s = clock.monotonic()
        self._past: Reading = NOTHING
        self._over: dict[int, int] = {}  # by slot: the latest start whose process is in the past
        self._known: Collection[str] = ()
        self._show_processes()

    def ended(self, slot: ServerSlot) -> None:
        """Keeps the counts of a process that has ended, for queues that another process still knows."""
        numbers = None if slot.latest_numbers is None else _unpack.decode(slot.latest_numbers)
        self._over[slot.number] = slot.starts
        if numbers is not None:
            self._past = only_queues(join_readings([self._past, numbers.reading]), self._known)

    # --- statistics ---------------------------------------------------------------------------------------------------------

    async def look(self, *, last_minute: bool) -> Callable[[], Numbers]:
        if last_minute:
            answers = await self._ask("last minute")
            recent = [answer.numbers for answer in answers if answer is not None]
            own = look(self._metrics, (), last_minute=True)
            return lambda: join([*_unpacked(recent), own()])
        found = await asyncio.gather(*map(self._all_of, self._slots))
        # A process that ended while others were asked is in the past by now, and must not be counted twice.
        packed = [numbers for slot, start, numbers in found if start > self._over.get(slot.number, 0)]
        silent = [slot.latest_numbers for slot, _, numbers in found if numbers is None]
        return partial(self._since_the_start, look(self._metrics, (), last_minute=False), packed, silent, self._past)

    async def gauges(self) -> Sequence[GaugeReading]:
        return (await self.look(last_minute=True))().gauges

    async def _all_of(self, slot: ServerSlot) -> tuple[ServerSlot, int, msgspec.Raw | None]:
        answer = await slot.ask("all")
        return slot, slot.starts, None if answer is None else answer.numbers

    def _since_the_start(
        self,
        own: Callable[[], Numbers],
        packed: Sequence[msgspec.Raw | None],
        silent: Sequence[msgspec.Raw | None],
        past: Reading,
    ) -> Numbers:
        before = [Numbers(numbers.reading) for numbers in _unpacked(silent)]
        joined = join([*_unpacked(packed), *before, own()])
        # No running process knows a queue that was deleted.
        self._known = {*joined.reading.queues, *(row.queue for row in joined.counts)}
        return joined._replace(reading=join_readings([joined.reading, only_queues(past, self._known)]))

    def processes(self) -> Collector:
        vitals = [ProcessVitals(SUPERVISOR, None, ())]
        for slot in self._slots:
            if slot.process_id is not None:
                garbage = () if slot.latest is None else tuple(slot.latest.vitals.garbage)
                vitals.append(ProcessVitals(str(slot.number), slot.process_id, garbage))
        return Processes(vitals)

    def _show_processes(self) -> None:
        metrics = self._metrics
        metrics.gauge(
            "processes", lambda: len(self._slots), prometheus="pinlater_processes", help="Server processes wanted"
        )
        gauges: Mapping[str, tuple[Callable[[ServerSlot], float], str]] = {
            "pinlater_process_serves": (lambda slot: slot.serves, "1 while the process takes connections"),
            "pinlater_process_starts": (lambda slot: slot.starts, "How often it was started"),
            "pinlater_process_requests": (
                lambda slot: slot.latest.vitals.requests if slot.latest else 0,
                "Requests answered by the process since it was started",
            ),
            "pinlater_process_connections": (
                lambda slot: slot.latest.vitals.connections if slot.latest else 0,
                "Open connections of the process",
            ),
        }
        for prometheus, (read, text) in gauges.items():
            name = prometheus.removeprefix("pinlater_").replace("_", "-")
            metrics.labelled_gauge(f"{name}-", self._each(read), prometheus=prometheus, label="process", help=text)

    def _each(self, read: Callable[[ServerSlot], float]) -> Callable[[], Mapping[str, float]]:
        return lambda: {str(slot.number): read(slot) for slot in self._slots}

    # --- health -------------------------------------------------------------------------------------------------------------

    async def alive(self) -> Readiness:
        """The supervisor handles processes that start or have crashed; a process counts as hung only after a while."""
        answers = await self._ask("none")
        silent = [
            f"process {slot.number}: no answer"
            for slot, answer in zip(self._slots, answers, strict=True)
            if answer is None and slot.serves
        ]
        return Readiness(not silent, tuple(silent))

    async def readiness(self) -> Readiness:
        """Returns ready if at least one process is, and the reasons of the others."""
        if self._state() != "ready":
            return Readiness(False, (self._state(),))
        answers = await self._ask("none")
        ready = any(answer is not None and answer.vitals.ready for answer in answers)
        return Readiness(ready, tuple(_reasons(self._slots, answers)))

    async def server_info(self) -> Mapping[str, object]:
        answers = await self._ask("none")
        ready = next((answer for answer in answers if answer is not None and answer.vitals.ready), None)
        return {
            **({} if ready is None else ready.vitals.info),
            "name": "pinlater",
            "version": __version__,
            "state": self._state(),
            "started_at_ms": self._started_at_ms,
            "uptime_ms": round((self._clock.monotonic() - self._started_s) * 1000),
            "processes": [_process(slot, answer) for slot, answer in zip(self._slots, answers, strict=True)],
        }

    async def _ask(self, numbers: Literal["none", "all", "last minute"]) -> list[StatusAnswer | None]:
        return await asyncio.gather(*(slot.ask(numbers) for slot in self._slots))


def _unpacked(packed: Iterable[msgspec.Raw | None]) -> list[Numbers]:
    found = [_unpack.decode(one) for one in packed if one is not None]
    return [numbers for numbers in found if numbers is not None]


def _reasons(slots: Sequence[ServerSlot], answers: Sequence[StatusAnswer | None]) -> list[str]:
    """Returns why each process is not in its normal state. A reason that all of them have appears once."""
    found: dict[str, list[int]] = {}
    for slot, answer in zip(slots, answers, strict=True):
        for reason in _why(slot, answer):
            found.setdefault(reason, []).append(slot.number)
    return [
        reason if len(numbers) == len(slots) else f"{_named(numbers)}: {reason}" for reason, numbers in found.items()
    ]


def _why(slot: ServerSlot, answer: StatusAnswer | None) -> Sequence[str]:
    if answer is not None:
        return answer.vitals.reasons
    if slot.serves:
        return ("no answer",)
    return ("starting",) if slot.process_id is not None else ("waits to be started again",)


def _named(numbers: Sequence[int]) -> str:
    return ("process " if len(numbers) == 1 else "processes ") + ", ".join(map(str, numbers))


def _process(slot: ServerSlot, answer: StatusAnswer | None) -> Mapping[str, object]:
    known = {} if answer is None else answer.vitals.info
    return {
        "process": slot.number,
        "pid": slot.process_id,
        "state": known.get("state", _why(slot, answer)[0] if answer is None else None),
        "started_at_ms": known.get("started_at_ms"),
        "starts": slot.starts,
        "front": known.get("front", False),
    }
