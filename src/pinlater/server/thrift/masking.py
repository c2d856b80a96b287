"""Masks bodies in answers to callers whose roles do not let them see these, whichever way the call came: commands, console and HTTP API
are clients as others are. Where whole bodies are masked, so are the texts that may quote them.

A dequeue that claims jobs is never masked: a worker needs its bodies whole. A filter by what is masked is refused, since a caller could
find a body with it letter by letter. That refusal is an error of the call, not a denial that slows the caller down.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple

from pinlater.domain.body_masks import MASKED_VALUE, BodyMasks, QueueMask, masked_status, masked_text
from pinlater.domain.errors import BodiesMasked
from pinlater.domain.job_criteria import group_of_texts
from pinlater.server.operations.service import Service
from pinlater.server.thrift.handlers import Handler

_MaskAnswer = Callable[[BodyMasks, Any, Any], Awaitable[None]]
"""Masks the answer to a call: `(masks, call, answer)`."""
# Bodies that are looked into before other calls get a turn of the event loop.
_BYTES_A_TURN = 32 * 1024


class _Chooses(NamedTuple):
    """What a call chooses jobs by, of what may be masked."""

    queue: str
    body_regex: str | None
    error_text: str | None = None


def masking(masks: BodyMasks, method: str, call: Any, handle: Handler) -> Handler:
    """What carries out a call of a caller that sees bodies masked: `handle` if the call shows none."""
    chooses = _FILTERS.get(method)
    if chooses is not None:
        refusal = _refusal(masks, chooses(call))
        if refusal is not None:
            return _refusing(refusal)
    mask_answer = _SHOWN.get(method)
    if mask_answer is None or (method == "dequeueJobs" and not call.request.dryRun):
        return handle
    return _masked(handle, masks, mask_answer)


def _refusal(masks: BodyMasks, chosen: _Chooses) -> BodiesMasked | None:
    mask = masks.of(chosen.queue)
    if chosen.body_regex and mask.hides:
        return BodiesMasked.of(chosen.queue)
    if chosen.error_text and mask.texts:
        return BodiesMasked.of(chosen.queue, "Errors", "text")
    return None


def _of_request(call: Any) -> _Chooses:
    return _Chooses(call.request.queueName, call.request.bodyRegexToMatch)


def _of_order(call: Any) -> _Chooses:
    return _Chooses(call.order.queueName, call.order.filter.bodyRegexToMatch, call.order.filter.errorText)


_FILTERS: Mapping[str, Callable[[Any], _Chooses]] = {
    "getJobCount": _of_request,
    "countJobs": _of_request,
    "scanJobs": _of_request,
    "deleteJobs": _of_request,
    "startBulkRun": _of_order,
}
"""The methods that choose jobs by their bodies or errors."""


def _refusing(refusal: BodiesMasked) -> Handler:
    async def refuse(service: Service, call: Any) -> Any:
        del service, call
        raise refusal

    return refuse


class _Turns:
    """Gives other calls a turn after some bytes."""

    def __init__(self) -> None:
        self._bytes = 0

    async def masked(self, mask: QueueMask, body: bytes) -> bytes | None:
        """Returns the body as `QueueMask.masked` does."""
        self._bytes += len(body)
        if self._bytes >= _BYTES_A_TURN:
            self._bytes = 0
            await asyncio.sleep(0)
        return mask.masked(body)

    async def pause_for(self, texts: Any) -> None:
        """The same for the texts of a job."""
        self._bytes += len(texts.customStatus) + len(texts.lastErrorText or "")
        if self._bytes >= _BYTES_A_TURN:
            self._bytes = 0
            await asyncio.sleep(0)


async def _mask_looked_up(masks: BodyMasks, call: Any, answer: Any) -> None:
    del call
    turns = _Turns()
    for descriptor, info in answer.items():
        await _mask_info(turns, masks.of(descriptor.partition(":")[0]), info)


async def _mask_scanned(masks: BodyMasks, call: Any, answer: Any) -> None:
    turns, mask = _Turns(), masks.of(call.request.queueName)
    for info in answer.scannedJobs:
        await _mask_info(turns, mask, info)


async def _mask_holders(masks: BodyMasks, call: Any, answer: Any) -> None:
    del call
    turns = _Turns()
    for info in answer.jobs:
        await _mask_info(turns, masks.of(info.jobDescriptor.partition(":")[0]), info)


async def _mask_explained(masks: BodyMasks, call: Any, answer: Any) -> None:
    del call
    if answer.job is not None:
        await _mask_info(_Turns(), masks.of(answer.jobDescriptor.partition(":")[0]), answer.job)


async def _mask_info(turns: _Turns, mask: QueueMask, info: Any) -> None:
    if mask.texts:
        await turns.pause_for(info)
        _mask_texts(info)
    if info.body is None:
        return
    masked = await turns.masked(mask, info.body)
    if masked is not None:
        info.body, info.bodyMasked = masked, True


def _mask_texts(info: Any) -> None:
    attempts = info.attempts or ()
    error_type, error_text = info.lastErrorType or "", info.lastErrorText or ""
    if error_type or error_text or attempts:
        outcome = attempts[-1].outcome if attempts else ""
        info.failureGroup = group_of_texts(info.headers or {}, outcome, error_type, error_text, info.customStatus)
    info.customStatus = masked_status(info.customStatus)
    info.progress = None
    info.lastErrorText = masked_text(info.lastErrorText)
    for attempt in attempts:
        attempt.errorText = masked_text(attempt.errorText)


async def _mask_dry_run(masks: BodyMasks, call: Any, answer: Any) -> None:
    turns, mask = _Turns(), masks.of(call.request.queueName)
    for descriptor, body in answer.jobs.items():
        masked = await turns.masked(mask, body)
        if masked is not None:
            answer.jobs[descriptor] = masked
            answer.jobMetadata[descriptor].bodyMasked = True


async def _mask_failures(masks: BodyMasks, call: Any, answer: Any) -> None:
    del call
    for group in answer.groups:
        if masks.of(group.queueName).texts:
            group.pattern = masked_text(group.pattern)


async def _mask_run(masks: BodyMasks, call: Any, answer: Any) -> None:
    del call
    _mask_filters(masks, [answer])


async def _mask_runs(masks: BodyMasks, call: Any, answer: Any) -> None:
    del call
    _mask_filters(masks, answer)


async def _mask_listed_runs(masks: BodyMasks, call: Any, answer: Any) -> None:
    del call
    _mask_filters(masks, answer.runs)


def _mask_filters(masks: BodyMasks, runs: Iterable[Any]) -> None:
    """A caller that sees the bodies may have chosen jobs by what they hold."""
    for run in runs:
        mask, chosen = masks.of(run.order.queueName), run.order.filter
        if mask.hides and chosen.bodyRegexToMatch is not None:
            chosen.bodyRegexToMatch = MASKED_VALUE
        if mask.texts:
            chosen.errorText = masked_text(chosen.errorText)


_SHOWN: Mapping[str, _MaskAnswer] = {
    "lookupJobs": _mask_looked_up,
    "findUniqueKey": _mask_holders,
    "scanJobs": _mask_scanned,
    "dequeueJobs": _mask_dry_run,
    "explainJob": _mask_explained,
    "getFailures": _mask_failures,
    "startBulkRun": _mask_run,
    "stopBulkRun": _mask_run,
    "getBulkRuns": _mask_runs,
    "listBulkRuns": _mask_listed_runs,
}
"""The methods whose answers show bodies, or texts that may quote them."""


def _masked(handle: Handler, masks: BodyMasks, mask: _MaskAnswer) -> Handler:
    async def answer(service: Service, call: Any) -> Any:
        found = await handle(service, call)
        await mask(masks, call, found)
        return found

    return answer
