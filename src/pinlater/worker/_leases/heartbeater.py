"""Keeps the claims of jobs in hand, from a thread of its own with an event loop and connections of its own: a handler that blocks the
worker's loop keeps its claim all the same.

A claim is renewed each time a third of its length has passed, so that two heartbeats may get lost. Each claim's answer counts by
itself: a shard out of reach hides no lost claim on another. Where the server refuses all claims of a request for one shard's sake,
each shard's are sent by themselves. On a server that knows no heartbeats a bare checkpoint renews a claim. Weakness: code that holds
the interpreter's lock for long stops this thread too; run such code in a process.

While the worker's loop stands still nothing can begin there. What was claimed and not begun, also by a long poll whose answer lies
unread, is then given back for others to run. Weakness: it takes a second until that is noticed, and the unread answer of a server
that knows no tokens is left to its claims' timeout.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pinlater.client.async_client import AsyncClient
from pinlater.client.errors import PinLaterError, ServerUnreachable, UnknownMethod
from pinlater.client.values import AckResult, Checkpoint, Claim, ClaimedJob
from pinlater.domain.clock import Clock
from pinlater.domain.descriptor import shard_of
from pinlater.worker._leases.lease_table import HeartbeatTable
from pinlater.worker._leases.loop_watchdog import Pulse

_log = logging.getLogger("pinlater.worker")
_CLAIMS_A_REQUEST = 1_000
_PATIENCE_LEAST_S = 0.5
_STOP_S = 5.0
# How often to look whether the worker's loop turns, and for how long it may stand still before others get what it has not begun.
_LOOK_S = 0.25
_STANDS_STILL_S = 1.0
# What is given back is tried for so long; then its claims time out.
_GIVE_BACK_S = 30.0
_UNREAD_MAX = 10_000
# What an original server is configured with unless its operator says otherwise; it doesn't tell.
ORIGINAL_CLAIM_MS = 180_000


class Beat(NamedTuple):
    """A claim to keep. In the heart's thread `lost` is called when it turns out to be gone, and `returned` when it was given back."""

    job: ClaimedJob
    lost: Callable[[AckResult], None]
    returned: Callable[[], object]


# A queue, and a shard of it.
_Place = tuple[str, str]


def _place_of(beat: Beat) -> _Place:
    return beat.job.queue, shard_of(beat.job.descriptor)


def _by_shard(beats: Sequence[tuple[int, Beat]]) -> list[list[tuple[int, Beat]]]:
    parts: dict[_Place, list[tuple[int, Beat]]] = {}
    for number, beat in beats:
        parts.setdefault(_place_of(beat), []).append((number, beat))
    return list(parts.values())


class Heart:
    """Beats from `start` to `stop`. `keep` and `drop` may be called from any thread."""

    def __init__(self, new_client: Callable[[], AsyncClient], clock: Clock, unread: Callable[[], list[Any]]) -> None:
        self._new_client = new_client
        self._clock = clock
        self._unread = unread
        self._lock = threading.Lock()
        self._table = HeartbeatTable[int]()
        self._beats: dict[int, Beat] = {}
        self._next_due: float | None = None
        self._number = 0
        self.errors = 0
        self._troubled: set[_Place] = set()  # where the latest heartbeat did not get through
        self._until: dict[int, float] = {}  # of the jobs that have begun
        self._returned: set[int] = set()
        self._unread_returned: dict[Claim, None] = {}
        self._leaving: deque[tuple[float, ClaimedJob]] = deque()  # given back, not delivered yet: until when to try
        self._pulse: Pulse | None = None
        self._knows_heartbeats = True
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed: asyncio.Event | None = None
        self._stopped: asyncio.Event | None = None
        self._thread: threading.Thread | None = None

    @property
    def failing(self) -> bool:
        """Whether the latest heartbeat of any claim in hand did not get through."""
        with self._lock:
            return bool(self._troubled) and any(_place_of(beat) in self._troubled for beat in self._beats.values())

    def start(self) -> None:
        """Begins to beat."""
        ready = threading.Event()
        self._pulse = Pulse(asyncio.get_running_loop(), self._lock, time.monotonic)
        self._thread = threading.Thread(target=self._turn, args=(ready,), name="pinlater-heart", daemon=True)
        self._thread.start()
        ready.wait()

    def stop(self) -> None:
        """Ends the thread; a heartbeat under way is given up."""
        if self._loop is not None and self._stopped is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._stopped.set)
            self._thread.join(_STOP_S)  # a name server that doesn't answer must not keep the worker from ending

    def keep(self, beat: Beat, length_ms: int) -> int | None:
        """Keeps a claim that lasts `length_ms` from now; the number to drop it by. None where it was given back meanwhile."""
        with self._lock:
            if self._unread_returned:
                claim = Claim(beat.job.descriptor, beat.job.token)
                if claim in self._unread_returned:
                    del self._unread_returned[claim]
                    return None
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

    def drop_all(self, numbers: Sequence[int]) -> None:
        """These claims have ended."""
        with self._lock:
            for number in numbers:
                self._forget(number)

    def ended(self, number: int) -> None:
        """The job has ended in time. Its claim is kept until `drop`, however long that takes: until its report has arrived."""
        with self._lock:
            if number in self._beats:
                self._until[number] = math.inf

    def begin(self, number: int, until: float | None) -> bool:
        """The job begins; False where it must not, since it was given back.

        Its claim is kept no longer than `until`, by the monotonic clock: a job that should have been stopped by then, and was not
        because it blocks the loop that would have to stop it, must not be kept from other workers for ever.
        """
        with self._lock:
            if number in self._returned:
                self._returned.discard(number)
                return False
            if number in self._beats:
                self._until[number] = math.inf if until is None else until
            return True

    def _forget(self, number: int) -> bool:
        self._table.drop(number)
        self._until.pop(number, None)
        self._returned.discard(number)
        return self._beats.pop(number, None) is not None

    # --- in the thread ------------------------------------------------------------------------------------------------
    def _turn(self, ready: threading.Event) -> None:
        asyncio.run(self._beat_until_stopped(ready))

    async def _beat_until_stopped(self, ready: threading.Event) -> None:
        self._loop, self._changed, self._stopped = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        ready.set()
        async with self._new_client() as client:
            tasks = [asyncio.create_task(self._beat(client, self._changed)), asyncio.create_task(self._watch(client))]
            await self._stopped.wait()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _beat(self, client: AsyncClient, changed: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as renewing:  # a request that hangs must not hold up the others
            while True:
                changed.clear()
                with self._lock:
                    due = self._take_due()
                    wait_s = None if self._next_due is None else max(0.0, self._next_due - self._clock.monotonic())
                for (queue, _), beats in due.items():
                    for start in range(0, len(beats), _CLAIMS_A_REQUEST):
                        part = beats[start : start + _CLAIMS_A_REQUEST]
                        renewing.create_task(self._renew(client, queue, part, changed))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await changed.wait()

    def _take_due(self) -> dict[_Place, list[tuple[int, Beat]]]:
        """By queue; those of a shard in trouble by themselves."""
        due: dict[_Place, list[tuple[int, Beat]]] = {}
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
            place = _place_of(beat) if self._troubled else None
            where = place if place in self._troubled and place is not None else (beat.job.queue, "")
            due.setdefault(where, []).append((number, beat))
        self._next_due = self._table.next_due()
        return due

    async def _renew(
        self, client: AsyncClient, queue: str, beats: Sequence[tuple[int, Beat]], changed: asyncio.Event
    ) -> None:
        with self._lock:
            patience_s = max(_PATIENCE_LEAST_S, self._table.shortest([number for number, _ in beats]))
        try:
            async with asyncio.timeout(patience_s):  # a connection that hangs must leave time for another
                results = await self._ask(client, queue, [beat.job for _, beat in beats])
        except (PinLaterError, TimeoutError) as error:
            parts = _by_shard(beats)
            if len(parts) > 1 and not isinstance(error, ServerUnreachable):
                self.errors += 1
                await asyncio.gather(*(self._renew(client, queue, part, changed) for part in parts))
                return
            self._failed(queue, beats, str(error) or f"no answer within {patience_s:g} s")
        except Exception:  # noqa: BLE001 - logged as what it is: a fault of ours
            self.errors += 1
            _log.exception("queue %s: heartbeat failed", queue)
        else:
            failed = [(beat, result.error) for beat, result in zip(beats, results, strict=False) if result.error]
            if self._troubled:
                self._arrived(beats, [beat for beat, _ in failed])
            self._tell_lost(beats, results)
            if not failed:
                return
            beats = [beat for beat, _ in failed]
            self._failed(queue, beats, str(failed[0][1]))
        with self._lock:
            self._table.hurry([number for number, _ in beats], self._clock.monotonic())
        changed.set()

    def _failed(self, queue: str, beats: Sequence[tuple[int, Beat]], reason: str) -> None:
        places = {_place_of(beat) for _, beat in beats}
        level = logging.DEBUG if places <= self._troubled else logging.WARNING  # once: it is tried again often
        self.errors += 1
        with self._lock:
            self._troubled |= places
        shards = ", ".join(sorted(shard for _, shard in places))
        _log.log(level, "queue %s, shard %s: heartbeat failed, trying again: %s", queue, shards, reason)

    def _arrived(self, beats: Sequence[tuple[int, Beat]], failed: Sequence[tuple[int, Beat]]) -> None:
        """These heartbeats were answered, but for `failed`."""
        well = {_place_of(beat) for _, beat in beats} - {_place_of(beat) for _, beat in failed}
        if well & self._troubled:
            _log.info("heartbeats arrive again")
        with self._lock:
            self._troubled -= well

    def _tell_lost(self, beats: Sequence[tuple[int, Beat]], results: Sequence[AckResult]) -> None:
        for (number, beat), result in zip(beats, results, strict=False):
            if result.applied or result.error is not None:
                continue
            with self._lock:
                still_kept = self._forget(number)
            if still_kept:  # one that has ended meanwhile is no longer ours for the best of reasons
                with contextlib.suppress(RuntimeError):  # the worker's loop is closed
                    beat.lost(result)

    async def _ask(self, client: AsyncClient, queue: str, jobs: Sequence[ClaimedJob]) -> Sequence[AckResult]:
        if self._knows_heartbeats:
            try:
                claims = [Claim(job.descriptor, job.token) for job in jobs]
                return await client.heartbeat(queue, claims, per_item_errors=True)
            except UnknownMethod:
                self._knows_heartbeats = False
        await client.checkpoint_plain(queue, [Checkpoint(job.descriptor, job.token) for job in jobs])
        return []

    # --- while the worker's loop stands still ---------------------------------------------------------------------------
    async def _watch(self, client: AsyncClient) -> None:
        pulse = self._pulse
        while pulse is not None:
            await asyncio.sleep(_LOOK_S)
            try:
                if pulse.stands_still_s() >= _STANDS_STILL_S:
                    self._take_what_has_not_begun(pulse)
                await self._give_back(client)
            except Exception:  # noqa: BLE001 - logged as what it is: a fault of ours
                self.errors += 1
                _log.exception("what a blocked event loop has not begun can't be given back")

    def _take_what_has_not_begun(self, pulse: Pulse) -> None:
        """Decides under the lock, while the loop's sign is still missed: what it takes in after that, it takes in knowing."""
        unread = [job for dequeued in self._unread() for job in dequeued.jobs if job.token]
        with self._lock:
            if not pulse.missed:
                return
            until = time.monotonic() + _GIVE_BACK_S
            waiting = [number for number in self._beats if number not in self._until]
            beats = [self._beats[number] for number in waiting]
            for number in waiting:
                self._forget(number)
                self._returned.add(number)
            unread = [job for job in unread if Claim(job.descriptor, job.token) not in self._unread_returned]
            self._unread_returned.update(dict.fromkeys(Claim(job.descriptor, job.token) for job in unread))
            while len(self._unread_returned) > _UNREAD_MAX:  # of answers that were never taken in
                del self._unread_returned[next(iter(self._unread_returned))]
            self._leaving.extend((until, job) for job in [*(beat.job for beat in beats), *unread])
        for beat in beats:
            with contextlib.suppress(RuntimeError):  # the worker's loop is closed
                beat.returned()
        if beats or unread:
            count = len(beats) + len(unread)
            _log.warning("the event loop is blocked: %d jobs that wait for it are given back to other workers", count)

    async def _give_back(self, client: AsyncClient) -> None:
        while self._leaving and self._leaving[0][0] < time.monotonic():
            _, job = self._leaving.popleft()
            _log.warning("job %s could not be given back; its claim times out", job.descriptor)
        leaving = [self._leaving.popleft() for _ in range(min(len(self._leaving), _CLAIMS_A_REQUEST))]
        places: dict[_Place, list[tuple[float, ClaimedJob]]] = {}
        for until, job in leaving:
            places.setdefault((job.queue, shard_of(job.descriptor)), []).append((until, job))
        await asyncio.gather(*(self._give_back_part(client, queue, part) for (queue, _), part in places.items()))

    async def _give_back_part(self, client: AsyncClient, queue: str, part: Sequence[tuple[float, ClaimedJob]]) -> None:
        try:
            async with asyncio.timeout(_STOP_S):
                await self._release(client, queue, [job for _, job in part])
        except (PinLaterError, TimeoutError) as error:
            _log.debug("queue %s: %d jobs can't be given back yet: %s", queue, len(part), error)
            self._leaving.extend(part)

    async def _release(self, client: AsyncClient, queue: str, jobs: Sequence[ClaimedJob]) -> None:
        if self._knows_heartbeats and all(job.token for job in jobs):
            await client.release(queue, [Claim(job.descriptor, job.token) for job in jobs])
            return
        now_ms = self._clock.now_ms()
        items = [Checkpoint(job.descriptor, job.token, move_to_pending=True, run_after_ms=now_ms) for job in jobs]
        await client.checkpoint_plain(queue, items)
