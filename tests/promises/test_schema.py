"""The schema as the contract's page has it: codes, states, constants, defaults, and our additions with their ids.

The original's own ids and types are compared in tests/wire/test_idl.py.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from scripts import idl
from tests.compiled import constants
from tests.promises.wire import PinLater, ttypes


def test_the_eleven_codes_the_states_and_the_constants_have_the_contracts_numbers() -> None:
    assert dict(zip(ttypes.ErrorCode._VALUES_TO_NAMES.values(), ttypes.ErrorCode._VALUES_TO_NAMES, strict=True)) == {
        "CONTINUATION_INVALID": 400,
        "PASSWORD_INVALID": 403,
        "QUEUE_NAME_INVALID": 410,
        "QUEUE_NAME_TOO_LONG": 411,
        "QUEUE_NOT_FOUND": 413,
        "PRIORITY_NOT_SUPPORTED": 416,
        "DEQUEUE_RATE_LIMITED": 429,
        "ENQUEUE_REJECTED": 430,
        "UNKNOWN": 500,
        "NO_HEALTHY_SHARDS": 501,
        "SHARD_CONNECTION_FAILED": 502,
    }
    assert ttypes.PinLaterJobState._VALUES_TO_NAMES == {0: "PENDING", 1: "IN_PROGRESS", 2: "SUCCEEDED", 3: "FAILED"}
    assert (constants.CONTINUATION_START, constants.CONTINUATION_END) == ("0", "-1")


DEFAULTS: dict[str, dict[str, Any]] = {
    "PinLaterJob": {
        "priority": 1,
        "numAttemptsAllowed": 2,
        "customStatus": "",
        "runAfterTimestampMillis": None,
        "uniqueScope": 1,
    },
    "PinLaterJobAckInfo": {"appendCustomStatus": "", "retryDelayMillis": 0},
    "PinLaterDequeueRequest": {
        "dryRun": False,
        "coverage": 1.0,
        "jobAckRequest": None,
        "waitMillis": None,
    },
    "PinLaterCheckpointJobRequest": {"moveToPending": False, "newBody": None, "numOfAttemptsAllowed": None},
    "PinLaterLookupJobRequest": {"includeBody": False},
    "PinLaterGetJobCountRequest": {"countFutureJobs": False, "priority": None, "bodyRegexToMatch": None},
    "PinLaterScanJobsRequest": {"scanFutureJobs": False, "continuation": "0", "limit": 100, "priority": None},
    "PinLaterScanJobsResponse": {"continuation": "-1"},
    "PinLaterRetryFailedJobsRequest": {
        "priority": 1,
        "attemptsToAllow": 1,
        "limit": 1000,
        "runAfterTimestampMillis": None,
        "skipCancelled": None,
    },
    "PinLaterDeleteJobsRequest": {"priority": 1, "limit": 1000, "bodyRegexToMatch": None},
    "RequestContext": {"requestId": ""},
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_the_defaults_of_a_struct_are_the_contracts(name: str) -> None:
    made = getattr(ttypes, name)()
    assert {field: getattr(made, field) for field in DEFAULTS[name]} == DEFAULTS[name]


def test_our_additions_are_optional_and_have_ids_from_one_hundred() -> None:
    for struct in idl.describe()["structs"]:
        required = [field for field in struct["fields"] if field["required"] == "required"]
        assert all(field["key"] < 100 for field in required), struct["name"]


# Types of the original: the ids from 100 on, with the names the page gives them.
ADDITIONS: dict[str, dict[int, str]] = {
    "PinLaterJob": {
        100: "map<string,string> headers",
        101: "string uniqueKey",
        102: "i32 uniqueScope = 1",
        103: "i64 uniqueForMillis",
        104: "i64 claimTimeoutMillis",
        105: "i64 expiresAtMillis",
        106: "string orderingKey",
    },
    "PinLaterEnqueueRequest": {100: "string requestKey", 101: "bool repeated"},
    "PinLaterEnqueueResponse": {100: "list<i32> existing"},
    "PinLaterDequeueRequest": {100: "i32 waitMillis", 140: "i32 process", 141: "WorkerInfo worker"},
    "PinLaterDequeueResponse": {100: "list<AckOutcome> ackOutcomes", 101: "list<string> jobOrder"},
    "PinLaterDequeueMetadata": {
        100: "string claimToken",
        101: "map<string,string> headers",
        102: "i64 claimDeadlineMillis",
        103: "i64 createdAtTimestampMillis",
        104: "i32 attempt",
        130: "bool bodyMasked",
    },
    "PinLaterJobAckInfo": {
        100: "string claimToken",
        101: "bool finalFailure",
        102: "string errorType",
        103: "string errorText",
    },
    "PinLaterJobAckRequest": {100: "bool perItemErrors"},
    "PinLaterCheckpointJobRequest": {100: "string claimToken"},
    "PinLaterCheckpointJobsRequest": {100: "bool perItemErrors"},
    "PinLaterJobInfo": {
        100: "map<string,string> headers",
        101: "string uniqueKey",
        102: "i64 claimDeadlineMillis",
        103: "string lastErrorType",
        104: "string lastErrorText",
        105: "list<Attempt> attempts",
        106: "i64 finishedAtTimestampMillis",
        107: "i64 expiresAtMillis",
        108: "string progress",
        109: "string orderingKey",
        130: "bool bodyMasked",
        131: "string failureGroup",
    },
    "JobExplanation": {
        100: "string behindJob",
        101: "i64 aheadInKey",
        102: "string formerShard",
        103: "i64 aheadOnFormer",
    },
    "PinLaterRetryFailedJobsRequest": {100: "bool skipCancelled"},
    "PinLaterScanJobsRequest": {
        100: "bool paged",
        101: "bool includeBody",
        102: "string shard",
        103: "JobFilter filter",
    },
    "PinLaterScanJobsResponse": {100: "bool incomplete", 101: "bool filtered"},
    "PinLaterGetJobCountRequest": {100: "JobFilter filter", 101: "string continuation"},
    "QueueConfig": {
        100: "i32 burst",
        101: "i32 partitions",
        102: "i32 maxInHandPerKey",
        103: "string retryPlace",
        104: "string afterFailure",
        105: "bool ordered",
    },
    "RequestContext": {100: 'string authToken = ""', 130: "string onBehalfOf", 131: "string callerAddress"},
    "PinLaterException": {100: "string detail", 101: "bool retryable", 102: "i64 retryAfterMillis"},
}
KEPT_FOR_LATER = {"PinLaterJob": {107}}
NEW_METHODS = {
    "getServerInfo", "ackJobs", "checkpointJobsFenced", "heartbeatClaims", "releaseJobs", "cancelJobs", "configureQueue",
    "getQueueConfig", "pauseQueue", "resumeQueue", "getQueueStats", "deleteJobsByDescriptor",
    "runJobs", "countJobs", "getSettingsInForce", "getWaitingDequeues",
    "getCluster", "getQueueHistory", "addDeployMark", "getFailures", "muteFailures", "explainJob", "getQueueOwners", "getAudit",
    "startBulkRun", "stopBulkRun", "getBulkRuns", "listBulkRuns", "getWorkers", "findUniqueKey", "changePriority",
    "ensureQueue", "unblockKey", "createOrderedQueue", "startLimitedBulkRun",
}  # fmt: skip


def test_our_additions_have_the_names_types_and_ids_of_the_contract() -> None:
    released = json.loads(idl.RECORD.read_text())
    found: dict[str, dict[int, str]] = {}
    for name, fields in released["types"].items():
        added = {int(number): str(text) for number, text in fields.items() if int(number) >= 100}
        if added:
            found[name] = {number: text.removeprefix("optional ") for number, text in added.items()}
    assert found == ADDITIONS


def test_no_field_uses_an_id_that_is_kept_for_later() -> None:
    for name, kept in KEPT_FOR_LATER.items():
        assert kept.isdisjoint(entry[0] for entry in getattr(ttypes, name).thrift_spec if entry is not None), name


def test_scopes_and_outcomes_have_the_contracts_numbers() -> None:
    assert ttypes.UniqueScope._VALUES_TO_NAMES == {0: "PENDING", 1: "UNFINISHED", 2: "TIME"}
    assert ttypes.Outcome._VALUES_TO_NAMES == {
        0: "APPLIED",
        1: "ALREADY_FINAL",
        2: "STALE_CLAIM",
        3: "NOT_FOUND",
        4: "ERROR",
    }


def test_there_are_the_originals_twelve_methods_and_our_twelve() -> None:
    methods = {name.removesuffix("_args") for name in vars(PinLater) if name.endswith("_args")}
    assert methods >= NEW_METHODS
    assert len(methods - NEW_METHODS) == 12


def test_generated_clients_find_their_namespaces() -> None:
    lines = idl.IDL.read_text().splitlines()
    assert "namespace py thrift_libs" in lines
    assert "namespace java com.pinterest.pinlater.thrift" in lines
