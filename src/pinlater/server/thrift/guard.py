"""Whether a call may be carried out: its method and its queues against what the caller's token allows, before any operation sees it.

A caller whose token is for some queues sees only these in lists. Acks, cancels and the like name their queue, and the operations ignore
descriptors of other queues; only lookupJobs names no queue, so each of its descriptors is checked. Bodies that the caller's roles do not
let it see are masked in its answers (`masking`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from pinlater.domain.access import BODIES, DRY_RUN, FAILURE_TEXTS
from pinlater.domain.audit import NO_TOKEN, UNKNOWN_TOKEN, AuditCaller
from pinlater.domain.caller_address import shown_address
from pinlater.domain.calls import KeyHolders
from pinlater.domain.errors import AccessDenied
from pinlater.server.access.control import AccessControl, Grant
from pinlater.server.operations.identity import SOURCE_CHARS_MAX
from pinlater.server.operations.service import Service
from pinlater.server.thrift.answers import caller_rights, key_holders
from pinlater.server.thrift.handlers import Handler
from pinlater.server.thrift.masking import masking
from pinlater.server.thrift.requests import bulk_order, named_source
from pinlater.wire.bulk_runs import wire_run
from pinlater.wire.codec import DecodedCall

logger = logging.getLogger(__name__)

DELETE_QUEUE, PAUSE_QUEUE, SERVER_INFO = "deleteQueue", "pauseQueue", "getServerInfo"
START_BULK_RUN, FIND_UNIQUE_KEY = "startBulkRun", "findUniqueKey"


def _no_queue(call: Any) -> Collection[str]:
    del call
    return ()


def _queue_made(call: Any) -> Collection[str]:
    return (call.name,)


def _queue(call: Any) -> Collection[str]:
    return (call.queueName,)


def _queue_of_request(call: Any) -> Collection[str]:
    return (call.request.queueName,)


def _dequeue(call: Any) -> Collection[str]:
    acks = call.request.jobAckRequest
    queue = call.request.queueName
    return (queue,) if acks is None or acks.queueName == queue else (queue, acks.queueName)


def _descriptors(call: Any) -> Collection[str]:
    return {descriptor.partition(":")[0] for descriptor in call.request.jobDescriptors}


def _queue_of_audit(call: Any) -> Collection[str]:
    return () if call.request.queueName is None else (call.request.queueName,)


def _queues_of_request(call: Any) -> Collection[str]:
    return call.request.queueNames  # type: ignore[no-any-return]


def _marked_queue(call: Any) -> Collection[str]:
    """A mark for all queues, without a name, needs a token for all."""
    return (call.mark.queueName or "",)


def _queue_of_mute(call: Any) -> Collection[str]:
    return (call.mute.queueName,)


def _queue_of_order(call: Any) -> Collection[str]:
    return (call.order.queueName,)


def _named_queues(call: Any) -> Collection[str]:
    return call.queueNames  # type: ignore[no-any-return]


QUEUES: Mapping[str, Callable[[Any], Collection[str]]] = {
    "createQueue": _queue_made,
    "deleteQueue": _queue_made,
    "enqueueJobs": _queue_of_request,
    "dequeueJobs": _dequeue,
    "ackDequeuedJobs": _queue_of_request,
    "checkpointJobs": _queue_of_request,
    "lookupJobs": _descriptors,
    "findUniqueKey": _queues_of_request,
    "getJobCount": _queue_of_request,
    "getQueueNames": _no_queue,
    "scanJobs": _queue_of_request,
    "retryFailedJobs": _queue_of_request,
    "deleteJobs": _queue_of_request,
    "getServerInfo": _no_queue,
    "ackJobs": _queue_of_request,
    "checkpointJobsFenced": _queue_of_request,
    "heartbeatClaims": _queue_of_request,
    "releaseJobs": _queue_of_request,
    "cancelJobs": _queue,
    "configureQueue": _queue,
    "getQueueConfig": _queue,
    "pauseQueue": _queue,
    "resumeQueue": _queue,
    "getQueueStats": _named_queues,
    "runJobs": _queue_of_request,
    "changePriority": _queue_of_request,
    "countJobs": _queue_of_request,
    "getSettingsInForce": _queue,
    "getWaitingDequeues": _no_queue,
    "getWorkers": _no_queue,
    "getCluster": _no_queue,
    "explainJob": _queue,
    "getQueueHistory": _queues_of_request,
    "getFailures": _queues_of_request,
    "muteFailures": _queue_of_mute,
    "startBulkRun": _queue_of_order,
    "stopBulkRun": _queue,
    "getBulkRuns": _named_queues,
    "listBulkRuns": _queues_of_request,
    "addDeployMark": _marked_queue,
    "getQueueOwners": _no_queue,
    "getAudit": _queue_of_audit,
    "deleteJobsByDescriptor": _queue,
}
"""The queues that a call of each method names, all of which the token must allow."""


def _allowed_names(grant: Grant, answer: Iterable[str]) -> Any:
    return {name for name in answer if grant.has_queue(name)}


def _allowed_rows(grant: Grant, answer: Iterable[Any]) -> Any:
    return [row for row in answer if grant.has_queue(row.queueName)]


def _allowed_runs(grant: Grant, answer: Iterable[Any]) -> Any:
    return [run for run in answer if grant.has_queue(run.order.queueName)]


def _allowed_listed_runs(grant: Grant, answer: Any) -> Any:
    answer.runs = _allowed_runs(grant, answer.runs)
    return answer


def _allowed_workers(grant: Grant, answer: Collection[Any]) -> Any:
    """Looks at each name of a queue once: there may be ten thousand workers."""
    workers = [worker for server in answer for worker in server.workers]
    names = {row.queueName for worker in workers for row in (*worker.queues, *worker.lost)}
    allowed = {name for name in names if grant.has_queue(name)}
    for worker in workers:
        worker.queues = [row for row in worker.queues if row.queueName in allowed]
        worker.lost = [row for row in worker.lost if row.queueName in allowed]
    for server in answer:
        server.workers = [worker for worker in server.workers if worker.queues]
        server.waiting = _allowed_rows(grant, server.waiting)
    return answer


def _allowed_entries(grant: Grant, page: Any) -> Any:
    page.entries = [entry for entry in page.entries if entry.queueName and grant.has_queue(entry.queueName)]
    return page


_LISTS: Mapping[str, Callable[[Grant, Any], Any]] = {
    "getQueueNames": _allowed_names,
    "getQueueStats": _allowed_rows,
    "getWaitingDequeues": _allowed_rows,
    "getWorkers": _allowed_workers,
    "getAudit": _allowed_entries,
    "getBulkRuns": _allowed_runs,
    "listBulkRuns": _allowed_listed_runs,
}


def _cluster_without_texts(status: Any) -> Any:
    """Keeps the kinds of failures, and whether a shard is full."""
    for shard in status.shards:
        if shard.details is not None:
            shard.details.failure = None
            shard.details.full = shard.details.full and "full"
    return status


def _runs_without_texts(runs: Iterable[Any]) -> Any:
    """Keeps why a run has ended, which no database says."""
    shown = list(runs)
    for run in shown:
        if run.detail and run.endedMillis is None:
            run.detail = "waits"
    return shown


def _listed_runs_without_texts(answer: Any) -> Any:
    answer.runs = _runs_without_texts(answer.runs)
    return answer


_WITHOUT_TEXTS: Mapping[str, Callable[[Any], Any]] = {
    "getCluster": _cluster_without_texts,
    "getBulkRuns": _runs_without_texts,
    "listBulkRuns": _listed_runs_without_texts,
}


class Guard:
    """Guards the calls of one listener."""

    def __init__(self, access: AccessControl) -> None:
        self.access = access

    def admit(self, call: DecodedCall, handle: Handler) -> Handler:
        """What carries out the call: `handle`, or, for a caller who may see less or do more, another handler.

        Raises AccessDenied.
        """
        arguments = call.arguments
        grant = self.access.grant_of(arguments.requestContext.authToken)
        user = arguments.requestContext.onBehalfOf
        who = grant.who(user) if user else grant.name
        name = call.method.name
        if name == DELETE_QUEUE:
            return _delete_queue(grant, arguments, handle)
        if name not in grant.allowed or name == "lookupJobs":
            grant.check_roles(_variant(name, arguments))
        if name == SERVER_INFO:
            return _telling_rights(grant, handle)
        if name == PAUSE_QUEUE:
            handle = _pausing(self._shown(call, grant, who))
        if name == START_BULK_RUN:
            handle = _starting(self._shown(call, grant, who), self.caller(call))
        if grant.masks is not None:
            handle = masking(grant.masks, name, arguments, handle)
        without_texts = None if FAILURE_TEXTS in grant.allowed else _WITHOUT_TEXTS.get(name)
        if without_texts is not None:
            handle = _reduced(handle, without_texts)
        if grant.all_queues:
            return handle
        grant.check_queues(name, QUEUES[name](arguments))
        if name == FIND_UNIQUE_KEY and not arguments.request.queueNames:
            return _finding_in_allowed(handle, grant)
        only_allowed = _LISTS.get(name)
        return handle if only_allowed is None else _filtered(handle, only_allowed, grant)

    def _shown(self, call: DecodedCall, grant: Grant, who: str) -> str:
        """How people see a caller. What is in brackets at the end is proven; a source is only what callers call themselves."""
        context = call.arguments.requestContext
        if grant.name:
            return _with_proof(context.source, f" (token {who})")
        return _with_proof(named_source(context), f" ({NO_TOKEN})" if self.access.has_tokens else "")

    def caller(self, call: DecodedCall) -> AuditCaller:
        """The caller, for the audit."""
        context = call.arguments.requestContext
        try:
            grant = self.access.grant_of(context.authToken)
        except AccessDenied:
            return AuditCaller(UNKNOWN_TOKEN)
        roles = tuple(role.value for role in grant.roles)
        try:
            return AuditCaller(grant.who(context.onBehalfOf), roles)
        except AccessDenied:  # what it says is no name of a user
            return AuditCaller(grant.name, roles)

    def refused(self, call: DecodedCall, host: str, error: AccessDenied) -> float:
        """Notes a refusal; after how many seconds it is to be answered.

        Callers without a good token are counted by address, each good token at an address for itself: all callers of a console have its
        address, and guesses must not delay the refusals of others.
        """
        use = self.access.use_of(call.arguments.requestContext.authToken)
        refusal = self.access.refusals.one(f"{host} token {use.name}" if use is not None and use.name else host)
        if refusal.log:
            logger.warning(
                "access refused: %s",
                error.message,
                extra={
                    "method": call.method.name,
                    "detail": error.detail,
                    "host": shown_address(call.arguments.requestContext.callerAddress or "", host),
                    "source": call.arguments.requestContext.source,
                    "refusals": refusal.log,
                },
            )
        return refusal.delay_s


def _variant(name: str, call: Any) -> str:
    """The method, or the variant of it that the call is."""
    if name == "lookupJobs" and call.request.includeBody:
        return BODIES
    if name == "dequeueJobs" and call.request.dryRun and call.request.jobAckRequest is None:
        return DRY_RUN
    return name


def _delete_queue(grant: Grant, call: Any, handle: Handler) -> Handler:
    """Without the role a caller may still know the admin password, which decides as it does without access control."""
    if DELETE_QUEUE in grant.allowed and grant.has_queue(call.name):
        return _delete_without_password
    if not call.password:
        grant.check_roles(DELETE_QUEUE)
        grant.check_queues(DELETE_QUEUE, (call.name,))
    return handle


async def _delete_without_password(service: Service, call: Any) -> None:
    await service.queues.delete_queue(call.name, None)


def _telling_rights(grant: Grant, handle: Handler) -> Handler:
    async def answer(service: Service, call: Any) -> Any:
        info = await handle(service, call)
        info.caller = caller_rights(grant.rights)
        return info

    return answer


def _with_proof(source: str, proof: str) -> str:
    """A long source is cut, so that it can't push the name of the token out."""
    return source[: SOURCE_CHARS_MAX - len(proof)] + proof


def _pausing(shown: str) -> Handler:
    """Keeps the caller with the pause."""

    async def pause(service: Service, call: Any) -> None:
        await service.queues.set_paused(call.queueName, True, shown)

    return pause


def _starting(shown: str, caller: AuditCaller) -> Handler:
    """The same with a bulk run. `caller`: for the audit, when the run ends."""

    async def start(service: Service, call: Any) -> Any:
        return wire_run(
            await service.bulk_runs.start(bulk_order(call.order), shown, call.requestContext.source, caller),
        )

    return start


def _reduced(handle: Handler, without_texts: Callable[[Any], Any]) -> Handler:
    async def answer(service: Service, call: Any) -> Any:
        return without_texts(await handle(service, call))

    return answer


def _finding_in_allowed(handle: Handler, grant: Grant) -> Handler:
    """Names the queues of the token where a call names none, so that what is in others takes no place in the answer."""

    async def find(service: Service, call: Any) -> Any:
        call.request.queueNames = list(_allowed_names(grant, await service.queues.queue_names()))
        return await handle(service, call) if call.request.queueNames else key_holders(KeyHolders(()), [])

    return find


def _filtered(handle: Handler, only_allowed: Callable[[Grant, Any], Any], grant: Grant) -> Handler:
    async def answer(service: Service, call: Any) -> Any:
        return only_allowed(grant, await handle(service, call))

    return answer
