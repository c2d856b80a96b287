"""A shard that is closed: every method of the interface is called, so that a new one can't be left out."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, get_type_hints

import pytest

from pinlater.domain.errors import ShardConnectionFailed
from pinlater.domain.job import Holder, JobState
from pinlater.domain.queue import LIFE_UNKNOWN, Life, Queue, QueueConfig
from pinlater.server.storage.interface import Shard, SharedShard
from pinlater.server.storage.values import (
    NO_OWNERS,
    AuditRecord,
    ClaimCall,
    ClaimOrder,
    ClaimRef,
    CopiesOf,
    InsertRequest,
    JobAck,
    JobCheckpoint,
    JobKey,
    Owners,
    Page,
    Place,
    Purge,
    RequestRef,
    Requeue,
    RestoreOrder,
    RunOrder,
    SampleRange,
    StoredSample,
    TimeToLive,
    UniqueRef,
)
from tests.contract.desk import QUEUE, Desk

LIFE = {"open", "close"}
KEY = JobKey(QUEUE, 1, 1)
# What a parameter of each type is given.
ARGUMENTS: dict[Any, object] = {
    bool: True,
    bool | None: True,
    int: 10,
    int | None: 10,
    str: QUEUE,
    Life: LIFE_UNKNOWN,
    JobState: JobState.FAILED,
    JobState | None: JobState.FAILED,
    CopiesOf: CopiesOf("run", 1),
    RestoreOrder: RestoreOrder(QUEUE, CopiesOf("run", 1)),
    QueueConfig | None: QueueConfig(),
    Owners: NO_OWNERS,
    Page: Page(QUEUE, JobState.PENDING, [1], 10),
    Place: Place(QUEUE, 1, 0, 1, due_by_ms=0, limit=10),
    Purge: Purge(QUEUE, JobState.FAILED, 1, 10),
    Requeue: Requeue(QUEUE, 1, 1, 0, 10),
    Sequence[AuditRecord]: [AuditRecord("1", b"{}")],
    Sequence[JobAck]: [JobAck(KEY, succeeded=True)],
    Sequence[JobCheckpoint]: [JobCheckpoint(KEY, "worker")],
    Sequence[ClaimOrder]: [ClaimOrder(QUEUE, [ClaimCall(1, Holder("job", "worker", "token"))], 1_000)],
    Sequence[ClaimRef]: [ClaimRef(KEY, "token")],
    Sequence[InsertRequest]: [],
    Sequence[JobKey]: [KEY],
    Sequence[Queue]: [Queue("new")],
    Sequence[RequestRef]: [RequestRef(QUEUE, "key", b"fingerprint")],
    Sequence[SampleRange]: [SampleRange(60, 0, 10)],
    Sequence[StoredSample]: [StoredSample(60, 0, QUEUE, "server", b"data")],
    Sequence[RunOrder]: [RunOrder(KEY, 1, 0)],
    Sequence[TimeToLive]: [TimeToLive(QUEUE, 1, 1)],
    Sequence[UniqueRef]: [UniqueRef(QUEUE, "key")],
    Sequence[str]: [QUEUE],
    Sequence[str] | None: [QUEUE],
}


def methods(interface: type) -> list[str]:
    """The interface's methods that wait for the store."""
    named = inspect.getmembers(interface, inspect.iscoroutinefunction)
    return sorted(name for name, _ in named if name not in LIFE and not name.startswith("_"))


def arguments(method: str) -> dict[str, object]:
    """A value for each parameter, by its type."""
    types = get_type_hints(getattr(SharedShard, method))
    return {name: ARGUMENTS[kind] for name, kind in types.items() if name != "return"}


async def refuses(desk: Desk, method: str) -> bool:
    """Whether the shard raises because it is not open."""
    given = arguments(method)
    if method == "insert_jobs":
        given["requests"] = [InsertRequest(QUEUE, [desk.job()])]
    try:
        await getattr(desk.shard, method)(**given)
    except ShardConnectionFailed as error:
        return "is not open" in str(error)
    return False


@pytest.mark.parametrize("warm", [False, True], ids=["at once", "after each method was used"])
async def test_a_closed_shard_refuses_every_call(desk: Desk, warm: bool) -> None:
    """Also what it could answer from memory."""
    if desk.shard.capabilities.kind == "memory":
        pytest.skip("a closed store in memory goes on; only tests and the demo use it")
    interface = SharedShard if desk.shard.capabilities.shared else Shard
    assert methods(interface)
    if warm:
        for sweep in ("advance_due", "time_out_claims", "expire_jobs", "collect_garbage"):
            await getattr(desk.shard, sweep)(**arguments(sweep))
    await desk.shard.close()
    assert [method for method in methods(interface) if not await refuses(desk, method)] == []
