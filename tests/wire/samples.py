"""One call of every method with every field set, and one with as little as possible: what the codec's tests feed on."""

from __future__ import annotations

from typing import Any

from pinlater.wire.codec import encode_call
from pinlater.wire.generated import structs as types
from pinlater.wire.methods import METHODS_BY_NAME
from tests.compiled import ttypes

CONTEXT = types.RequestContext("worker-1", "request-1")
DESCRIPTOR = "emails:s1:p1:73"


def full_job() -> Any:
    """A job with every field."""
    return types.Job(
        body=b"\x00\xff\xfe body",
        priority=3,
        run_after_ms=1_767_225_600_000,
        attempts_allowed=7,
        custom_status="grün",
        headers={"traceparent": "00-ab-cd-01", "typ": "ü"},
        unique_key="order-1",
        unique_scope=ttypes.UniqueScope.TIME,
        unique_for_ms=60_000,
        claim_timeout_ms=30_000,
        expires_at_ms=1_767_225_700_000,
    )


def full_ack(descriptor: str = DESCRIPTOR) -> Any:
    """An ack with every field."""
    return types.Ack(
        descriptor=descriptor,
        append_status="done",
        retry_delay_ms=1_000,
        token="token",
        final=True,
        error_type="ValueError",
        error_text="no such address",
    )


def _acks() -> Any:
    return types.AckBatch("emails", [full_ack()], [full_ack("emails:s1:p2:74")], True)


def _checkpoint() -> Any:
    return types.Checkpoint(
        descriptor=DESCRIPTOR,
        new_body=b"\xff half",
        move_to_pending=True,
        run_after_ms=1_767_225_600_001,
        attempts_allowed=9,
        prepend_status="half ",
        token="token",
    )


FILTER = types.JobFilter(0, 2, "a.*b", ["send"], {"Ü": "1"}, "Ü", 3, 1, 2**40, "0123456789abcdef", True)


def _order(max_jobs: int | None = None) -> Any:
    """An order of a bulk run with every field, but perhaps the last."""
    undone = "fedcba9876543210"
    return types.BulkOrder("emails", ttypes.BulkAction.CANCEL, FILTER, 2, 2.5, True, undone, 2**40, max_jobs)


def _worker() -> Any:
    return types.WorkerInfo("python", "1.2", "höst", 2**40, 16, 3, 1_767_225_600_000)


def full_arguments() -> dict[str, dict[str, Any]]:
    """Arguments behind the context, for every method."""
    claims = [types.Claim(DESCRIPTOR, "token")]
    checkpoints = types.CheckpointBatch("emails", [_checkpoint()], True)
    config = types.QueueConfig(2.5, 30_000, 1, 2, 3, 4, 5, True)
    return {
        "createQueue": {"name": "emails"},
        "ensureQueue": {"name": "emails"},
        "createOrderedQueue": {"name": "emails"},
        "deleteQueue": {"name": "emails", "password": "secret"},
        "enqueueJobs": {"request": types.EnqueueRequest("emails", [full_job()], "key", True)},
        "dequeueJobs": {"request": types.DequeueRequest("emails", 10, _acks(), True, 0.5, 250, 7, _worker())},
        "ackDequeuedJobs": {"request": _acks()},
        "checkpointJobs": {"request": checkpoints},
        "lookupJobs": {"request": types.LookupRequest([DESCRIPTOR, "x"], True)},
        "getJobCount": {"request": types.CountRequest("emails", 0, 2, True, "a.*b")},
        "getQueueNames": {},
        "scanJobs": {"request": types.ScanRequest("emails", 3, 1, True, "tok", 5, "re", True, True, None, FILTER)},
        "retryFailedJobs": {"request": types.RetryRequest("emails", 2, 3, 1_767_225_600_000, 5, True)},
        "deleteJobs": {"request": types.DeleteRequest("emails", 2, 3, "re", 5)},
        "getServerInfo": {},
        "ackJobs": {"request": _acks()},
        "checkpointJobsFenced": {"request": checkpoints},
        "heartbeatClaims": {"request": types.ClaimsRequest("emails", claims, True, 7, _worker())},
        "releaseJobs": {"request": types.ReleaseRequest("emails", claims, 500, True)},
        "cancelJobs": {"queue": "emails", "descriptors": [DESCRIPTOR]},
        "configureQueue": {"queue": "emails", "config": config},
        "getQueueConfig": {"queue": "emails"},
        "pauseQueue": {"queue": "emails"},
        "resumeQueue": {"queue": "emails"},
        "unblockKey": {"queue": "emails", "ordering_key": "key Ü"},
        "getQueueStats": {"queues": ["emails"]},
        "changePriority": {"request": types.ChangePriorityRequest("emails", [DESCRIPTOR], 3)},
        "runJobs": {"request": types.RunJobsRequest("emails", [DESCRIPTOR], 1_767_225_600_000, 3)},
        "countJobs": {"request": types.CountRequest("emails", 0, 2, True, "a.*b", FILTER, "1.2")},
        "getSettingsInForce": {"queue": "emails"},
        "getWaitingDequeues": {},
        "getWorkers": {"everywhere": True},
        "getCluster": {},
        "getQueueHistory": {"request": types.QueueHistoryRequest(["emails"], 1, 2, 60)},
        "getFailures": {"request": types.FailuresRequest(["emails", "Ü"])},
        "startBulkRun": {"order": _order()},
        "startLimitedBulkRun": {"order": _order(9)},
        "stopBulkRun": {"queue": "emails", "run_id": "0123456789abcdef"},
        "getBulkRuns": {"queues": ["emails", "Ü"]},
        "listBulkRuns": {"request": types.BulkRunsRequest(["emails", "Ü"])},
        "muteFailures": {"mute": types.FailureMute("emails", "0123456789abcdef", 2**40)},
        "addDeployMark": {"mark": types.DeployMark(1_767_225_600_000, "v2.0 Ü", "emails")},
        "explainJob": {"queue": "emails", "descriptor": DESCRIPTOR},
        "findUniqueKey": {"request": types.UniqueKeyRequest(["emails", "Ü"], "key Ü")},
        "getQueueOwners": {},
        "getAudit": {"request": types.AuditRequest("emails", "ops", "pauseQueue", 1, 2**40, 5, "cursor")},
        "deleteJobsByDescriptor": {"queue": "emails", "descriptors": [DESCRIPTOR]},
        "deleteJobsInState": {"queue": "emails", "descriptors": [DESCRIPTOR], "state": 3},
    }


def full_calls(seqid: int = 7) -> dict[str, bytes]:
    """A whole frame for every method."""
    calls = {
        name: encode_call(name, seqid, context=CONTEXT, **arguments) for name, arguments in full_arguments().items()
    }
    assert calls.keys() == METHODS_BY_NAME.keys()
    return calls


def message(frame: bytes) -> bytes:
    """A frame without its length."""
    return frame[4:]
