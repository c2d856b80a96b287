"""Masks bodies in answers to callers whose roles do not let them see these, whichever way the call came: commands, console and HTTP API
are clients as others are.

A dequeue that claims jobs is never masked: a worker needs its bodies whole. A filter by a body regex is refused where a mask holds, since a
caller could find a body with it letter by letter. That refusal is an error of the call, not a denial that slows the caller down.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from pinlater.domain.body_masks import BodyMasks, QueueMask
from pinlater.domain.errors import BodiesMasked
from pinlater.server.operations.service import Service
from pinlater.server.thrift.handlers import Handler

_MaskAnswer = Callable[[BodyMasks, Any, Any], Awaitable[None]]
"""Masks the bodies in the answer to a call: `(masks, call, answer)`."""
# Bodies that are looked into before other calls get a turn of the event loop.
_BYTES_A_TURN = 32 * 1024


def masking(masks: BodyMasks, method: str, call: Any, handle: Handler) -> Handler:
    """What carries out a call of a caller that sees bodies masked: `handle` if the call shows none."""
    by_body = _FILTERS.get(method)
    if by_body is not None:
        queue, regex = by_body(call)
        if regex and masks.of(queue).hides:
            return _refusing(queue)
    shown = _SHOWN.get(method)
    return handle if shown is None or not shown.wanted(call) else _masked(handle, masks, shown.mask)


def _of_request(call: Any) -> tuple[str, str | None]:
    return call.request.queueName, call.request.bodyRegexToMatch


def _of_order(call: Any) -> tuple[str, str | None]:
    return call.order.queueName, call.order.filter.bodyRegexToMatch


_FILTERS: Mapping[str, Callable[[Any], tuple[str, str | None]]] = {
    "getJobCount": _of_request,
    "countJobs": _of_request,
    "scanJobs": _of_request,
    "deleteJobs": _of_request,
    "startBulkRun": _of_order,
}
"""Queue and body regex of the methods that choose jobs by their bodies."""


def _refusing(queue: str) -> Handler:
    async def refuse(service: Service, call: Any) -> Any:
        del service, call
        raise BodiesMasked.of(queue)

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


async def _mask_looked_up(masks: BodyMasks, call: Any, answer: Any) -> None:
    del call
    turns = _Turns()
    for descriptor, info in answer.items():
        await _mask_info(turns, masks.of(descriptor.partition(":")[0]), info)


async def _mask_scanned(masks: BodyMasks, call: Any, answer: Any) -> None:
    turns, mask = _Turns(), masks.of(call.request.queueName)
    for info in answer.scannedJobs:
        await _mask_info(turns, mask, info)


async def _mask_info(turns: _Turns, mask: QueueMask, info: Any) -> None:
    if info.body is None:
        return
    masked = await turns.masked(mask, info.body)
    if masked is not None:
        info.body, info.bodyMasked = masked, True


async def _mask_dry_run(masks: BodyMasks, call: Any, answer: Any) -> None:
    turns, mask = _Turns(), masks.of(call.request.queueName)
    for descriptor, body in answer.jobs.items():
        masked = await turns.masked(mask, body)
        if masked is not None:
            answer.jobs[descriptor] = masked
            answer.jobMetadata[descriptor].bodyMasked = True


class _ShowsBodies(NamedTuple):
    """A method whose answers show bodies. `wanted(call)`: whether this call asks for them. `mask` changes its answer."""

    wanted: Callable[[Any], bool]
    mask: _MaskAnswer


def _includes_bodies(call: Any) -> bool:
    return bool(call.request.includeBody)


def _is_dry_run(call: Any) -> bool:
    return bool(call.request.dryRun)


_SHOWN: Mapping[str, _ShowsBodies] = {
    "lookupJobs": _ShowsBodies(_includes_bodies, _mask_looked_up),
    "scanJobs": _ShowsBodies(_includes_bodies, _mask_scanned),
    "dequeueJobs": _ShowsBodies(_is_dry_run, _mask_dry_run),
}


def _masked(handle: Handler, masks: BodyMasks, mask: _MaskAnswer) -> Handler:
    async def answer(service: Service, call: Any) -> Any:
        found = await handle(service, call)
        await mask(masks, call, found)
        return found

    return answer
