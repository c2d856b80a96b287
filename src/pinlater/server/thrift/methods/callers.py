"""The caller of a call, as it describes itself: nothing of it is proven."""

from __future__ import annotations

from pinlater.domain.caller_address import named_address
from pinlater.domain.workers import WorkerInfo
from pinlater.server.operations.values import Caller
from pinlater.wire.generated import structs

_SOURCE_SHOWN = 120  # characters of a source before an address


def caller(context: structs.RequestContext) -> Caller:
    """Returns the caller."""
    return tuple.__new__(Caller, (context.source, context.request_id, 0, None))  # quicker than the class's own call


def named_source(context: structs.RequestContext) -> str:
    """Returns what the caller calls itself, and the address of the client for which it made the call."""
    address = named_address(context.caller_address or "")
    return f"{context.source[:_SOURCE_SHOWN]} for {address} (unverified)" if address else context.source


def worker(context: structs.RequestContext, request: structs.DequeueRequest | structs.ClaimsRequest) -> Caller:
    """Returns the caller of a dequeue or a heartbeat, with what it says of its process."""
    said = request.worker
    info = None if said is None else _worker_info(said)
    return tuple.__new__(Caller, (context.source, context.request_id, request.process or 0, info))


def _worker_info(said: structs.WorkerInfo) -> WorkerInfo:
    return WorkerInfo(
        said.library or "",
        said.version or "",
        said.host or "",
        said.pid or 0,
        said.concurrency or 0,
        said.running or 0,
        said.started_at_ms or 0,
    )
