"""What a worker tells the server of a claim, as values."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from pinlater.client.values import Ack, Checkpoint, Claim, ClaimedJob
from pinlater.worker.counts import TaskCounts

ACKS_PER_REQUEST_MAX = 1_000
# New bodies of rescheduled jobs in one request.
_BODY_BYTES_PER_REQUEST_MAX = 4 * 1024 * 1024
T = TypeVar("T")


class GiveBack(NamedTuple):
    """Ends a claim without using up an attempt; the job is due again after `delay_ms`."""

    claim: Claim
    delay_ms: int


class Report:
    """One claim's message to the server. Equal to itself only.

    `lease`: the claim is renewed until the server has taken the report, since a claim must not time out while its report can't be
    delivered. `maybe_applied`: an earlier try may have reached the server.
    `task_counts`: where the attempt that ends with this ack was counted.
    """

    __slots__ = ("job", "lease", "maybe_applied", "message", "task_counts")

    def __init__(
        self,
        job: ClaimedJob,
        message: Ack | GiveBack | Checkpoint,
        lease: int | None = None,
        task_counts: TaskCounts | None = None,
    ) -> None:
        self.job = job
        self.message = message
        self.lease = lease
        self.task_counts = task_counts
        self.maybe_applied = False

    def kind(self) -> tuple[type, int]:
        """Reports of one kind fit in one request, which has one delay for all claims that it releases."""
        return type(self.message), self.message.delay_ms if isinstance(self.message, GiveBack) else 0


def mark_maybe_applied(reports: Sequence[Report]) -> None:
    """A try to send these has failed, and may have reached the server."""
    for report in reports:
        report.maybe_applied = True


def first_request(reports: Sequence[Report]) -> list[Report]:
    """The first reports that fit in one request."""
    kind, size, taken = reports[0].kind(), 0, list[Report]()
    for report in reports:
        size += len(report.message.new_body or b"") if isinstance(report.message, Checkpoint) else 0
        too_large = size > _BODY_BYTES_PER_REQUEST_MAX and bool(taken)
        if too_large or len(taken) >= ACKS_PER_REQUEST_MAX or report.kind() != kind:
            break
        taken.append(report)
    return taken


def acks_of(reports: Sequence[Report]) -> list[Ack]:
    """The acks among these."""
    return [report.message for report in reports if isinstance(report.message, Ack)]


class AckBuffer(Generic[T]):
    """One queue's acks that wait for the next claim, or for a flush if no claim follows soon, in order.

    Bounded by the jobs that a worker may hold.
    """

    def __init__(self) -> None:
        self._acks: deque[T] = deque()
        self._filled = asyncio.Event()
        self._since = 0.0  # when the oldest came, by the event loop's time

    def __len__(self) -> int:
        return len(self._acks)

    def add(self, ack: T) -> None:
        if not self._acks:
            self._since = asyncio.get_running_loop().time()
            self._filled.set()
        self._acks.append(ack)

    def take(self) -> list[T]:
        """The oldest acks, as many as fit in a request."""
        taken = [self._acks.popleft() for _ in range(min(len(self._acks), ACKS_PER_REQUEST_MAX))]
        if not self._acks:
            self._filled.clear()
        return taken

    async def wait_for_flush(self, after_s: float) -> None:
        """Returns when the oldest ack has waited for `after_s`."""
        loop = asyncio.get_running_loop()
        while True:
            await self._filled.wait()
            remaining_s = self._since + after_s - loop.time()
            if remaining_s <= 0:
                return
            await asyncio.sleep(remaining_s)
