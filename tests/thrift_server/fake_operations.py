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
from pinlater.domain.job_criteria import JobCriteria
from pinlater.domain.queue import Life, Queue, QueueConfig
from pinlater.domain.workers import LostClaim, ServerWorkers, WaitingDequeues, WorkerInfo, WorkerQueue, WorkerStatus
from pinlater.server.dispatch.claiming import FromShard
from pinlater.server.features.audit.trail import entry_for
from pinlater.server.operations.changes import AdministrativeChange
from pinlater.server.operations.values import DequeueResult
from pinlater.wire.bulk_orders import wire_order
from pinlater.wire.generated import structs
from pinlater.wire.generated.structs import AckResult, AuditEntry, AuditPage, Enqueued

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
COUNTS = structs.QueueCounts(1, 7, 2, 1, 3, 4, 20, 18, 3, 4, 9, 150, 1)
BULK_ORDER = BulkOrder(
    "emails",
    BulkAction.CANCEL,
    JobState.PENDING,
    2,
    "a.*b",
    JobCriteria(frozenset({"send"}), {"Ü": "1"}, "Ü", 3, 1, 2**40, "0123456789abcdef", True),
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
DETAILS = structs.ShardDetails(
    kind="mysql",
    address="db:3306/jobs",
    takes_enqueues=False,
    since_ms=2**41,
    failure="refused",
    failed_at_ms=2**42,
    probing=True,
    stalled=True,
    full="no space",
    jobs=structs.ShardJobs(1, 2**40, 3, 4, 5, 6, 7),
    size=structs.ShardSize(2**43, 2**44, 2**45, 8, late=True),
    drain=structs.ShardDrain(9, True, 2**40, 1.5, 10),
    lanes=[structs.ShardLane("insert", 2, 3, 4, 2**41, 2**42, 0.5, 1.5), structs.ShardLane("claim", 0, 0, None, 0, 0)],
    failure_kind="refused",
    memory=structs.ShardMemory(2**40, 2**41, 2**42, 2**43),
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
    "count_jobs": structs.JobCount(2**40, True),
    "scan": structs.Scanned([JOB], "next", True),
    "find_unique_key": structs.KeyHolders([JOB], incomplete=True),
    "retry_failed": 4,
    "run_jobs": OUTCOMES,
    "change_priority": MOVED,
    "delete_jobs": 5,
    "delete_jobs_by_descriptor": 6,
    "configure_queue": None,
    "queue_config": Queue("emails", QueueConfig(2.5, 1, 2, 3, 4, 5, 6, 7), True, life=Life(ordered_ms=1)),
    "in_force": structs.SettingsInForce(
        structs.QueueConfig(2.5, 1, 2, 3, 4, 5, 6, burst=7), {"claimTimeoutMillis": "queue"}
    ),
    "waiting_dequeues": [WaitingDequeues("emails", "w-1", 2)],
    "known_workers": [
        ServerWorkers(
            [
                WorkerStatus(
                    "w-1",
                    7,
                    250,
                    [WorkerQueue("emails", 1, 2**40, 2**41, 2**42, 5, 6, 7)],
                    30_000,
                    WorkerInfo("python", "1.2", "höst", 2**40, 16, 3, 2**41),
                    1_000,
                    [LostClaim("emails", DESCRIPTOR, 2**40)],
                ),
                WorkerStatus("w-2"),
            ],
            [WaitingDequeues("emails", "w-1", 2)],
            "1-2-3",
            3,
            2**42,
            2**43,
            2**44,
        )
    ],
    "explain": structs.JobExplanation(
        DESCRIPTOR,
        JOB,
        9,
        structs.ShardFacts("1", in_reach=False, drains=True),
        structs.QueueFacts(True, 1, "ops", 2.5, 3, 4.5, 2**40, 6, 7, 8, 10),
        structs.JobsAhead(2**40, at_least=True, incomplete=True),
        "emails:s1:p1:11",
        2**41,
        "2",
        2**42,
    ),
    "queue_history": structs.QueueHistoryResponse(
        [
            structs.QueueHistory(
                "emails",
                [
                    structs.HistoryPoint(
                        1,
                        2,
                        3,
                        4,
                        5,
                        6,
                        7,
                        2**40,
                        8,
                        9,
                        10,
                        structs.Percentiles(11, 12, 13, 14),
                        structs.Percentiles(15, 16, 17, 18),
                    ),
                    structs.HistoryPoint(2, 0, 0, 0, 0, 0, 0),
                ],
            )
        ],
        [structs.DeployMark(1, "v2", "emails"), structs.DeployMark(2, "v3")],
        60,
        1,
        2,
        True,
    ),
    "list_groups": structs.FailuresResponse(
        [
            structs.FailureGroup(
                "emails",
                "0123456789abcdef",
                "send",
                "OSError",
                "no file …",
                2**40,
                1,
                2,
                "emails:s1:p1:7",
                [0, 3],
                2**40,
            )
        ],
        True,
    ),
    "add_mark": None,
    "mute": None,
    "start": BULK_RUN,
    "stop": BULK_RUN,
    "runs": [BULK_RUN],
    "list_runs": structs.BulkRunsResponse([BULK_RUN], True, ["2", "3"]),
    "owners": structs.QueueOwners(
        (structs.OwningServer("1-2-3", "a:9010"), structs.OwningServer("2-2-3")),
        (structs.OwnedShard("1", False, (0, 1, -1)),),
    ),
    "cluster": structs.ClusterStatus(
        "a:1",
        [
            structs.ClusterServer("a:1", "a-7", {"1": 4}, True, True, None, True, 0, 0, 0),
            structs.ClusterServer(
                "b:1", None, {"1": 5}, False, True, 250, False, 3, 2**40, 2**41, "1.2.3", 2**42, 12, 2**43
            ),
        ],
        [
            structs.ClusterShard("1", False, 2**33, [0, 1, -1], [2], DETAILS),
            structs.ClusterShard(
                "2",
                True,
                1,
                [],
                [],
                structs.ShardDetails(
                    "memory", None, True, 1, None, None, False, False, size=structs.ShardSize(), lanes=[]
                ),
            ),
        ],
        [structs.ForwardedCalls("insert", 2**40, 2**41, 2**42, 2**43)],
        2**44,
        2**45,
        True,
        [structs.FrontProcess(1, 2**46, 3, 2, 2**47)],
    ),
    "read": AuditPage(
        [
            AuditEntry(
                "i-1",
                2**40,
                "ops",
                ("operate",),
                "cli",
                "10.0.0.1",
                "pauseQueue",
                "emails",
                "{}",
                2**40,
                "ok",
                "none",
                "host:9010",
            )
        ],
        "i-1",
        incomplete=True,
    ),
    "set_paused": None,
    "unblock_key": 7,
    "queue_stats": [
        structs.QueueStats("emails", True, [COUNTS], 50, structs.QueueRates(1.5, 2.5, 3.5, 4.5, 5.5), 3, True, 2.5)
    ],
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
