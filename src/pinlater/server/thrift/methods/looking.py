"""Reads of jobs: by descriptor, by unique key, by a scan, and counts of them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pinlater.domain.access import BODIES
from pinlater.domain.body_masks import BodyMasks
from pinlater.server.operations.job_queries import HOLDERS_MAX
from pinlater.server.operations.job_settings import PAGES_BYTES_MAX
from pinlater.server.operations.merged_rows import PAGE_ROWS
from pinlater.server.operations.service import Service
from pinlater.server.thrift.costs import MemoryBounds
from pinlater.server.thrift.masking import Turns, mask_info
from pinlater.server.thrift.methods.record import (
    Chosen,
    ServedMethod,
    known_caller_of,
    queue_of_request,
    queues_of_request,
)
from pinlater.wire.generated import structs


def chosen_by_regex(call: Any) -> Chosen:
    """Returns the criterion of a request that selects jobs by a regex for bodies."""
    return Chosen(call.request.queue, call.request.regex)


def cost_of_search(bounds: MemoryBounds, call: Any) -> int:
    """Returns the cost of a call that shows no jobs, but searches bodies."""
    del bounds
    return PAGES_BYTES_MAX if call.request.regex is not None else 0


def _chosen_by_filter(call: Any) -> Chosen:
    chosen = call.request.filter
    return chosen_by_regex(call) if chosen is None else Chosen(call.request.queue, chosen.regex, chosen.error_text)


def _searches(call: Any) -> bool:
    return call.request.filter is not None or call.request.regex is not None


def _reads_bodies(call: Any) -> bool:
    chosen = call.request.filter
    return (call.request if chosen is None else chosen).regex is not None


def _cost_of_count(bounds: MemoryBounds, call: Any) -> int:
    if _reads_bodies(call):
        return PAGES_BYTES_MAX
    return 0 if call.request.filter is None else bounds.shown(PAGE_ROWS, bodies=False)


# --- by descriptor ------------------------------------------------------------------------------------------------------------
def _queues_of_descriptors(call: Any) -> Collection[str]:
    return {descriptor.partition(":")[0] for descriptor in call.request.descriptors}


def _with_bodies(call: Any) -> str | None:
    return BODIES if call.request.bodies else None


async def _mask_looked_up(masks: BodyMasks, call: Any, answer: Any) -> None:
    del call
    turns = Turns()
    for descriptor, info in answer.items():
        await mask_info(turns, masks.of(descriptor.partition(":")[0]), info)


def _cost_of_lookup(bounds: MemoryBounds, call: Any) -> int:
    return bounds.shown(len(call.request.descriptors), bodies=call.request.bodies)


# --- by unique key ------------------------------------------------------------------------------------------------------------
async def _find_unique_key(service: Service, call: structs.findUniqueKey_args) -> structs.KeyHolders:
    """Looks only into the queues of the token if a call names none, so that other queues take no place in the answer."""
    queues, known = call.request.queues, known_caller_of(call)
    if not queues and known is not None and known.queues is not None:
        queues = sorted(filter(known.queues, await service.queues.queue_names()))
        if not queues:
            return structs.KeyHolders([])
    return await service.job_queries.find_unique_key(queues, call.request.unique_key)


async def _mask_holders(masks: BodyMasks, call: Any, answer: Any) -> None:
    del call
    turns = Turns()
    for info in answer.jobs:
        await mask_info(turns, masks.of(info.descriptor.partition(":")[0]), info)


def _cost_of_holders(bounds: MemoryBounds, call: Any) -> int:
    del call
    return bounds.shown(HOLDERS_MAX, bodies=False)


# --- scans and counts ---------------------------------------------------------------------------------------------------------
async def _mask_scanned(masks: BodyMasks, call: Any, answer: Any) -> None:
    turns, mask = Turns(), masks.of(call.request.queue)
    for info in answer.jobs:
        await mask_info(turns, mask, info)


def _cost_of_scan(bounds: MemoryBounds, call: Any) -> int:
    request = call.request
    shown = bounds.shown(request.limit, bodies=request.bodies)
    if _reads_bodies(call):
        return shown + PAGES_BYTES_MAX
    if request.filter is not None:
        return shown + (PAGES_BYTES_MAX if request.bodies else bounds.shown(PAGE_ROWS, bodies=False))
    return shown + bounds.read(request.limit) if request.bodies else shown


METHODS = [
    ServedMethod(
        "lookupJobs",
        handle=lambda service, call: service.job_queries.lookup(call.request),
        queues=_queues_of_descriptors,
        variant=_with_bodies,
        mask=_mask_looked_up,
        cost_bytes=_cost_of_lookup,
        jobs_shown=lambda answer: answer,
    ),
    ServedMethod(
        "findUniqueKey",
        handle=_find_unique_key,
        queues=queues_of_request,
        wants_known_caller=True,
        mask=_mask_holders,
        cost_bytes=_cost_of_holders,
        jobs_shown=lambda answer: answer.jobs,
    ),
    ServedMethod(
        "scanJobs",
        handle=lambda service, call: service.job_queries.scan(call.request),
        queues=queue_of_request,
        chosen=_chosen_by_filter,
        mask=_mask_scanned,
        cost_bytes=_cost_of_scan,
        searches=_searches,
        jobs_shown=lambda answer: answer.jobs,
    ),
    ServedMethod(
        "getJobCount",
        handle=lambda service, call: service.job_queries.count(call.request),
        queues=queue_of_request,
        chosen=_chosen_by_filter,
        cost_bytes=_cost_of_count,
        searches=_searches,
    ),
    ServedMethod(
        "countJobs",
        handle=lambda service, call: service.job_queries.count_jobs(call.request),
        queues=queue_of_request,
        chosen=_chosen_by_filter,
        cost_bytes=_cost_of_count,
        searches=_searches,
    ),
]
