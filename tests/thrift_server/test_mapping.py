"""Every method reaches its operation with every value, and every value of the answer reaches the caller."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import ANY

import pytest

from pinlater.domain.audit import AuditFilter
from pinlater.domain.calls import Ack, AckBatch, AckResult, Checkpoint, Claim, Enqueued, Job, Scanned
from pinlater.domain.job import JobState, Outcome, UniqueKey, UniqueScope
from pinlater.domain.queue import QueueConfig
from pinlater.domain.workers import WorkerInfo
from pinlater.server.dispatch.claiming import FromShard
from pinlater.server.operations.long_lists import ITEMS_A_TURN
from pinlater.server.operations.service import Service
from pinlater.server.operations.values import Caller, DequeueCommand, DequeueResult, JobFilter, ScanCommand
from pinlater.server.thrift.methods import METHODS
from pinlater.wire.generated import ttypes as types
from tests.thrift_server.conftest import ThriftServerUnderTest
from tests.thrift_server.fake_operations import BULK_ORDER, CLAIM, CLAIMED, DESCRIPTOR, HEADERS
from tests.wire.samples import full_arguments

ME = Caller("worker-1", "request-1")
WORKER = ME._replace(process=7, worker=WorkerInfo("python", "1.2", "höst", 2**40, 16, 3, 1_767_225_600_000))
ACKS = AckBatch(
    "emails",
    [
        Ack(DESCRIPTOR, True, "token", "done", 1_000, True, "ValueError", "no such address"),
        Ack("emails:s1:p2:74", False, "token", "done", 1_000, True, "ValueError", "no such address"),
    ],
    per_item_errors=True,
)
FULL_JOB = Job(
    b"\x00\xff\xfe body",
    3,
    1_767_225_600_000,
    7,
    "grün",
    {"traceparent": "00-ab-cd-01", "typ": "ü"},
    UniqueKey("order-1", UniqueScope.TIME, 60_000),
    30_000,
    1_767_225_700_000,
)
CHECKPOINTS = [Checkpoint(DESCRIPTOR, "token", b"\xff half", True, 1_767_225_600_001, 9, "half ")]
CLAIMS = [Claim(DESCRIPTOR, "token")]

ASKED: dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]] = {
    "createQueue": ("create_queue", ("emails",), {}),
    "deleteQueue": ("delete_queue", ("emails", "secret"), {}),
    "enqueueJobs": ("enqueue", ("emails", [FULL_JOB]), {"request_key": "key", "repeat": True, "arrived_s": ANY}),
    "dequeueJobs": ("dequeue", (WORKER, DequeueCommand("emails", 10, ACKS, True, 0.5, 250)), {}),
    "ackDequeuedJobs": ("acknowledge", (ME, ACKS._replace(per_item_errors=False)), {}),
    "checkpointJobs": ("checkpoint", (ME, "emails", CHECKPOINTS), {}),
    "lookupJobs": ("lookup", ([DESCRIPTOR, "x"],), {"bodies": True}),
    "getJobCount": ("count", (JobFilter("emails", JobState.PENDING, 2, True, "a.*b"),), {}),
    "getQueueNames": ("queue_names", (), {}),
    "scanJobs": ("scan", (ScanCommand(JobFilter("emails", JobState.FAILED, 1, True, "re"), 5, "tok", True, True),), {}),
    "retryFailedJobs": ("retry_failed", ("emails", 2, 3, 1_767_225_600_000, 5), {"skip_cancelled": True}),
    "deleteJobs": ("delete_jobs", (JobFilter("emails", JobState.SUCCEEDED, 3, False, "re"), 5), {}),
    "getServerInfo": ("server_info", (), {}),
    "ackJobs": ("acknowledge", (ME, ACKS), {}),
    "checkpointJobsFenced": ("checkpoint", (ME, "emails", CHECKPOINTS), {"per_item_errors": True}),
    "heartbeatClaims": ("heartbeat", ("emails", CLAIMS), {"caller": WORKER, "per_item_errors": True}),
    "releaseJobs": ("release", ("emails", CLAIMS, 500), {"caller": ME, "per_item_errors": True}),
    "cancelJobs": ("cancel", ("emails", [DESCRIPTOR]), {}),
    "configureQueue": ("configure_queue", ("emails", QueueConfig(2.5, 30_000, 1, 2, 3, 4, 5)), {}),
    "getQueueConfig": ("queue_config", ("emails",), {}),
    "pauseQueue": ("set_paused", ("emails", True, ME.source), {}),
    "resumeQueue": ("set_paused", ("emails", False), {}),
    "getQueueStats": ("queue_stats", (["emails"],), {}),
    "changePriority": ("change_priority", ("emails", [DESCRIPTOR], 3), {}),
    "runJobs": ("run_jobs", ("emails", [DESCRIPTOR], 3, 1_767_225_600_000), {}),
    "countJobs": ("count_jobs", (JobFilter("emails", JobState.PENDING, 2, True, "a.*b"),), {}),
    "getSettingsInForce": ("in_force", ("emails",), {}),
    "getWaitingDequeues": ("waiting_dequeues", (), {}),
    "getWorkers": ("known_workers", (True,), {}),
    "getCluster": ("cluster", (), {}),
    "getQueueHistory": ("queue_history", (["emails"], 1, 2, 60), {}),
    "getFailures": ("failure_groups", (["emails", "Ü"],), {}),
    "startBulkRun": ("start", (BULK_ORDER, ME.source, ME.source), {}),
    "stopBulkRun": ("stop", ("emails", "0123456789abcdef"), {}),
    "getBulkRuns": ("runs", (["emails", "Ü"],), {}),
    "listBulkRuns": ("list_runs", (["emails", "Ü"],), {}),
    "muteFailures": ("mute", ("emails", "0123456789abcdef", 2**40), {}),
    "addDeployMark": ("add_mark", ("v2.0 Ü", 1_767_225_600_000, "emails"), {}),
    "explainJob": ("explain", ("emails", DESCRIPTOR), {}),
    "findUniqueKey": ("find_unique_key", (["emails", "Ü"], "key Ü"), {}),
    "getQueueOwners": ("owners", (), {}),
    "getAudit": ("read", (AuditFilter("emails", "ops", "pauseQueue", 1, 2**40, 5, "cursor"),), {}),
    "deleteJobsByDescriptor": ("delete_jobs_by_descriptor", ("emails", [DESCRIPTOR]), {}),
}

BULK_RUN_ON_WIRE = {
    "id": "0123456789abcdef",
    "order": {
        "queueName": "emails",
        "action": 2,
        "filter": {
            "jobState": 0,
            "priority": 2,
            "bodyRegexToMatch": "a.*b",
            "tasks": ["send"],
            "headers": {"Ü": "1"},
            "errorText": "Ü",
            "minAttempts": 3,
            "enqueuedFromMillis": 1,
            "enqueuedBeforeMillis": 2**40,
            "groupName": "0123456789abcdef",
            "skipCancelled": True,
        },
        "attemptsToAllow": 2,
        "jobsPerSecond": 2.5,
        "forGood": True,
        "undoes": "fedcba9876543210",
        "expectedJobs": 2**40,
    },
    "startedBy": "ops",
    "startedMillis": 1,
    "state": 3,
    "looked": 2**40,
    "changed": 2**39,
    "newsMillis": 2,
    "endedMillis": 3,
    "detail": "gone",
    "undoUntilMillis": 2**42,
    "toLookAt": 2**41,
    "expectedChanges": 2**40,
    "percent": 42,
    "leftMillis": 2**43,
}
INFO = {
    "jobDescriptor": DESCRIPTOR,
    "jobState": 3,
    "attemptsAllowed": 5,
    "attemptsRemaining": 0,
    "customStatus": "[progress] 40 % row 2\ngrün",
    "createdAtTimestampMillis": 100,
    "runAfterTimestampMillis": 200,
    "updatedAtTimestampMillis": 300,
    "claimDescriptor": "h:1:2:me:3",
    "body": b"\xff",
    "headers": HEADERS,
    "uniqueKey": "key",
    "claimDeadlineMillis": 400,
    "lastErrorType": "ValueError",
    "lastErrorText": "no",
    "attempts": [
        {
            "number": 1,
            "claimedBy": "h:1:2:me:3",
            "claimedAtMillis": 10,
            "endedAtMillis": 20,
            "outcome": "failed",
            "errorType": "ValueError",
            "errorText": "no",
        }
    ],
    "finishedAtTimestampMillis": 500,
    "expiresAtMillis": 600,
    "progress": "40 % row 2",
    "bodyMasked": None,
    "failureGroup": None,
}
NO_ERROR = {"errorCode": None, "errorDetail": None, "retryable": None, "retryAfterMillis": None}
OUTCOMES = [
    {
        "descriptor": DESCRIPTOR,
        "outcome": 0,
        "holder": None,
        "heldSinceMillis": None,
        "claimDeadlineMillis": 900,
        **NO_ERROR,
    },
    {
        "descriptor": "emails:s1:p1:74",
        "outcome": 2,
        "holder": "h:1:2:other:4",
        "heldSinceMillis": 800,
        "claimDeadlineMillis": None,
        **NO_ERROR,
    },
    {
        "descriptor": "emails:s2:p1:75",
        "outcome": 4,
        "holder": None,
        "heldSinceMillis": None,
        "claimDeadlineMillis": None,
        "errorCode": 502,
        "errorDetail": "SHARD_UNREACHABLE",
        "retryable": True,
        "retryAfterMillis": 1_000,
    },
]
COUNTS = {
    "priority": 1,
    "pending": 7,
    "future": 2,
    "inProgress": 1,
    "succeeded": 3,
    "failed": 4,
    "enqueuedTotal": 20,
    "claimedTotal": 18,
    "succeededTotal": 3,
    "failedTotal": 4,
    "retriedTotal": 9,
    "oldestDueAtMillis": 150,
}
METADATA = {
    "attemptsAllowed": 5,
    "attemptsRemaining": 4,
    "claimToken": "token",
    "headers": HEADERS,
    "claimDeadlineMillis": 300,
    "createdAtTimestampMillis": 100,
    "attempt": 2,
    "bodyMasked": None,
}
DETAILS_OF_A_SHARD = {
    "kind": "mysql",
    "address": "db:3306/jobs",
    "takesEnqueues": False,
    "sinceMillis": 2**41,
    "failure": "refused",
    "failureKind": "refused",
    "failedAtMillis": 2**42,
    "probing": True,
    "stalled": True,
    "full": "no space",
    "jobs": {
        "countedAtMillis": 1,
        "due": 2**40,
        "scheduled": 3,
        "inProgress": 4,
        "succeeded": 5,
        "failed": 6,
        "oldestDueAtMillis": 7,
    },
    "size": {"usedBytes": 2**43, "logBytes": 2**44, "limitBytes": 2**45, "measuredAtMillis": 8, "late": True},
    "memory": {"jobs": 2**40, "bytes": 2**41, "claims": 2**42, "staleClaims": 2**43},
    "drain": {"sinceMillis": 9, "leaving": True, "liveAtFirst": 2**40, "jobsPerSecond": 1.5, "emptyAtMillis": 10},
    "lanes": [
        {
            "kind": "insert",
            "waiting": 2**31 - 1,
            "running": 3,
            "runningMillis": 4,
            "calls": 2**41,
            "requests": 2**42,
            "meanMillis": 0.5,
            "slowestMillis": 1.5,
        },
        {
            "kind": "claim",
            "waiting": 0,
            "running": 0,
            "runningMillis": None,
            "calls": 0,
            "requests": 0,
            "meanMillis": None,
            "slowestMillis": None,
        },
    ],
}
ANSWERED: dict[str, Any] = {
    "createQueue": None,
    "deleteQueue": None,
    "enqueueJobs": {"jobDescriptors": [DESCRIPTOR], "existing": [0]},
    "dequeueJobs": {
        "jobs": {DESCRIPTOR: b"\x00\xff"},
        "jobMetadata": {DESCRIPTOR: METADATA},
        "ackOutcomes": OUTCOMES,
        "jobOrder": [DESCRIPTOR],
    },
    "ackDequeuedJobs": None,
    "checkpointJobs": None,
    "lookupJobs": {DESCRIPTOR: INFO},
    "findUniqueKey": {"jobs": [INFO], "incomplete": True},
    "getJobCount": 2**31 - 1,
    "getQueueNames": {"emails", "images"},
    "scanJobs": {"scannedJobs": [INFO], "continuation": "next", "incomplete": True},
    "retryFailedJobs": 4,
    "deleteJobs": 5,
    "getServerInfo": {
        "version": "1.2.3",
        "features": ["waitMillis"],
        "storeKind": "memory",
        "nowMillis": 1,
        "startedAtMillis": 2,
        "priorityLevels": 3,
        "maxBodyBytes": 4,
        "maxFrameBytes": 5,
        "maxJobsPerRequest": 6,
        "maxDescriptorsPerRequest": 7,
        "maxWaitMillis": 8,
        "access": "tokens",
        "serverId": "1-2-3",
        "caller": {
            "tokenName": "ada",
            "roles": ["read"],
            "queues": ["mail*"],
            "expiresAtMillis": 9,
            "speaksForOthers": True,
        },
    },
    "ackJobs": OUTCOMES,
    "checkpointJobsFenced": OUTCOMES,
    "heartbeatClaims": OUTCOMES,
    "releaseJobs": OUTCOMES,
    "cancelJobs": OUTCOMES,
    "configureQueue": None,
    "getQueueConfig": {
        "maxJobsPerSecond": 2.5,
        "claimTimeoutMillis": 1,
        "succeededTtlMillis": 2,
        "failedTtlMillis": 3,
        "maxBacklog": 4,
        "defaultAttempts": 5,
        "defaultExpiryMillis": 6,
        "burst": 7,
        "paused": True,
    },
    "pauseQueue": None,
    "resumeQueue": None,
    "getQueueStats": [
        {
            "queueName": "emails",
            "paused": True,
            "counts": [COUNTS],
            "oldestWaitingMillis": 50,
            "rates": {"enqueued": 1.5, "claimed": 2.5, "succeeded": 3.5, "failed": 4.5, "retried": 5.5},
            "waitingDequeues": 3,
            "incomplete": True,
            "maxJobsPerSecond": 2.5,
        }
    ],
    "changePriority": [
        {
            "descriptor": "emails:s1:p2:9",
            "outcome": 0,
            "movedTo": "emails:s1:p3:9",
            "holder": None,
            "heldSinceMillis": None,
        },
        {
            "descriptor": "emails:s1:p3:8",
            "outcome": 0,
            "movedTo": "emails:s1:p3:8",
            "holder": None,
            "heldSinceMillis": None,
        },
        {"descriptor": "emails:s1:p2:7", "outcome": 2, "movedTo": None, "holder": "h", "heldSinceMillis": 4},
    ],
    "runJobs": OUTCOMES,
    "countJobs": {"jobs": 2**40, "incomplete": True},
    "getSettingsInForce": {
        "values": {
            "maxJobsPerSecond": 2.5,
            "claimTimeoutMillis": 1,
            "succeededTtlMillis": 2,
            "failedTtlMillis": 3,
            "maxBacklog": 4,
            "defaultAttempts": 5,
            "defaultExpiryMillis": 6,
            "burst": 7,
            "paused": None,
        },
        "origins": {"claimTimeoutMillis": "queue"},
    },
    "getFailures": {
        "groups": [
            {
                "queueName": "emails",
                "name": "0123456789abcdef",
                "task": "send",
                "errorType": "OSError",
                "pattern": "no file …",
                "failures": 2**40,
                "firstMillis": 1,
                "lastMillis": 2,
                "sampleDescriptor": "emails:s1:p1:7",
                "hours": [0, 3],
                "mutedUntilMillis": 2**40,
            }
        ],
        "incomplete": True,
    },
    "getQueueHistory": {
        "queues": [
            {
                "queueName": "emails",
                "points": [
                    {
                        "atMillis": 1,
                        "enqueued": 2,
                        "claimed": 3,
                        "succeeded": 4,
                        "failed": 5,
                        "timedOut": 6,
                        "expired": 7,
                        "due": 2**40,
                        "scheduled": 8,
                        "inProgress": 9,
                        "oldestWaitingMillis": 10,
                        "waits": {"number": 11, "p50Millis": 12, "p90Millis": 13, "p99Millis": 14},
                        "runs": {"number": 15, "p50Millis": 16, "p90Millis": 17, "p99Millis": 18},
                    },
                    {
                        "atMillis": 2,
                        "enqueued": 0,
                        "claimed": 0,
                        "succeeded": 0,
                        "failed": 0,
                        "timedOut": 0,
                        "expired": 0,
                        "due": None,
                        "scheduled": None,
                        "inProgress": None,
                        "oldestWaitingMillis": None,
                        "waits": None,
                        "runs": None,
                    },
                ],
            }
        ],
        "marks": [
            {"atMillis": 1, "text": "v2", "queueName": "emails"},
            {"atMillis": 2, "text": "v3", "queueName": None},
        ],
        "stepSeconds": 60,
        "fromMillis": 1,
        "untilMillis": 2,
        "incomplete": True,
    },
    "addDeployMark": None,
    "muteFailures": None,
    "startBulkRun": BULK_RUN_ON_WIRE,
    "stopBulkRun": BULK_RUN_ON_WIRE,
    "getBulkRuns": [BULK_RUN_ON_WIRE],
    "listBulkRuns": {"runs": [BULK_RUN_ON_WIRE], "incomplete": True, "missingShards": ["2", "3"]},
    "explainJob": {
        "jobDescriptor": DESCRIPTOR,
        "job": INFO,
        "nowMillis": 9,
        "shard": {"name": "1", "inReach": False, "drains": True},
        "queue": {
            "paused": True,
            "pausedAtMillis": 1,
            "pausedBy": "ops",
            "maxJobsPerSecond": 2.5,
            "nextSlotMillis": 3,
            "claimedPerSecond": 4.5,
            "inProgress": 2**40,
            "waitingDequeues": 6,
            "lastDequeueAtMillis": 7,
            "serverStartedAtMillis": 8,
            "servers": 10,
        },
        "jobsAhead": {"jobs": 2**40, "atLeast": True, "incomplete": True},
    },
    "getWaitingDequeues": [{"queueName": "emails", "source": "w-1", "number": 2}],
    "getWorkers": [
        {
            "workers": [
                {
                    "source": "w-1",
                    "process": 7,
                    "heardMillisAgo": 250,
                    "queues": [
                        {
                            "queueName": "emails",
                            "askedMillisAgo": 1,
                            "handedOut": 2**40,
                            "timedOut": 2**41,
                            "late": 2**42,
                            "timedOutLately": 5,
                            "lateLately": 6,
                            "timedOutTimes": 7,
                        }
                    ],
                    "claimMillis": 30_000,
                    "info": {
                        "library": "python",
                        "version": "1.2",
                        "host": "höst",
                        "pid": 2**40,
                        "concurrency": 16,
                        "running": 3,
                        "startedAtMillis": 2**41,
                    },
                    "saidMillisAgo": 1_000,
                    "lost": [{"queueName": "emails", "jobDescriptor": DESCRIPTOR, "endedMillisAgo": 2**40}],
                },
                {
                    "source": "w-2",
                    "process": None,
                    "heardMillisAgo": None,
                    "queues": [],
                    "claimMillis": None,
                    "info": None,
                    "saidMillisAgo": None,
                    "lost": [],
                },
            ],
            "waiting": [{"queueName": "emails", "source": "w-1", "number": 2}],
            "serverId": "1-2-3",
            "servers": 3,
            "nowMillis": 2**42,
            "upMillis": 2**43,
            "forgotten": 2**44,
        }
    ],
    "getCluster": {
        "address": "a:1",
        "servers": [
            {
                "address": "a:1",
                "name": "a-7",
                "slots": {"1": 4},
                "answers": True,
                "heard": True,
                "heardMillisAgo": None,
                "usable": True,
                "unansweredCalls": 0,
                "itemsSent": 0,
                "itemsTaken": 0,
                "version": None,
                "startedAtMillis": None,
                "connections": None,
                "loopLagMillis": None,
            },
            {
                "address": "b:1",
                "name": None,
                "slots": {"1": 5},
                "answers": False,
                "heard": True,
                "heardMillisAgo": 250,
                "usable": False,
                "unansweredCalls": 3,
                "itemsSent": 2**40,
                "itemsTaken": 2**41,
                "version": "1.2.3",
                "startedAtMillis": 2**42,
                "connections": 12,
                "loopLagMillis": 2**43,
            },
        ],
        "shards": [
            {
                "name": "1",
                "inReach": False,
                "ownersVersion": 2**33,
                "owners": [0, 1, -1],
                "misplacedSlices": [2],
                "details": DETAILS_OF_A_SHARD,
            },
            {
                "name": "2",
                "inReach": True,
                "ownersVersion": 1,
                "owners": [],
                "misplacedSlices": [],
                "details": {
                    "kind": "memory",
                    "address": None,
                    "takesEnqueues": True,
                    "sinceMillis": 1,
                    "failure": None,
                    "failureKind": None,
                    "failedAtMillis": None,
                    "probing": False,
                    "stalled": False,
                    "full": None,
                    "jobs": None,
                    "size": {
                        "usedBytes": None,
                        "logBytes": None,
                        "limitBytes": None,
                        "measuredAtMillis": None,
                        "late": None,
                    },
                    "memory": None,
                    "drain": None,
                    "lanes": [],
                },
            },
        ],
        "forwarded": [
            {"kind": "insert", "callsSent": 2**40, "itemsSent": 2**41, "callsTaken": 2**42, "itemsTaken": 2**43}
        ],
        "moves": 2**44,
        "answersLost": 2**45,
        "incomplete": True,
        "frontProcesses": [
            {"number": 1, "callsTaken": 2**46, "callsUnderWay": 3, "waitingCalls": 2, "untakenBytes": 2**47}
        ],
    },
    "getQueueOwners": {
        "servers": [{"id": "1-2-3", "address": "a:9010"}, {"id": "2-2-3", "address": None}],
        "shards": [{"name": "1", "takesEnqueues": False, "owners": [0, 1, -1]}],
    },
    "getAudit": {
        "entries": [
            {
                "id": "i-1",
                "atMillis": 2**40,
                "who": "ops",
                "roles": ["operate"],
                "source": "cli",
                "address": "10.0.0.1",
                "operation": "pauseQueue",
                "queueName": "emails",
                "arguments": "{}",
                "jobs": 2**40,
                "outcome": "ok",
                "detail": "none",
                "server": "host:9010",
            }
        ],
        "continuation": "i-1",
        "incomplete": True,
    },
    "deleteJobsByDescriptor": 6,
}


def plain(value: Any) -> Any:
    """What came in, as dictionaries."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if type(value).__module__ == "builtins":
        return value
    return {name: plain(getattr(value, name)) for name in dir(type(value)) if not name.startswith("_")}


@pytest.mark.parametrize("method", METHODS)
async def test_every_value_reaches_the_operation_and_comes_back(desk: ThriftServerUnderTest, method: str) -> None:
    client = await desk.connect()
    reply = await client.call(method, **full_arguments()[method])
    assert desk.operations.asked == [ASKED[method]]
    assert (reply.name, reply.exception, reply.application_error) == (method, None, None)
    assert plain(reply.value) == ANSWERED[method]


async def test_an_old_client_s_job_leaves_everything_to_the_defaults(desk: ThriftServerUnderTest) -> None:
    job = types.PinLaterJob(b"x", None, None, None, None, uniqueScope=None)
    client = await desk.connect()
    await client.call("enqueueJobs", request=types.PinLaterEnqueueRequest("q", [job]))
    _, (queue, jobs), named = desk.operations.asked[0]
    assert (queue, jobs, named) == ("q", [Job(b"x")], {"request_key": None, "repeat": False, "arrived_s": ANY})


async def test_an_old_client_s_requests_have_the_contract_s_defaults(desk: ThriftServerUnderTest) -> None:
    client = await desk.connect()
    none: dict[str, Any] = {"priority": None, "limit": None}
    await client.call("dequeueJobs", request=types.PinLaterDequeueRequest("q", 1, dryRun=None, coverage=None))
    await client.call("scanJobs", request=types.PinLaterScanJobsRequest("q", 0, None, None, None, None))
    await client.call("getJobCount", request=types.PinLaterGetJobCountRequest("q", 0, countFutureJobs=None))
    await client.call(
        "retryFailedJobs", request=types.PinLaterRetryFailedJobsRequest("q", attemptsToAllow=None, **none)
    )
    await client.call("deleteJobs", request=types.PinLaterDeleteJobsRequest("q", 3, **none))
    pending = JobFilter("q", JobState.PENDING)
    assert [arguments[-1] for _, arguments, _ in desk.operations.asked[:3]] == [
        DequeueCommand("q", 1),
        ScanCommand(pending),
        pending,
    ]
    assert desk.operations.asked[3][1] == ("q", 1, 1, None, 1000)
    assert desk.operations.asked[4][1] == (JobFilter("q", JobState.FAILED, 1), 1000)


async def test_acks_may_come_without_either_list(desk: ThriftServerUnderTest) -> None:
    client = await desk.connect()
    await client.call("ackDequeuedJobs", request=types.PinLaterJobAckRequest("q"))
    assert desk.operations.asked == [("acknowledge", (ME, AckBatch("q", [])), {})]


async def test_an_old_client_s_ack_fences_nothing(desk: ThriftServerUnderTest) -> None:
    client = await desk.connect()
    info = types.PinLaterJobAckInfo("d", None, None)
    await client.call("ackDequeuedJobs", request=types.PinLaterJobAckRequest("q", None, [info]))
    assert desk.operations.asked[0][1][1] == AckBatch("q", [Ack("d", False)])


async def test_nothing_found_answers_empty_maps_and_no_order(desk: ThriftServerUnderTest) -> None:
    desk.operations.answers["dequeue"] = DequeueResult([])
    client = await desk.connect()
    reply = await client.call("dequeueJobs", request=types.PinLaterDequeueRequest("q", 1))
    assert plain(reply.value) == {"jobs": {}, "jobMetadata": {}, "ackOutcomes": None, "jobOrder": None}


async def test_answers_to_plain_requests_hold_nothing_that_an_old_client_does_not_know(
    desk: ThriftServerUnderTest,
) -> None:
    desk.operations.answers["enqueue"] = Enqueued(["a"])
    desk.operations.answers["scan"] = Scanned([])
    client = await desk.connect()
    enqueued = await client.call("enqueueJobs", request=types.PinLaterEnqueueRequest("q", []))
    scanned = await client.call("scanJobs", request=types.PinLaterScanJobsRequest("q", 0))
    assert plain(enqueued.value) == {"jobDescriptors": ["a"], "existing": None}
    assert plain(scanned.value) == {"scannedJobs": [], "continuation": "-1", "incomplete": None}


async def test_the_order_of_jobs_is_told(desk: ThriftServerUnderTest) -> None:
    numbers = (9, 3, 7, 1)
    desk.operations.answers["dequeue"] = DequeueResult(
        [CLAIM._replace(jobs=[CLAIMED._replace(id=number) for number in numbers])]
    )
    client = await desk.connect()
    reply = await client.call("dequeueJobs", request=types.PinLaterDequeueRequest("q", 4))
    assert reply.value.jobOrder == [f"q:s1:p1:{number}" for number in numbers]


async def test_a_dry_run_s_jobs_have_no_token(desk: ThriftServerUnderTest) -> None:
    shown = FromShard("1", [CLAIMED._replace(claim_deadline_ms=0)], "")
    desk.operations.answers["dequeue"] = DequeueResult([shown])
    client = await desk.connect()
    reply = await client.call("dequeueJobs", request=types.PinLaterDequeueRequest("emails", 4, dryRun=True))
    metadata = reply.value.jobMetadata[DESCRIPTOR]
    assert (metadata.claimToken, metadata.claimDeadlineMillis) == (None, None)


async def test_a_dequeue_cancelled_while_it_answers_many_acks_releases_its_jobs_unspent(
    desk: ThriftServerUnderTest,
) -> None:
    """After the claim there are turns of the loop between slices of the outcomes, and the call may be cancelled in each."""
    results = [AckResult(f"emails:s1:p1:{number}", Outcome.APPLIED) for number in range(3 * ITEMS_A_TURN)]
    desk.operations.answers["dequeue"] = DequeueResult([CLAIM], results)
    request = types.PinLaterDequeueRequest("emails", 10)
    arguments = SimpleNamespace(requestContext=types.RequestContext("worker-1", "request-1"), request=request)
    call = asyncio.ensure_future(METHODS["dequeueJobs"].handle(cast(Service, desk.operations), arguments))
    while not desk.operations.asked:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not call.done()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert desk.operations.undelivered_calls == [("emails", [CLAIM])]
