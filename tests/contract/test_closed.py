"""A shard that is closed: every command is given, so that a new one can't be left out."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, get_type_hints

import pytest
from msgspec.structs import fields

from pinlater.domain.errors import ShardConnectionFailed
from pinlater.domain.job import Holder, JobState
from pinlater.domain.queue import NO_HOME, Home, Queue, QueueConfig
from pinlater.server.storage import commands
from pinlater.server.storage.commands import (
    AdvanceDue,
    Announce,
    AskShardTime,
    AskState,
    ChangeOwners,
    CollectGarbage,
    Command,
    ExpireJobs,
    InsertJobs,
    ListChangedQueues,
    ListMembers,
    ListOwners,
    TimeOutClaims,
)
from pinlater.server.storage.values import (
    NO_OWNERS,
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
    TrailEntry,
    UniqueRef,
)
from tests.contract.desk import QUEUE, Desk

KEY = JobKey(QUEUE, 1, 1)
# What a parameter of each type is given.
ARGUMENTS: dict[Any, object] = {
    bool: True,
    bool | None: True,
    int: 10,
    int | None: 10,
    str: QUEUE,
    JobState: JobState.FAILED,
    JobState | None: JobState.FAILED,
    CopiesOf: CopiesOf("run", 1),
    RestoreOrder: RestoreOrder(QUEUE, CopiesOf("run", 1)),
    QueueConfig | None: QueueConfig(),
    Home: NO_HOME,
    Owners: NO_OWNERS,
    Page: Page(QUEUE, JobState.PENDING, [1], 10),
    Place: Place(QUEUE, 1, 0, 1, due_by_ms=0, limit=10),
    Purge: Purge(QUEUE, JobState.FAILED, 1, 10),
    Requeue: Requeue(QUEUE, 1, 1, 0, 10),
    Sequence[TrailEntry]: [TrailEntry("1", b"{}")],
    Sequence[JobAck]: [JobAck(KEY, succeeded=True)],
    Sequence[JobCheckpoint]: [JobCheckpoint(KEY, "worker")],
    Sequence[ClaimOrder]: [ClaimOrder(QUEUE, [ClaimCall(1, Holder("job", "worker", "token"))], 1_000)],
    Sequence[ClaimRef]: [ClaimRef(KEY, "token")],
    Sequence[InsertRequest]: [],
    JobKey: KEY,
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


def kinds(base: type[Command[Any]]) -> list[type[Command[Any]]]:
    """All kinds of commands that there are."""
    below = base.__subclasses__()
    return [kind for each in below for kind in kinds(each)] if below else [base]


KINDS = [kind for kind in kinds(Command) if kind.__module__ == commands.__name__]
OF_SEVERAL_SERVERS = {Announce, ListMembers, ListOwners, ChangeOwners, AskShardTime, AskState, ListChangedQueues}


def command(kind: type[Command[Any]]) -> Command[Any]:
    """A command with a value in each field, by its type."""
    given = {field.name: ARGUMENTS[get_type_hints(kind)[field.name]] for field in fields(kind)}
    return kind(**given)


async def refuses(asked: Awaitable[object]) -> bool:
    """Whether the shard raises because it is not open."""
    try:
        await asked
    except ShardConnectionFailed as error:
        return "is not open" in str(error)
    return False


@pytest.mark.parametrize("warm", [False, True], ids=["at once", "after each sweep was carried out"])
async def test_a_closed_shard_refuses_every_call(desk: Desk, warm: bool) -> None:
    """Also what it could answer from memory."""
    if desk.shard.capabilities.kind == "memory":
        pytest.skip("a closed store in memory goes on; only tests and the demo use it")
    shard = desk.shard
    known = [kind for kind in KINDS if shard.capabilities.shared or kind not in OF_SEVERAL_SERVERS]
    assert len(known) > len(OF_SEVERAL_SERVERS)
    if warm:
        for sweep in (AdvanceDue, TimeOutClaims, ExpireJobs, CollectGarbage):
            await shard.submit(command(sweep))
    asked = {kind: command(kind) for kind in known} | {InsertJobs: InsertJobs([InsertRequest(QUEUE, [desk.job()])], 1)}
    await shard.close()
    assert [kind for kind in known if not await refuses(shard.submit(asked[kind]))] == []
    assert await refuses(shard.ping())
    assert await refuses(shard.size())
