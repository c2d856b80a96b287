"""Reports as values, and one try to deliver some of them: which arrived, which were refused for good, which must be sent again.

It never decides when to try again: that is `_reports`' and `_retry_queue`'s. It must never drop a report but where the server refuses
it for good.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pinlater.client.async_client import AsyncClient
from pinlater.client.errors import CallerError, PinLaterError, QueueNotFound, UnknownMethod
from pinlater.client.values import Ack, AckBatch, AckResult, Checkpoint, Claim, ClaimedJob, Outcome
from pinlater.domain.clock import Clock
from pinlater.worker._attempts.endings import type_name
from pinlater.worker._reports.ack_buffer import ACKS_PER_REQUEST_MAX
from pinlater.worker.counts import WorkerCounts

_log = logging.getLogger("pinlater.worker")
# New bodies of rescheduled jobs in one request.
_BODY_BYTES_PER_REQUEST_MAX = 4 * 1024 * 1024


class GiveBack(NamedTuple):
    """A claim that ends unspent; the job is due again after `delay_ms`."""

    claim: Claim
    delay_ms: int


class Report:
    """What the server has to be told of one claim. Equal to itself only.

    `beat` is the number of its heartbeat, which goes on until the report is settled: a claim must not time out while the end of its
    attempt can't be delivered. `sent`: a try before this one may have arrived.
    """

    __slots__ = ("beat", "job", "sent", "word")

    def __init__(self, job: ClaimedJob, word: Ack | GiveBack | Checkpoint, beat: int | None = None) -> None:
        self.job = job
        self.word = word
        self.beat = beat
        self.sent = False


def mark_sent(reports: Sequence[Report]) -> None:
    """A try of these has failed, and may have arrived all the same."""
    for report in reports:
        report.sent = True


def first_request(reports: Sequence[Report]) -> list[Report]:
    """The first of these that fit one request, which are of one kind."""
    kind, size, taken = _kind(reports[0].word), 0, list[Report]()
    for report in reports:
        size += len(report.word.new_body or b"") if isinstance(report.word, Checkpoint) else 0
        too_large = size > _BODY_BYTES_PER_REQUEST_MAX and bool(taken)
        if too_large or len(taken) >= ACKS_PER_REQUEST_MAX or _kind(report.word) != kind:
            break
        taken.append(report)
    return taken


def _kind(word: Ack | GiveBack | Checkpoint) -> tuple[type, int]:
    """A request has one delay for all claims that it releases."""
    return type(word), word.delay_ms if isinstance(word, GiveBack) else 0


class Delivery:
    """Sends one queue's reports. `settled` is called with the heartbeats of those that need no further try."""

    def __init__(
        self,
        client: AsyncClient,
        queue: str,
        counts: WorkerCounts,
        clock: Clock,
        retry_delay_ms: int,
        settled: Callable[[Sequence[int]], object],
    ) -> None:
        self._client = client
        self._queue = queue
        self._counts = counts
        self._clock = clock
        self._retry_delay_ms = retry_delay_ms
        self._settled = settled
        self.original_server = False  # one that knows no outcomes, no releases and no error types

    def batch(self, acks: Sequence[Report]) -> AckBatch:
        """Acks to ride on a claim; `told` or `refused` must follow."""
        return AckBatch(self._queue, _acks(acks), per_item_errors=True)

    async def send(self, reports: Sequence[Report]) -> list[Report]:
        """Sends reports of one kind in one request; those that must be sent again. Raises PinLaterError where that is all of them.

        An error of the caller's is no reason to send again: its reports are refused, each by itself, so that none harms another.
        """
        try:
            return await self._send(reports)
        except UnknownMethod:
            if self.original_server:
                raise
            self.original_server = True
            return await self._send(reports)
        except CallerError as error:
            return await self._refused_each(reports, error)

    async def _send(self, reports: Sequence[Report]) -> list[Report]:
        if self.original_server:
            await self._send_plain(reports)
            return self.told(reports, ())
        return self.told(reports, await self._ask(reports))

    async def _ask(self, reports: Sequence[Report]) -> Sequence[AckResult]:
        word = reports[0].word
        if isinstance(word, Ack):
            return await self._client.ack(self._queue, _acks(reports), per_item_errors=True)
        if isinstance(word, GiveBack):
            claims = [report.word.claim for report in reports if isinstance(report.word, GiveBack)]
            return await self._client.release(self._queue, claims, delay_ms=word.delay_ms, per_item_errors=True)
        moves = [report.word for report in reports if isinstance(report.word, Checkpoint)]
        return await self._client.checkpoint(self._queue, moves, per_item_errors=True)

    async def _send_plain(self, reports: Sequence[Report]) -> None:
        if isinstance(reports[0].word, Ack):
            await self._client.ack_plain(self._queue, _acks(reports))
        else:
            await self._client.checkpoint_plain(self._queue, [self._moved(report) for report in reports])

    def _moved(self, report: Report) -> Checkpoint:
        """For a server that knows no releases."""
        if isinstance(report.word, Checkpoint):
            return report.word
        delay_ms = report.word.delay_ms if isinstance(report.word, GiveBack) else 0
        job = report.job
        return Checkpoint(job.descriptor, job.token, move_to_pending=True, run_after_ms=self._clock.now_ms() + delay_ms)

    # --- what became of them ----------------------------------------------------------------------------------------------
    def told(self, reports: Sequence[Report], results: Sequence[AckResult]) -> list[Report]:
        """Settles what the server has answered; those that must be sent again. Without `results` all of them took effect."""
        if len(results) != len(reports):
            results = [AckResult(report.job.descriptor, Outcome.APPLIED) for report in reports]
        again: list[Report] = []
        beats: list[int] = []
        released = 0
        for report, result in zip(reports, results, strict=True):
            if result.error is not None:
                report.sent = True
                if result.error.retryable or self._replaced(report, result.error):
                    again.append(report)
                    continue
                self._count_refused(report, result.error.message)
            elif not result.applied and not report.sent:
                if isinstance(report.word, Ack):
                    self._count_refused(report, f"{result.outcome.name} {result.holder}".rstrip())
            elif not isinstance(report.word, Ack):
                released += 1
            if report.beat is not None:
                beats.append(report.beat)
        self._counts.released += released
        if beats:
            self._settled(beats)
        return again

    async def _refused_each(self, reports: Sequence[Report], error: CallerError) -> list[Report]:
        """The request was refused as it is, and nothing of it was carried out: halves find out whose fault that is."""
        if len(reports) == 1 or isinstance(error, QueueNotFound):
            return self.refused(reports, error)
        middle = len(reports) // 2
        again: list[Report] = []
        for part in (reports[:middle], reports[middle:]):
            try:
                again += await self.send(part)
            except PinLaterError:
                mark_sent(part)
                again += part
        return again

    def refused(self, reports: Sequence[Report], error: PinLaterError) -> list[Report]:
        """They are refused for good; those that something else is to be sent for."""
        if len(reports) == 1 and self._replaced(reports[0], error):
            return list(reports)
        if reports:
            _log.error("queue %s: %d reports refused: %s", self._queue, len(reports), error.message)
        self._counts.acks_refused += sum(isinstance(report.word, Ack) for report in reports)
        self._settled([report.beat for report in reports if report.beat is not None])
        return []

    def _replaced(self, report: Report, error: PinLaterError) -> bool:
        """A job that can't be rescheduled as its handler wished fails, so that its history says why."""
        if not isinstance(report.word, Checkpoint) or self.original_server or isinstance(error, QueueNotFound):
            return False
        name, text = type_name(type(error)), f"could not be rescheduled: {error.message}"
        report.word = Ack(
            report.job.descriptor,
            succeeded=False,
            token=report.job.token,
            retry_delay_ms=self._retry_delay_ms,
            error_type=name,
            error_text=text,
        )
        _log.error("job %s %s", report.job.descriptor, text)
        return True

    def _count_refused(self, report: Report, reason: str) -> None:
        if isinstance(report.word, Ack):
            self._counts.acks_refused += 1
            _log.warning("job %s: ack refused: %s", report.job.descriptor, reason)
        else:
            _log.warning("job %s can't be given back: %s", report.job.descriptor, reason)


def _acks(reports: Sequence[Report]) -> list[Ack]:
    return [report.word for report in reports if isinstance(report.word, Ack)]
