"""Operations that remember what they were asked, answer what the test says, and wait where the test wants them to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from copy import deepcopy
from typing import Any

from pinlater.domain.bulk import BulkAction, BulkOrder
from pinlater.domain.job import (
    HandedOutJob,
    JobState,
    Outcome,
)
from pinlater.domain.job_filter import JobFilter
from pinlater.server.dispatch.claiming import FromShard
from pinlater.server.features.audit.trail import entry_for
from pinlater.server.operations.changes import AdministrativeChange
from pinlater.server.operations.values import DequeueResult
from pinlater.wire.generated import structs
from pinlater.wire.generated.structs import AckResult, AuditEntry, Enqueued
from pinlater.wire.job_filters import wire_order

RIGHTS = structs.CallerRights("ada", ["read"], ["mail*"], 9, True)
DESCRIPTOR = "emails:s1:p1:73"
HEADERS = {"typ": "ü"}
CLAIMED = HandedOutJob(73, 1, b"\x00\xff", 5, 4, 2, HEADERS, 100, 200, 300)
CLAIM = FromShard("1", [CLAIMED], "token")
JOB = structs.JobInfo(
    descriptor=DESCRIPTOR,
    state=JobState.FAILED,
    attempts_allowed=5,
    attempts_remaining=0,
    custom_status="[progress] 40 % row 2\ngrün",
    created_at_ms=100,
    run_after_ms=200,
    updated_at_ms=300,
    claim_descriptor="h:1:2:me:3",
    claim_deadline_ms=400,
    finished_at_ms=500,
    expires_at_ms=600,
    body=b"\xff",
    headers=HEADERS,
    unique_key="key",
    error_type="ValueError",
    error_text="no",
    attempts=[structs.Attempt(1, "h:1:2:me:3", 10, 20, "failed", "ValueError", "no")],
    progress="40 % row 2",
    ordering_key="customer 7",
)
OUTCOMES = (
    AckResult(DESCRIPTOR, Outcome.APPLIED, claim_deadline_ms=900),
    AckResult("emails:s1:p1:74", Outcome.STALE_CLAIM, "h:1:2:other:4", 800),
    AckResult(
        "emails:s2:p1:75",
        Outcome.ERROR,
        error_code=502,
        error_detail="SHARD_UNREACHABLE",
        retryable=True,
        retry_after_ms=1_000,
    ),
)
MOVED = (
    structs.MovedJob("emails:s1:p2:9", Outcome.APPLIED, "emails:s1:p3:9"),
    structs.MovedJob("emails:s1:p3:8", Outcome.APPLIED, "emails:s1:p3:8"),
    structs.MovedJob("emails:s1:p2:7", Outcome.STALE_CLAIM, holder="h", held_since_ms=4),
)
BULK_ORDER = BulkOrder(
    "emails",
    BulkAction.CANCEL,
    JobFilter(JobState.PENDING, 2, "a.*b", frozenset({"send"}), {"Ü": "1"}, "Ü", 3, 1, 2**40, "0123456789abcdef", True),
    2,
    2.5,
    True,
    "fedcba9876543210",
    2**40,
)
BULK_RUN = structs.BulkRun(
    "0123456789abcdef",
    wire_order(BULK_ORDER),
    "ops",
    1,
    3,
    2**40,
    2**39,
    2,
    3,
    "gone",
    2**42,
    2**41,
    2**40,
    42,
    2**43,
)
ANSWERS: dict[str, Any] = {
    "create_queue": None,
    "delete_queue": None,
    "queue_names": ("emails", "images"),
    "enqueue": Enqueued([DESCRIPTOR], [0]),
    "dequeue": DequeueResult([CLAIM], OUTCOMES),
    "acknowledge": OUTCOMES,
    "checkpoint": OUTCOMES,
    "heartbeat": OUTCOMES,
    "release": OUTCOMES,
    "cancel": OUTCOMES,
    "lookup": {DESCRIPTOR: JOB},
    "count": 2**31 - 1,
    "count_jobs": structs.JobCount(2**40, True, True, "1.2"),
    "scan": structs.Scanned([JOB], "next", True, True),
    "find_unique_key": structs.KeyHolders([JOB], incomplete=True),
    "retry_failed": 4,
    "run_jobs": OUTCOMES,
    "change_priority": MOVED,
    "delete_jobs": 5,
    "delete_jobs_by_descriptor": 6,
    "configure_queue": None,
    "add_mark": None,
    "mute": None,
    "start": BULK_RUN,
    "stop": BULK_RUN,
    "set_paused": None,
    "unblock_key": 7,
    "server_info": structs.ServerInfo(
        "1.2.3", ["waitMillis"], "memory", 1, 2, 3, 4, 5, 6, 7, 8, "tokens", "1-2-3", RIGHTS
    ),
}


class FakeOperations:
    """Any operation by its name. `before` may be set to something to await (or raise from) before the answer."""

    def __init__(self) -> None:
        self.answers = deepcopy(ANSWERS)
        self.queues = self.queue_settings = self.enqueuing = self.dequeuing = self.claimed_jobs = self.job_queries = (
            self.bulk
        ) = self
        self.noted: list[AuditEntry] = []
        self.asked: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.undelivered_calls: list[tuple[str, Sequence[FromShard]]] = []
        self.undelivered_event = asyncio.Event()
        self.cancelled: list[str] = []
        self.before: Callable[..., Awaitable[None]] | None = None

    def of(self, kind: type) -> FakeOperations:
        del kind
        return self

    def changed(self, change: AdministrativeChange) -> None:
        self.noted.append(entry_for(change))

    def undelivered(self, queue: str, claimed: Sequence[FromShard]) -> None:
        self.undelivered_calls.append((queue, claimed))
        self.undelivered_event.set()

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        if name not in ANSWERS:
            raise AttributeError(name)

        async def operation(*arguments: Any, **named: Any) -> Any:
            self.asked.append((name, arguments, named))
            if self.before is not None:
                try:
                    await self.before(name, *arguments, **named)
                except asyncio.CancelledError:
                    self.cancelled.append(name)
                    raise
            return self.answers[name]

        return operation


class Gate:
    """Holds operations back: `arrived` is set once one waits, `open` lets all pass."""

    def __init__(self, only: str | None = None) -> None:
        self._only = only
        self._open = asyncio.Event()
        self.arrived = asyncio.Event()

    async def __call__(self, name: str, *arguments: Any, **named: Any) -> None:
        if self._only is None or name == self._only:
            self.arrived.set()
            await self._open.wait()

    def open(self) -> None:
        self._open.set()
