"""Every method reaches its operation with every value, and every value of the answer reaches the caller."""

from __future__ import annotations

from typing import Any
from unittest.mock import ANY

import pytest
from msgspec.structs import replace

from pinlater.domain.job import JobState
from pinlater.domain.queue import QueueConfig
from pinlater.domain.workers import WorkerInfo
from pinlater.server.dispatch.claiming import FromShard
from pinlater.server.features.all import METHODS
from pinlater.server.operations.values import Caller, DequeueResult
from pinlater.wire.generated.structs import AuditRequest, JobFilter
from tests import structs as types
from tests.thrift_server.conftest import ThriftServerUnderTest
from tests.thrift_server.fake_operations import BULK_ORDER, CLAIM, CLAIMED, DESCRIPTOR, HEADERS
from tests.wire.samples import full_arguments

ME = Caller("worker-1", "request-1")
WORKER = ME._replace(process=7, worker=WorkerInfo("python", "1.2", "höst", 2**40, 16, 3, 1_767_225_600_000))
SENT = full_arguments()
ACKS = SENT["ackJobs"]["request"]

ASKED: dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]] = {
    "createQueue": ("create_queue", ("emails",), {}),
    "ensureQueue": ("create_queue", ("emails",), {"for_task": True}),
    "createOrderedQueue": ("create_queue", ("emails",), {"ordered": True}),
    "deleteQueue": ("delete_queue", ("emails", "secret"), {}),
    "enqueueJobs": ("enqueue", (SENT["enqueueJobs"]["request"], ANY), {}),
    "dequeueJobs": ("dequeue", (WORKER, SENT["dequeueJobs"]["request"]), {}),
    "ackDequeuedJobs": ("acknowledge", (ME, replace(ACKS, per_item_errors=None)), {}),
    "checkpointJobs": ("checkpoint", (ME, replace(SENT["checkpointJobs"]["request"], per_item_errors=None)), {}),
    "lookupJobs": ("lookup", (types.LookupRequest([DESCRIPTOR, "x"], True),), {}),
    "getJobCount": ("count", (JobFilter("emails", JobState.PENDING, 2, True, "a.*b"),), {}),
    "getQueueNames": ("queue_names", (), {}),
    "scanJobs": ("scan", (types.ScanRequest("emails", 3, 1, True, "tok", 5, "re", True, True),), {}),
    "retryFailedJobs": ("retry_failed", (types.RetryRequest("emails", 2, 3, 1_767_225_600_000, 5, True),), {}),
    "deleteJobs": ("delete_jobs", (types.DeleteRequest("emails", 2, 3, "re", 5),), {}),
    "getServerInfo": ("server_info", (), {}),
    "ackJobs": ("acknowledge", (ME, ACKS), {}),
    "checkpointJobsFenced": ("checkpoint", (ME, SENT["checkpointJobsFenced"]["request"]), {}),
    "heartbeatClaims": ("heartbeat", (SENT["heartbeatClaims"]["request"],), {"caller": WORKER}),
    "releaseJobs": ("release", (SENT["releaseJobs"]["request"],), {"caller": ME}),
    "cancelJobs": ("cancel", ("emails", [DESCRIPTOR]), {}),
    "configureQueue": ("configure_queue", ("emails", QueueConfig(2.5, 30_000, 1, 2, 3, 4, 5)), {}),
    "getQueueConfig": ("queue_config", ("emails",), {}),
    "pauseQueue": ("set_paused", ("emails", True, ME.source), {}),
    "resumeQueue": ("set_paused", ("emails", False), {}),
    "unblockKey": ("unblock_key", ("emails", "key Ü"), {}),
    "getQueueStats": ("queue_stats", (["emails"],), {}),
    "changePriority": ("change_priority", (types.ChangePriorityRequest("emails", [DESCRIPTOR], 3),), {}),
    "runJobs": ("run_jobs", (types.RunJobsRequest("emails", [DESCRIPTOR], 1_767_225_600_000, 3),), {}),
    "countJobs": ("count_jobs", (JobFilter("emails", JobState.PENDING, 2, True, "a.*b"),), {}),
    "getSettingsInForce": ("in_force", ("emails",), {}),
    "getWaitingDequeues": ("waiting_dequeues", (), {}),
    "getWorkers": ("known_workers", (True,), {}),
    "getCluster": ("cluster", (), {}),
    "getQueueHistory": ("queue_history", (types.QueueHistoryRequest(["emails"], 1, 2, 60),), {}),
    "getFailures": ("list_groups", (["emails", "Ü"],), {}),
    "startBulkRun": ("start", (BULK_ORDER, ME.source, ME.source), {}),
    "stopBulkRun": ("stop", ("emails", "0123456789abcdef"), {}),
    "getBulkRuns": ("runs", (["emails", "Ü"],), {}),
    "listBulkRuns": ("list_runs", (["emails", "Ü"],), {}),
    "muteFailures": ("mute", ("emails", "0123456789abcdef", 2**40), {}),
    "addDeployMark": ("add_mark", ("v2.0 Ü", 1_767_225_600_000, "emails"), {}),
    "explainJob": ("explain", ("emails", DESCRIPTOR), {}),
    "findUniqueKey": ("find_unique_key", (["emails", "Ü"], "key Ü"), {}),
    "getQueueOwners": ("owners", (), {}),
    "getAudit": ("read", (AuditRequest("emails", "ops", "pauseQueue", 1, 2**40, 5, "cursor"),), {}),
    "deleteJobsByDescriptor": ("delete_jobs_by_descriptor", ("emails", [DESCRIPTOR]), {}),
}

BULK_RUN_ON_WIRE = {
    "id": "0123456789abcdef",
    "order": {
        "queue": "emails",
        "action": 2,
        "filter": {
            "state": 0,
            "priority": 2,
            "regex": "a.*b",
            "tasks": ["send"],
            "headers": {"Ü": "1"},
            "error_text": "Ü",
            "min_attempts": 3,
            "enqueued_from_ms": 1,
            "enqueued_before_ms": 2**40,
            "group": "0123456789abcdef",
            "skip_cancelled": True,
        },
        "attempts": 2,
        "jobs_per_second": 2.5,
        "for_good": True,
        "undoes": "fedcba9876543210",
        "expected_jobs": 2**40,
    },
    "who": "ops",
    "started_ms": 1,
    "state": 3,
    "looked": 2**40,
    "changed": 2**39,
    "news_ms": 2,
    "ended_ms": 3,
    "detail": "gone",
    "undo_until_ms": 2**42,
    "to_look_at": 2**41,
    "expected_changes": 2**40,
    "percent": 42,
    "left_ms": 2**43,
}
INFO = {
    "descriptor": DESCRIPTOR,
    "state": 3,
    "attempts_allowed": 5,
    "attempts_remaining": 0,
    "custom_status": "[progress] 40 % row 2\ngrün",
    "created_at_ms": 100,
    "run_after_ms": 200,
    "updated_at_ms": 300,
    "claim_descriptor": "h:1:2:me:3",
    "body": b"\xff",
    "headers": HEADERS,
    "unique_key": "key",
    "claim_deadline_ms": 400,
    "error_type": "ValueError",
    "error_text": "no",
    "attempts": [
        {
            "number": 1,
            "claimed_by": "h:1:2:me:3",
            "claimed_at_ms": 10,
            "ended_at_ms": 20,
            "outcome": "failed",
            "error_type": "ValueError",
            "error_text": "no",
        }
    ],
    "finished_at_ms": 500,
    "expires_at_ms": 600,
    "progress": "40 % row 2",
    "ordering_key": "customer 7",
    "body_masked": None,
    "failure_group": None,
}
NO_ERROR = {"error_code": None, "error_detail": None, "retryable": None, "retry_after_ms": None}
OUTCOMES = [
    {
        "descriptor": DESCRIPTOR,
        "outcome": 0,
        "holder": None,
        "held_since_ms": None,
        "claim_deadline_ms": 900,
        **NO_ERROR,
    },
    {
        "descriptor": "emails:s1:p1:74",
        "outcome": 2,
        "holder": "h:1:2:other:4",
        "held_since_ms": 800,
        "claim_deadline_ms": None,
        **NO_ERROR,
    },
    {
        "descriptor": "emails:s2:p1:75",
        "outcome": 4,
        "holder": None,
        "held_since_ms": None,
        "claim_deadline_ms": None,
        "error_code": 502,
        "error_detail": "SHARD_UNREACHABLE",
        "retryable": True,
        "retry_after_ms": 1_000,
    },
]
COUNTS = {
    "priority": 1,
    "pending": 7,
    "future": 2,
    "in_progress": 1,
    "succeeded": 3,
    "failed": 4,
    "enqueued_total": 20,
    "claimed_total": 18,
    "succeeded_total": 3,
    "failed_total": 4,
    "retried_total": 9,
    "oldest_due_at_ms": 150,
    "behind_key": 1,
}
METADATA = {
    "attempts_allowed": 5,
    "attempts_remaining": 4,
    "token": "token",
    "headers": HEADERS,
    "claim_deadline_ms": 300,
    "created_at_ms": 100,
    "attempt": 2,
    "body_masked": None,
}
DETAILS_OF_A_SHARD = {
    "kind": "mysql",
    "address": "db:3306/jobs",
    "takes_enqueues": False,
    "since_ms": 2**41,
    "failure": "refused",
    "failure_kind": "refused",
    "failed_at_ms": 2**42,
    "probing": True,
    "stalled": True,
    "full": "no space",
    "jobs": {
        "at_ms": 1,
        "due": 2**40,
        "scheduled": 3,
        "in_progress": 4,
        "succeeded": 5,
        "failed": 6,
        "oldest_due_at_ms": 7,
    },
    "size": {"used_bytes": 2**43, "log_bytes": 2**44, "limit_bytes": 2**45, "at_ms": 8, "late": True},
    "memory": {"jobs": 2**40, "bytes": 2**41, "claims": 2**42, "stale_claims": 2**43},
    "drain": {"since_ms": 9, "leaving": True, "live_at_first": 2**40, "jobs_per_second": 1.5, "empty_at_ms": 10},
    "lanes": [
        {
            "kind": "insert",
            "waiting": 2,
            "running": 3,
            "running_ms": 4,
            "calls": 2**41,
            "requests": 2**42,
            "mean_ms": 0.5,
            "slowest_ms": 1.5,
        },
        {
            "kind": "claim",
            "waiting": 0,
            "running": 0,
            "running_ms": None,
            "calls": 0,
            "requests": 0,
            "mean_ms": None,
            "slowest_ms": None,
        },
    ],
}
ANSWERED: dict[str, Any] = {
    "createQueue": None,
    "ensureQueue": None,
    "createOrderedQueue": None,
    "deleteQueue": None,
    "enqueueJobs": {"descriptors": [DESCRIPTOR], "existing": [0]},
    "dequeueJobs": {
        "jobs": {DESCRIPTOR: b"\x00\xff"},
        "metadata": {DESCRIPTOR: METADATA},
        "ack_outcomes": OUTCOMES,
        "order": [DESCRIPTOR],
    },
    "ackDequeuedJobs": None,
    "checkpointJobs": None,
    "lookupJobs": {DESCRIPTOR: INFO},
    "findUniqueKey": {"jobs": [INFO], "incomplete": True},
    "getJobCount": 2**31 - 1,
    "getQueueNames": {"emails", "images"},
    "scanJobs": {"jobs": [INFO], "continuation": "next", "incomplete": True},
    "retryFailedJobs": 4,
    "deleteJobs": 5,
    "getServerInfo": {
        "version": "1.2.3",
        "features": ["waitMillis"],
        "store_kind": "memory",
        "now_ms": 1,
        "started_at_ms": 2,
        "priority_levels": 3,
        "max_body_bytes": 4,
        "max_frame_bytes": 5,
        "max_jobs_per_request": 6,
        "max_descriptors_per_request": 7,
        "max_wait_ms": 8,
        "access": "tokens",
        "server_id": "1-2-3",
        "caller": {
            "token_name": "ada",
            "roles": ["read"],
            "queues": ["mail*"],
            "expires_at_ms": 9,
            "speaks_for_others": True,
        },
    },
    "ackJobs": OUTCOMES,
    "checkpointJobsFenced": OUTCOMES,
    "heartbeatClaims": OUTCOMES,
    "releaseJobs": OUTCOMES,
    "cancelJobs": OUTCOMES,
    "configureQueue": None,
    "getQueueConfig": {
        "max_jobs_per_second": 2.5,
        "claim_timeout_ms": 1,
        "succeeded_ttl_ms": 2,
        "failed_ttl_ms": 3,
        "max_backlog": 4,
        "default_attempts": 5,
        "default_expiry_ms": 6,
        "burst": 7,
        "partitions": None,
        "max_in_hand_per_key": None,
        "retry_place": None,
        "after_failure": None,
        "paused": True,
        "ordered": True,
    },
    "pauseQueue": None,
    "unblockKey": 7,
    "resumeQueue": None,
    "getQueueStats": [
        {
            "queue": "emails",
            "paused": True,
            "counts": [COUNTS],
            "oldest_waiting_ms": 50,
            "rates": {"enqueued": 1.5, "claimed": 2.5, "succeeded": 3.5, "failed": 4.5, "retried": 5.5},
            "waiting_dequeues": 3,
            "incomplete": True,
            "max_jobs_per_second": 2.5,
            "partitions": None,
            "strays": None,
            "partition_number": None,
        }
    ],
    "changePriority": [
        {
            "descriptor": "emails:s1:p2:9",
            "outcome": 0,
            "moved_to": "emails:s1:p3:9",
            "holder": None,
            "held_since_ms": None,
        },
        {
            "descriptor": "emails:s1:p3:8",
            "outcome": 0,
            "moved_to": "emails:s1:p3:8",
            "holder": None,
            "held_since_ms": None,
        },
        {"descriptor": "emails:s1:p2:7", "outcome": 2, "moved_to": None, "holder": "h", "held_since_ms": 4},
    ],
    "runJobs": OUTCOMES,
    "countJobs": {"jobs": 2**40, "incomplete": True},
    "getSettingsInForce": {
        "values": {
            "max_jobs_per_second": 2.5,
            "claim_timeout_ms": 1,
            "succeeded_ttl_ms": 2,
            "failed_ttl_ms": 3,
            "max_backlog": 4,
            "default_attempts": 5,
            "default_expiry_ms": 6,
            "burst": 7,
            "partitions": None,
            "max_in_hand_per_key": None,
            "retry_place": None,
            "after_failure": None,
            "paused": None,
            "ordered": None,
        },
        "origins": {"claimTimeoutMillis": "queue"},
    },
    "getFailures": {
        "groups": [
            {
                "queue": "emails",
                "name": "0123456789abcdef",
                "task": "send",
                "error_type": "OSError",
                "pattern": "no file …",
                "failures": 2**40,
                "first_ms": 1,
                "last_ms": 2,
                "sample_descriptor": "emails:s1:p1:7",
                "hours": [0, 3],
                "muted_until_ms": 2**40,
            }
        ],
        "incomplete": True,
    },
    "getQueueHistory": {
        "queues": [
            {
                "queue": "emails",
                "points": [
                    {
                        "at_ms": 1,
                        "enqueued": 2,
                        "claimed": 3,
                        "succeeded": 4,
                        "failed": 5,
                        "timed_out": 6,
                        "expired": 7,
                        "due": 2**40,
                        "scheduled": 8,
                        "in_progress": 9,
                        "oldest_waiting_ms": 10,
                        "waits": {"number": 11, "p50_ms": 12, "p90_ms": 13, "p99_ms": 14},
                        "runs": {"number": 15, "p50_ms": 16, "p90_ms": 17, "p99_ms": 18},
                    },
                    {
                        "at_ms": 2,
                        "enqueued": 0,
                        "claimed": 0,
                        "succeeded": 0,
                        "failed": 0,
                        "timed_out": 0,
                        "expired": 0,
                        "due": None,
                        "scheduled": None,
                        "in_progress": None,
                        "oldest_waiting_ms": None,
                        "waits": None,
                        "runs": None,
                    },
                ],
            }
        ],
        "marks": [
            {"at_ms": 1, "text": "v2", "queue": "emails"},
            {"at_ms": 2, "text": "v3", "queue": None},
        ],
        "step_s": 60,
        "from_ms": 1,
        "until_ms": 2,
        "incomplete": True,
    },
    "addDeployMark": None,
    "muteFailures": None,
    "startBulkRun": BULK_RUN_ON_WIRE,
    "stopBulkRun": BULK_RUN_ON_WIRE,
    "getBulkRuns": [BULK_RUN_ON_WIRE],
    "listBulkRuns": {"runs": [BULK_RUN_ON_WIRE], "incomplete": True, "missing_shards": ["2", "3"]},
    "explainJob": {
        "descriptor": DESCRIPTOR,
        "job": INFO,
        "now_ms": 9,
        "shard": {"name": "1", "in_reach": False, "drains": True},
        "queue": {
            "paused": True,
            "paused_at_ms": 1,
            "paused_by": "ops",
            "max_jobs_per_second": 2.5,
            "next_slot_ms": 3,
            "claimed_per_second": 4.5,
            "in_progress": 2**40,
            "waiting_dequeues": 6,
            "last_dequeue_at_ms": 7,
            "server_started_at_ms": 8,
            "servers": 10,
            "partition_number": None,
        },
        "jobs_ahead": {"jobs": 2**40, "at_least": True, "incomplete": True},
        "behind_job": "emails:s1:p1:11",
        "ahead_in_key": 2**41,
        "former_shard": "2",
        "ahead_on_former": 2**42,
    },
    "getWaitingDequeues": [{"queue": "emails", "source": "w-1", "number": 2}],
    "getWorkers": [
        {
            "workers": [
                {
                    "source": "w-1",
                    "process": 7,
                    "heard_ms": 250,
                    "queues": [
                        {
                            "queue": "emails",
                            "asked_ms": 1,
                            "handed_out": 2**40,
                            "timed_out": 2**41,
                            "late": 2**42,
                            "timed_out_lately": 5,
                            "late_lately": 6,
                            "timed_out_times": 7,
                        }
                    ],
                    "claim_ms": 30_000,
                    "info": {
                        "library": "python",
                        "version": "1.2",
                        "host": "höst",
                        "pid": 2**40,
                        "concurrency": 16,
                        "running": 3,
                        "started_at_ms": 2**41,
                    },
                    "said_ms": 1_000,
                    "lost": [{"queue": "emails", "descriptor": DESCRIPTOR, "ended_ms": 2**40}],
                },
                {
                    "source": "w-2",
                    "process": None,
                    "heard_ms": None,
                    "queues": [],
                    "claim_ms": None,
                    "info": None,
                    "said_ms": None,
                    "lost": [],
                },
            ],
            "waiting": [{"queue": "emails", "source": "w-1", "number": 2}],
            "server_id": "1-2-3",
            "servers": 3,
            "now_ms": 2**42,
            "up_ms": 2**43,
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
                "heard_ms": None,
                "usable": True,
                "unanswered_calls": 0,
                "items_sent": 0,
                "items_taken": 0,
                "version": None,
                "started_at_ms": None,
                "connections": None,
                "loop_lag_ms": None,
            },
            {
                "address": "b:1",
                "name": None,
                "slots": {"1": 5},
                "answers": False,
                "heard": True,
                "heard_ms": 250,
                "usable": False,
                "unanswered_calls": 3,
                "items_sent": 2**40,
                "items_taken": 2**41,
                "version": "1.2.3",
                "started_at_ms": 2**42,
                "connections": 12,
                "loop_lag_ms": 2**43,
            },
        ],
        "shards": [
            {
                "name": "1",
                "in_reach": False,
                "version": 2**33,
                "owners": [0, 1, -1],
                "misplaced": [2],
                "details": DETAILS_OF_A_SHARD,
            },
            {
                "name": "2",
                "in_reach": True,
                "version": 1,
                "owners": [],
                "misplaced": [],
                "details": {
                    "kind": "memory",
                    "address": None,
                    "takes_enqueues": True,
                    "since_ms": 1,
                    "failure": None,
                    "failure_kind": None,
                    "failed_at_ms": None,
                    "probing": False,
                    "stalled": False,
                    "full": None,
                    "jobs": None,
                    "size": {
                        "used_bytes": None,
                        "log_bytes": None,
                        "limit_bytes": None,
                        "at_ms": None,
                        "late": None,
                    },
                    "memory": None,
                    "drain": None,
                    "lanes": [],
                },
            },
        ],
        "forwarded": [
            {"kind": "insert", "calls_sent": 2**40, "items_sent": 2**41, "calls_taken": 2**42, "items_taken": 2**43}
        ],
        "moves": 2**44,
        "answers_lost": 2**45,
        "incomplete": True,
        "front_processes": [
            {"number": 1, "calls_taken": 2**46, "calls_under_way": 3, "waiting_calls": 2, "untaken_bytes": 2**47}
        ],
        "partitions": None,
        "coordinator_trouble": None,
    },
    "getQueueOwners": {
        "servers": [{"id": "1-2-3", "address": "a:9010"}, {"id": "2-2-3", "address": None}],
        "shards": [{"name": "1", "takes_enqueues": False, "owners": [0, 1, -1]}],
        "partitions": None,
    },
    "getAudit": {
        "entries": [
            {
                "id": "i-1",
                "at_ms": 2**40,
                "who": "ops",
                "roles": ["operate"],
                "source": "cli",
                "address": "10.0.0.1",
                "operation": "pauseQueue",
                "queue": "emails",
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
    job = types.Job(b"x", None, None, None, None, unique_scope=None)
    client = await desk.connect()
    await client.call("enqueueJobs", request=types.EnqueueRequest("q", [job]))
    assert desk.operations.asked[0] == ("enqueue", (types.EnqueueRequest("q", [types.Job(b"x")]), ANY), {})


async def test_an_old_client_s_requests_have_the_contract_s_defaults(desk: ThriftServerUnderTest) -> None:
    client = await desk.connect()
    none: dict[str, Any] = {"priority": None, "limit": None}
    await client.call("dequeueJobs", request=types.DequeueRequest("q", 1, dry_run=None, coverage=None))
    await client.call("scanJobs", request=types.ScanRequest("q", 0, None, None, None, None))
    await client.call("getJobCount", request=types.JobFilter("q", 0, future=None))
    await client.call("retryFailedJobs", request=types.RetryRequest("q", attempts=None, **none))
    await client.call("deleteJobs", request=types.DeleteRequest("q", 3, **none))
    assert [arguments[-1] for _, arguments, _ in desk.operations.asked[:3]] == [
        types.DequeueRequest("q", 1),
        types.ScanRequest("q", JobState.PENDING),
        JobFilter("q", JobState.PENDING),
    ]
    assert desk.operations.asked[3][1] == (types.RetryRequest("q", 1, 1, None, 1000),)
    assert desk.operations.asked[4][1] == (types.DeleteRequest("q", 3, 1, None, 1000),)


async def test_acks_may_come_without_either_list(desk: ThriftServerUnderTest) -> None:
    client = await desk.connect()
    await client.call("ackDequeuedJobs", request=types.AckBatch("q"))
    assert desk.operations.asked == [("acknowledge", (ME, types.AckBatch("q")), {})]


async def test_an_old_client_s_ack_fences_nothing(desk: ThriftServerUnderTest) -> None:
    client = await desk.connect()
    info = types.Ack("d", None, None)
    await client.call("ackDequeuedJobs", request=types.AckBatch("q", None, [info]))
    assert desk.operations.asked[0][1][1] == types.AckBatch("q", None, [types.Ack("d")])


async def test_nothing_found_answers_empty_maps_and_no_order(desk: ThriftServerUnderTest) -> None:
    desk.operations.answers["dequeue"] = DequeueResult([])
    client = await desk.connect()
    reply = await client.call("dequeueJobs", request=types.DequeueRequest("q", 1))
    assert plain(reply.value) == {"jobs": {}, "metadata": {}, "ack_outcomes": None, "order": None}


async def test_answers_to_plain_requests_hold_nothing_that_an_old_client_does_not_know(
    desk: ThriftServerUnderTest,
) -> None:
    desk.operations.answers["enqueue"] = types.Enqueued(["a"])
    desk.operations.answers["scan"] = types.Scanned([])
    client = await desk.connect()
    enqueued = await client.call("enqueueJobs", request=types.EnqueueRequest("q", []))
    scanned = await client.call("scanJobs", request=types.ScanRequest("q", 0))
    assert plain(enqueued.value) == {"descriptors": ["a"], "existing": None}
    assert plain(scanned.value) == {"jobs": [], "continuation": "-1", "incomplete": None}


async def test_the_order_of_jobs_is_told(desk: ThriftServerUnderTest) -> None:
    numbers = (9, 3, 7, 1)
    desk.operations.answers["dequeue"] = DequeueResult(
        [CLAIM._replace(jobs=[CLAIMED._replace(id=number) for number in numbers])]
    )
    client = await desk.connect()
    reply = await client.call("dequeueJobs", request=types.DequeueRequest("q", 4))
    assert reply.value.order == [f"q:s1:p1:{number}" for number in numbers]


async def test_a_dry_run_s_jobs_have_no_token(desk: ThriftServerUnderTest) -> None:
    shown = FromShard("1", [CLAIMED._replace(claim_deadline_ms=0)], "")
    desk.operations.answers["dequeue"] = DequeueResult([shown])
    client = await desk.connect()
    reply = await client.call("dequeueJobs", request=types.DequeueRequest("emails", 4, dry_run=True))
    metadata = reply.value.metadata[DESCRIPTOR]
    assert (metadata.token, metadata.claim_deadline_ms) == (None, None)
