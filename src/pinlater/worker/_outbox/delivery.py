"""One try to deliver reports: which ones the server took, refused, or must get again.

`outbox` and `retry_queue` decide when to try again. A delivery must never drop a report unless the server refuses it for good.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from pinlater.client.async_client import AsyncClient
from pinlater.client.errors import CallerError, PinLaterError, QueueNotFound, UnknownMethod
from pinlater.client.values import Ack, AckBatch, AckResult, Checkpoint, Outcome
from pinlater.domain.clock import Clock
from pinlater.domain.wording import counted
from pinlater.worker._attempts.endings import Kind, type_name
from pinlater.worker._outbox.report import GiveBack, Reported, acks_of, mark_maybe_applied
from pinlater.worker.context import why_lost
from pinlater.worker.counts import WorkerCounts
from pinlater.worker.logs import fields_of

_log = logging.getLogger("pinlater.worker")
_NAMED_MAX = 3


class Delivery:
    """Sends one queue's reports. Calls `settled` with those that need no further try."""

    def __init__(
        self,
        client: AsyncClient,
        queue: str,
        counts: WorkerCounts,
        clock: Clock,
        retry_delay_ms: int,
        settled: Callable[[Sequence[Reported]], object],
    ) -> None:
        self._client = client
        self._queue = queue
        self._counts = counts
        self._clock = clock
        self._retry_delay_ms = retry_delay_ms
        self._settled = settled
        self.original_server = False  # without outcomes, releases and error types

    def batch(self, acks: Sequence[Reported]) -> AckBatch:
        """Acks that ride on a claim; `settle` or `refused` must follow."""
        return AckBatch(self._queue, acks_of(acks), per_item_errors=True)

    async def send(self, reports: Sequence[Reported]) -> list[Reported]:
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

    async def _send(self, reports: Sequence[Reported]) -> list[Reported]:
        if self.original_server:
            await self._send_plain(reports)
            return self.settle(reports, ())
        return self.settle(reports, await self._call(reports))

    async def _call(self, reports: Sequence[Reported]) -> Sequence[AckResult]:
        first = reports[0].message
        if isinstance(first, Ack):
            return await self._client.ack(self._queue, acks_of(reports), per_item_errors=True)
        if isinstance(first, GiveBack):
            claims = [report.message.claim for report in reports if isinstance(report.message, GiveBack)]
            return await self._client.release(self._queue, claims, delay_ms=first.delay_ms, per_item_errors=True)
        moves = [report.message for report in reports if isinstance(report.message, Checkpoint)]
        return await self._client.checkpoint(self._queue, moves, per_item_errors=True)

    async def _send_plain(self, reports: Sequence[Reported]) -> None:
        if isinstance(reports[0].message, Ack):
            await self._client.ack_plain(self._queue, acks_of(reports))
        else:
            await self._client.checkpoint_plain(self._queue, [self._as_checkpoint(report) for report in reports])

    def _as_checkpoint(self, report: Reported) -> Checkpoint:
        """For a server without releases."""
        if isinstance(report.message, Checkpoint):
            return report.message
        delay_ms = report.message.delay_ms if isinstance(report.message, GiveBack) else 0
        job = report.job
        return Checkpoint(job.descriptor, job.token, move_to_pending=True, run_after_ms=self._clock.now_ms() + delay_ms)

    # --- the server's answer ----------------------------------------------------------------------------------------------
    def settle(self, reports: Sequence[Reported], results: Sequence[AckResult]) -> list[Reported]:
        """Settles reports by the server's results; returns those to send again. Without `results` all were applied."""
        if len(results) != len(reports):
            results = [AckResult(report.job.descriptor, Outcome.APPLIED) for report in reports]
        again: list[Reported] = []
        settled: list[Reported] = []
        lost: list[tuple[Reported, Ack, AckResult]] = []
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

    async def _send_halves(self, reports: Sequence[Reported], error: CallerError) -> list[Reported]:
        """The server refused the request and applied none of it: halves find the reports at fault."""
        if len(reports) == 1 or isinstance(error, QueueNotFound):
            return self.refused(reports, error)
        middle = len(reports) // 2
        again: list[Reported] = []
        for part in (reports[:middle], reports[middle:]):
            try:
                again += await self.send(part)
            except PinLaterError:
                mark_maybe_applied(part)
                again += part
        return again

    def refused(self, reports: Sequence[Reported], error: PinLaterError) -> list[Reported]:
        """The server refused these for good. Returns the report if a failure is to be sent in its place."""
        if len(reports) == 1 and self._replaced_by_failure(reports[0], error):
            return list(reports)
        if reports:
            _log.error("queue %s: %s refused: %s", self._queue, counted(len(reports), "report"), error.message)
        self._counts.acks_refused += sum(isinstance(report.message, Ack) for report in reports)
        self._settled(reports)
        return []

    def _replaced_by_failure(self, report: Reported, error: PinLaterError) -> bool:
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

    def _note_lost(self, lost: Sequence[tuple[Reported, Ack, AckResult]]) -> None:
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
                self._queue, counted(len(waited), "report"), named, f" and {more} more" if more > 0 else "",
            )  # fmt: skip

    def _count_lost(self, report: Reported, ack: Ack) -> None:
        """The attempt neither succeeded nor failed."""
        self._counts.acks_refused += 1
        if report.is_counted and report.counts is not None:
            self._counts.lost += 1
            self._counts.succeeded -= ack.succeeded
            self._counts.failed -= not ack.succeeded
            failed = Kind.GIVEN_UP if ack.final else Kind.FAILED
            report.counts.was_lost(Kind.SUCCEEDED if ack.succeeded else failed)

    def _count_refused(self, report: Reported, reason: str) -> None:
        if isinstance(report.message, Ack):
            self._counts.acks_refused += 1
            _log.warning("job %s: ack refused: %s", report.job.descriptor, reason)
        else:
            _log.warning("job %s can't be given back: %s", report.job.descriptor, reason)


def _did_not_count(report: Reported, result: AckResult) -> bool:
    """Whether a refused report took no effect. One that an earlier try has brought is refused when it comes again. But a job that succeeded
    or was given up does not run again by itself: if it waits or runs now, no try has brought the ack."""
    if not report.maybe_applied:
        return True
    ends = isinstance(report.message, Ack) and (report.message.succeeded or report.message.final)
    return ends and result.outcome is Outcome.STALE_CLAIM
