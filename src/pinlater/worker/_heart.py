"""Keeps the claims of jobs in hand, from a thread of its own with an event loop and connections of its own: a handler that blocks the
worker's loop keeps its claim all the same.

A claim is renewed each time a third of its length has passed, so that two heartbeats may get lost. On a server that knows no
heartbeats a bare checkpoint renews it. Weakness: code that holds the interpreter's lock for long stops this thread too; run such
code in a process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pinlater.client.async_client import AsyncClient
from pinlater.client.errors import PinLaterError, UnknownMethod
from pinlater.client.values import AckResult, Checkpoint, Claim, ClaimedJob
from pinlater.domain.clock import Clock
from pinlater.worker._heartbeats import HeartbeatTable

_log = logging.getLogger("pinlater.worker")
_CLAIMS_A_REQUEST = 1_000
_PATIENCE_LEAST_S = 0.5
_STOP_S = 5.0
# What an original server is configured with unless its operator says otherwise; it doesn't tell.
ORIGINAL_CLAIM_MS = 180_000


class Beat(NamedTuple):
    """A claim to keep. `lost` is called, in the heart's thread, when it turns out to be gone."""

    job: ClaimedJob
    lost: Callable[[AckResult], None]


class Heart:
    """Beats from `start` to `stop`. `keep` and `drop` may be called from any thread."""

    def __init__(self, new_client: Callable[[], AsyncClient], clock: Clock) -> None:
        self._new_client = new_client
        self._clock = clock
        self._lock = threading.Lock()
        self._table = HeartbeatTable[int]()
        self._beats: dict[int, Beat] = {}
        self._next_due: float | None = None
        self._number = 0
        self.errors = 0
        self.failing = False  # the latest heartbeat did not get through
        self._until: dict[int, float] = {}
        self._knows_heartbeats = True
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed: asyncio.Event | None = None
        self._stopped: asyncio.Event | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begins to beat."""
        ready = threading.Event()
        self._thread = threading.Thread(target=self._turn, args=(ready,), name="pinlater-heart", daemon=True)
        self._thread.start()
        ready.wait()

    def stop(self) -> None:
        """Ends the thread; a heartbeat under way is given up."""
        if self._loop is not None and self._stopped is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._stopped.set)
            self._thread.join(_STOP_S)  # a name server that doesn't answer must not keep the worker from ending

    def keep(self, beat: Beat, length_ms: int) -> int:
        """Keeps a claim that lasts `length_ms` from now; the number to drop it by."""
        with self._lock:
            self._number += 1
            number = self._number
            self._beats[number] = beat
            due = self._table.add(number, length_ms, self._clock.monotonic())
            sooner = self._next_due is None or due < self._next_due
            if sooner:
                self._next_due = due
        if sooner and self._loop is not None and self._changed is not None:
            self._loop.call_soon_threadsafe(self._changed.set)
        return number

    def drop(self, number: int) -> None:
        """The claim has ended."""
        with self._lock:
            self._forget(number)

    def limit(self, number: int, until: float) -> None:
        """Keeps the claim no longer than `until`, by the monotonic clock: a job that should have been stopped by then, and was not
        because it blocks the loop that would have to stop it, must not be kept from other workers for ever."""
        with self._lock:
            if number in self._beats:
                self._until[number] = until

    def _forget(self, number: int) -> bool:
        self._table.drop(number)
        self._until.pop(number, None)
        return self._beats.pop(number, None) is not None

    # --- in the thread ------------------------------------------------------------------------------------------------
    def _turn(self, ready: threading.Event) -> None:
        asyncio.run(self._beat_until_stopped(ready))

    async def _beat_until_stopped(self, ready: threading.Event) -> None:
        self._loop, self._changed, self._stopped = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        ready.set()
        async with self._new_client() as client:
            beating = asyncio.create_task(self._beat(client, self._changed))
            await self._stopped.wait()
            beating.cancel()
            await asyncio.wait([beating])

    async def _beat(self, client: AsyncClient, changed: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as renewing:  # a request that hangs must not hold up the others
            while True:
                changed.clear()
                with self._lock:
                    due = self._take_due()
                    wait_s = None if self._next_due is None else max(0.0, self._next_due - self._clock.monotonic())
                for queue, beats in due.items():
                    for start in range(0, len(beats), _CLAIMS_A_REQUEST):
                        part = beats[start : start + _CLAIMS_A_REQUEST]
                        renewing.create_task(self._renew(client, queue, part, changed))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await changed.wait()

    def _take_due(self) -> dict[str, list[tuple[int, Beat]]]:
        by_queue: dict[str, list[tuple[int, Beat]]] = {}
        now = self._clock.monotonic()
        for number in self._table.take_due(now):
            beat = self._beats[number]
            if now >= self._until.get(number, now + 1):
                self._forget(number)
                _log.error(
                    "job %s: its time limit is over and nothing could stop it; is the event loop blocked? "
                    "Its claim is no longer renewed, so that another worker may have it", beat.job.descriptor,
                )  # fmt: skip
                continue
            by_queue.setdefault(beat.job.queue, []).append((number, beat))
        self._next_due = self._table.next_due()
        return by_queue

    async def _renew(
        self, client: AsyncClient, queue: str, beats: Sequence[tuple[int, Beat]], changed: asyncio.Event
    ) -> None:
        with self._lock:
            patience_s = max(_PATIENCE_LEAST_S, self._table.shortest([number for number, _ in beats]))
        try:
            async with asyncio.timeout(patience_s):  # a connection that hangs must leave time for another
                results = await self._ask(client, queue, [beat.job for _, beat in beats])
        except (PinLaterError, TimeoutError) as error:
            self._say_failed(queue, str(error) or f"no answer within {patience_s:g} s")
        except Exception:  # noqa: BLE001 - logged as what it is: a fault of ours
            self.errors += 1
            _log.exception("queue %s: heartbeat failed", queue)
        else:
            if self.failing:
                _log.info("heartbeats arrive again")
            self.failing = False
            self._tell_lost(beats, results)
            return
        with self._lock:
            self._table.hurry([number for number, _ in beats], self._clock.monotonic())
        changed.set()

    def _say_failed(self, queue: str, reason: str) -> None:
        level = logging.DEBUG if self.failing else logging.WARNING  # once: it is tried again often
        self.errors += 1
        self.failing = True
        _log.log(level, "queue %s: heartbeat failed, trying again: %s", queue, reason)

    def _tell_lost(self, beats: Sequence[tuple[int, Beat]], results: Sequence[AckResult]) -> None:
        for (number, beat), result in zip(beats, results, strict=False):
            if result.applied:
                continue
            with self._lock:
                still_kept = self._forget(number)
            if still_kept:  # one that has ended meanwhile is no longer ours for the best of reasons
                with contextlib.suppress(RuntimeError):  # the worker's loop is closed
                    beat.lost(result)

    async def _ask(self, client: AsyncClient, queue: str, jobs: Sequence[ClaimedJob]) -> Sequence[AckResult]:
        if self._knows_heartbeats:
            try:
                return await client.heartbeat(queue, [Claim(job.descriptor, job.token) for job in jobs])
            except UnknownMethod:
                self._knows_heartbeats = False
        await client.checkpoint_plain(queue, [Checkpoint(job.descriptor, job.token) for job in jobs])
        return []
