"""Delivers reports, the messages that end claims: one try, which says what the server took, refused or must get again, and the queue of
what is sent again for one shard.

A delivery must never drop a report unless the server refuses it for good.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

from pinlater.client.async_client import AsyncClient
from pinlater.client.errors import CallerError, PinLaterError, QueueNotFound, UnknownMethod
from pinlater.client.values import Ack, AckResult, Checkpoint, Outcome
from pinlater.domain.clock import Clock
from pinlater.domain.wording import counted
from pinlater.worker._attempts.endings import Kind, type_name
from pinlater.worker._outbox.leases import GiveBack, Lease, Message
from pinlater.worker.context import why_lost
from pinlater.worker.counts import WorkerCounts
from pinlater.worker.logs import fields_of

_log = logging.getLogger("pinlater.worker")
ACKS_PER_REQUEST_MAX = 1_000
# New bodies of rescheduled jobs in one request.
_BODY_BYTES_PER_REQUEST_MAX = 4 * 1024 * 1024
_NAMED_MAX = 3


class Delivery:
    """Sends one queue's reports. Calls `settled` with those that need no further try, and so no more heartbeats."""

    def __init__(
        self,
        client: AsyncClient,
        queue: str,
        counts: WorkerCounts,
        clock: Clock,
        retry_delay_ms: int,
        settled: Callable[[Sequence[Lease]], object],
    ) -> None:
        self.client, self.queue = client, queue
        self._counts = counts
        self._clock = clock
        self._retry_delay_ms = retry_delay_ms
        self._settled = settled
        self.original_server = False  # without outcomes, releases and error types

    async def send(self, reports: Sequence[Lease]) -> list[Lease]:
        """Sends reports of one kind in one request. Returns those to send again; raises PinLaterError if those are all.

        A CallerError is not retried: smaller requests find the reports that the server refuses.
        """
        try:
            return await self._send(reports)
        except UnknownMethod:
            if self.original_server:
                raise
            self.original_server = True
            return await self._send(reports)
        except CallerError as error:
            return await self._send_halves(reports, error)

    async def _send(self, reports: Sequence[Lease]) -> list[Lease]:
        if self.original_server:
            await self._send_plain(reports)
            return self.settle(reports, ())
        return self.settle(reports, await self._call(reports))

    async def _call(self, reports: Sequence[Lease]) -> Sequence[AckResult]:
        first = reports[0].message
        if isinstance(first, Ack):
            return await self.client.ack(self.queue, acks_of(reports), per_item_errors=True)
        if isinstance(first, GiveBack):
            claims = [report.message.claim for report in reports if isinstance(report.message, GiveBack)]
            return await self.client.release(self.queue, claims, delay_ms=first.delay_ms, per_item_errors=True)
        moves = [report.message for report in reports if isinstance(report.message, Checkpoint)]
        return await self.client.checkpoint(self.queue, moves, per_item_errors=True)

    async def _send_plain(self, reports: Sequence[Lease]) -> None:
        if isinstance(reports[0].message, Ack):
            await self.client.ack_plain(self.queue, acks_of(reports))
        else:
            await self.client.checkpoint_plain(self.queue, [self._as_checkpoint(report) for report in reports])

    def _as_checkpoint(self, report: Lease) -> Checkpoint:
        """For a server without releases."""
        if isinstance(report.message, Checkpoint):
            return report.message
        delay_ms = report.message.delay_ms if isinstance(report.message, GiveBack) else 0
        job = report.job
        return Checkpoint(job.descriptor, job.token, move_to_pending=True, run_after_ms=self._clock.now_ms() + delay_ms)

    # --- the server's answer ----------------------------------------------------------------------------------------------
    def settle(self, reports: Sequence[Lease], results: Sequence[AckResult]) -> list[Lease]:
        """Settles reports by the server's results; returns those to send again. Without `results` all were applied."""
        if len(results) != len(reports):
            results = [AckResult(report.job.descriptor, Outcome.APPLIED) for report in reports]
        again: list[Lease] = []
        settled: list[Lease] = []
        lost: list[tuple[Lease, Ack, AckResult]] = []
        released = 0
        for report, result in zip(reports, results, strict=True):
            if result.error is not None:
                report.maybe_applied = True
                if result.error.retryable or self._replaced_by_failure(report, result.error):
                    again.append(report)
                    continue
                self._count_refused(report, result.error.message)
            elif result.outcome is not Outcome.APPLIED and _did_not_count(report, result):
                if isinstance(report.message, Ack):
                    lost.append((report, report.message, result))
            elif not isinstance(report.message, Ack):
                released += 1
            settled.append(report)
        self._counts.released += released
        if lost:
            self._note_lost(lost)
        if settled:
            self._settled(settled)
        return again

    async def _send_halves(self, reports: Sequence[Lease], error: CallerError) -> list[Lease]:
        """The server refused the request and applied none of it: halves find the reports at fault."""
        if len(reports) == 1 or isinstance(error, QueueNotFound):
            return self.refused(reports, error)
        middle = len(reports) // 2
        again: list[Lease] = []
        for part in (reports[:middle], reports[middle:]):
            try:
                again += await self.send(part)
            except PinLaterError:
                mark_maybe_applied(part)
                again += part
        return again

    def refused(self, reports: Sequence[Lease], error: PinLaterError) -> list[Lease]:
        """The server refused these for good. Returns the report if a failure is to be sent in its place."""
        if len(reports) == 1 and self._replaced_by_failure(reports[0], error):
            return list(reports)
        if reports:
            _log.error("queue %s: %s refused: %s", self.queue, counted(len(reports), "report"), error.message)
        self._counts.acks_refused += sum(isinstance(report.message, Ack) for report in reports)
        self._settled(reports)
        return []

    def _replaced_by_failure(self, report: Lease, error: PinLaterError) -> bool:
        """A job that can't be rescheduled as its task wished fails instead, so that its history says why."""
        if not isinstance(report.message, Checkpoint) or self.original_server or isinstance(error, QueueNotFound):
            return False
        name, text = type_name(type(error)), f"could not be rescheduled: {error.message}"
        report.message = Ack(
            report.job.descriptor,
            succeeded=False,
            token=report.job.token,
            retry_delay_ms=self._retry_delay_ms,
            error_type=name,
            error_text=text,
        )
        _log.error("job %s %s", report.job.descriptor, text)
        return True

    def _note_lost(self, lost: Sequence[tuple[Lease, Ack, AckResult]]) -> None:
        """The claims had ended before these acks came: one line for all that were sent before, as after an outage of their shard."""
        waited: list[str] = []
        for report, ack, result in lost:
            self._count_lost(report, ack)
            if report.maybe_applied:
                waited.append(report.job.descriptor)
                continue
            _log.warning(
                "job %s: claim lost before its attempt ended, which counts for nothing: %s",
                report.job.descriptor, why_lost(result), extra=fields_of(report.job),
            )  # fmt: skip
        if waited:
            named, more = ", ".join(waited[:_NAMED_MAX]), len(waited) - _NAMED_MAX
            _log.warning(
                "queue %s: %s came too late: the claims had ended before the server could take them, so that these jobs run again: %s%s",
                self.queue, counted(len(waited), "report"), named, f" and {more} more" if more > 0 else "",
            )  # fmt: skip

    def _count_lost(self, report: Lease, ack: Ack) -> None:
        """The attempt neither succeeded nor failed."""
        self._counts.acks_refused += 1
        if report.is_counted and report.counts is not None:
            self._counts.lost += 1
            self._counts.succeeded -= ack.succeeded
            self._counts.failed -= not ack.succeeded
            failed = Kind.GIVEN_UP if ack.final else Kind.FAILED
            report.counts.was_lost(Kind.SUCCEEDED if ack.succeeded else failed)

    def _count_refused(self, report: Lease, reason: str) -> None:
        if isinstance(report.message, Ack):
            self._counts.acks_refused += 1
            _log.warning("job %s: ack refused: %s", report.job.descriptor, reason)
        else:
            _log.warning("job %s can't be given back: %s", report.job.descriptor, reason)


def _did_not_count(report: Lease, result: AckResult) -> bool:
    """Whether a refused report took no effect. One that an earlier try has brought is refused when it comes again. But a job that succeeded
    or was given up does not run again by itself: if it waits or runs now, no try has brought the ack."""
    if not report.maybe_applied:
        return True
    ends = isinstance(report.message, Ack) and (report.message.succeeded or report.message.final)
    return ends and result.outcome is Outcome.STALE_CLAIM


class RetryQueue:
    """The reports of one shard that could not be delivered at once: sent separately until the server has taken or refused each.

    So an unreachable shard delays neither claims nor the reports of other shards. Bounded by the claims that the worker held on that
    shard: an unreachable shard gives it no more. `backoff_s` is how long to wait after that many consecutive failures.
    """

    def __init__(self, delivery: Delivery, shard: str, backoff_s: Callable[[int], float]) -> None:
        self._delivery = delivery
        self._backoff_s = backoff_s
        self._name = f"queue {delivery.queue}, shard {shard}"
        self._reports: deque[Lease] = deque()
        self._failures = 0
        self._retry_after_s = 0.0  # as the server asks
        self._warned = False

    def __len__(self) -> int:
        return len(self._reports)

    def add(self, reports: Sequence[Lease]) -> None:
        """Adds more."""
        self._reports.extend(reports)

    def wait_first(self) -> None:
        """Waits before the first try: the server did not answer."""
        self._failures = max(1, self._failures)

    def retry_now(self) -> None:
        """The next try comes at once."""
        self._failures, self._retry_after_s = 0, 0.0

    async def run(self) -> None:
        """Returns when the queue is empty. Cancelled during a try, it keeps those reports."""
        while self._reports:
            if self._failures:
                await asyncio.sleep(max(self._backoff_s(self._failures), self._retry_after_s))
            batch = first_request(list(islice(self._reports, ACKS_PER_REQUEST_MAX)))
            again = await self._try(batch)
            for _ in batch:
                self._reports.popleft()
            self._reports.extend(again)
            if again:
                self._failures += 1
                continue
            if self._warned:
                _log.info("%s: reports arrive again", self._name)
            self._failures, self._retry_after_s, self._warned = 0, 0.0, False

    async def _try(self, batch: list[Lease]) -> list[Lease]:
        """The reports to send again."""
        try:
            again = await self._delivery.send(batch)
        except PinLaterError as error:
            self._warn(batch, str(error))
            self._retry_after_s = (error.retry_after_ms or 0) / 1000
        except asyncio.CancelledError:
            mark_maybe_applied(batch)
            raise
        except Exception:  # noqa: BLE001 - logged as what it is: a fault of ours, which must not lose them
            _log.exception("%s: reports can't be sent", self._name)
        else:
            if again:
                self._warn(again, "the server could not apply them")
            return again
        mark_maybe_applied(batch)
        return batch

    def _warn(self, reports: Sequence[Lease], reason: str) -> None:
        level = logging.DEBUG if self._warned else logging.WARNING  # one warning for many retries
        self._warned = True
        number = counted(len(reports), "report")
        _log.log(level, "%s: %s can't be delivered, retrying: %s", self._name, number, reason)


def _kind_of(message: Message) -> tuple[type, int]:
    """Messages of one kind fit in one request, which has one delay for all claims that it releases."""
    return type(message), message.delay_ms if isinstance(message, GiveBack) else 0


def mark_maybe_applied(reports: Sequence[Lease]) -> None:
    """A try to send these has failed, and may have reached the server."""
    for report in reports:
        report.maybe_applied = True


def first_request(reports: Sequence[Lease]) -> list[Lease]:
    """The first reports that fit in one request."""
    kind, size, taken = _kind_of(reports[0].message), 0, list[Lease]()
    for report in reports:
        size += len(report.message.new_body or b"") if isinstance(report.message, Checkpoint) else 0
        too_large = size > _BODY_BYTES_PER_REQUEST_MAX and bool(taken)
        if too_large or len(taken) >= ACKS_PER_REQUEST_MAX or _kind_of(report.message) != kind:
            break
        taken.append(report)
    return taken


def acks_of(reports: Sequence[Lease]) -> list[Ack]:
    """The acks among these."""
    return [report.message for report in reports if isinstance(report.message, Ack)]
