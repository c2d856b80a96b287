"""Puts the workers into a server: their registry listens to calls about claims."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from pinlater.domain.workers import WaitingDequeues, WorkerStatus
from pinlater.server.features.feature import Feature
from pinlater.server.features.workers.registry import WorkerRegistry
from pinlater.server.features.workers.workers import Workers
from pinlater.server.front.operations import Forwarded
from pinlater.server.maintenance.sweeps import Sweeps
from pinlater.server.operations.long_lists import in_turns
from pinlater.server.operations.service import Service
from pinlater.server.thrift.methods.queues import rows_of_queues
from pinlater.server.thrift.methods.record import AnyQueue, ServedMethod
from pinlater.wire.generated import structs
from pinlater.wire.limits import fit_i32

_WORKERS_A_TURN = 250


async def _get_waiting_dequeues(
    service: Service, call: structs.getWaitingDequeues_args
) -> list[structs.WaitingDequeues]:
    del call
    return await in_turns(await service.of(Workers).waiting_dequeues(), _waiting)


def _waiting(found: Sequence[WaitingDequeues]) -> list[structs.WaitingDequeues]:
    return [structs.WaitingDequeues(*each) for each in found]


async def _get_workers(service: Service, call: structs.getWorkers_args) -> list[structs.ServerWorkers]:
    return [
        structs.ServerWorkers(
            await in_turns(each.workers, _statuses, _WORKERS_A_TURN),
            await in_turns(each.waiting, _waiting),
            each.server_id,
            fit_i32(each.servers),
            each.now_ms,
            each.up_ms,
            each.forgotten,
        )
        for each in await service.of(Workers).known_workers(bool(call.everywhere))
    ]


def _statuses(found: Sequence[WorkerStatus]) -> list[structs.WorkerStatus]:
    return [
        structs.WorkerStatus(
            status.source,
            status.process or None,
            status.heard_ms,
            [structs.WorkerQueue(*queue) for queue in status.queues],
            status.claim_ms,
            None if status.info is None else structs.WorkerInfo(*status.info),
            status.said_ms,
            [structs.LostClaim(*claim) for claim in status.lost],
        )
        for status in found
    ]


def _allowed_workers(may: AnyQueue, answer: Collection[Any]) -> Any:
    """Checks each queue name once: there may be ten thousand workers."""
    workers = [worker for server in answer for worker in server.workers]
    names = {row.queue for worker in workers for row in (*worker.queues, *worker.lost)}
    allowed = {name for name in names if may(name)}
    for worker in workers:
        worker.queues = [row for row in worker.queues if row.queue in allowed]
        worker.lost = [row for row in worker.lost if row.queue in allowed]
    for server in answer:
        server.workers = [worker for worker in server.workers if worker.queues]
        server.waiting = rows_of_queues(may, server.waiting)
    return answer


METHODS = [
    ServedMethod("getWaitingDequeues", handle=_get_waiting_dequeues, allowed_part=rows_of_queues),
    ServedMethod("getWorkers", handle=_get_workers, allowed_part=_allowed_workers),
]


def _add(service: Service) -> None:
    registry = WorkerRegistry(service.clock.monotonic)
    service.hear_claims(registry)
    service.of(Sweeps).lost_claims = registry.timed_out
    service.put(Workers(service, registry))


FEATURE = Feature(METHODS, _add, Forwarded(Workers, looks=("waiting_dequeues", "known_workers")))
