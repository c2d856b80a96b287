"""Our names of the IDL's structs and fields: its words in Python's spelling, with another word where we have one.

Only the generator reads this.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

OTHER_CLASSES: Mapping[str, str] = {
    "AckOutcome": "AckResult",
    "ClaimRef": "Claim",
    "PinLaterCheckpointJobRequest": "Checkpoint",
    "PinLaterCheckpointJobsRequest": "CheckpointBatch",
    "PinLaterDeleteJobsRequest": "DeleteRequest",
    "PinLaterEnqueueResponse": "Enqueued",
    "PinLaterException": "PinLaterException",
    "PinLaterGetJobCountRequest": "CountRequest",
    "PinLaterJobAckInfo": "Ack",
    "PinLaterJobAckRequest": "AckBatch",
    "PinLaterLookupJobRequest": "LookupRequest",
    "PinLaterRetryFailedJobsRequest": "RetryRequest",
    "PinLaterScanJobsRequest": "ScanRequest",
    "PinLaterScanJobsResponse": "Scanned",
}
# The IDL's word, if ours is another word and not only another spelling.
OTHER_WORDS: Mapping[str, str] = {
    "appendCustomStatus": "append_status",
    "attemptsToAllow": "attempts",
    "bodyRegexToMatch": "regex",
    "claimToken": "token",
    "countFutureJobs": "future",
    "countedAtMillis": "at_ms",
    "finalFailure": "final",
    "groupName": "group",
    "includeBody": "bodies",
    "jobAckRequest": "acks",
    "jobDescriptor": "descriptor",
    "jobDescriptors": "descriptors",
    "jobMetadata": "metadata",
    "jobOrder": "order",
    "jobState": "state",
    "jobsFailed": "failed",
    "jobsSucceeded": "succeeded",
    "lastErrorText": "error_text",
    "lastErrorType": "error_type",
    "measuredAtMillis": "at_ms",
    "misplacedSlices": "misplaced",
    "numAttemptsAllowed": "attempts_allowed",
    "numOfAttemptsAllowed": "attempts_allowed",
    "ownersVersion": "version",
    "prependCustomStatus": "prepend_status",
    "queueName": "queue",
    "queueNames": "queues",
    "requestContext": "context",
    "scanFutureJobs": "future",
    "scannedJobs": "jobs",
    "startedBy": "who",
}
_TIME = re.compile("(Timestamp)?Millis(Ago)?$")
_CAPITAL = re.compile("(?<!^)(?=[A-Z])")


def our_class(name: str) -> str:
    return OTHER_CLASSES.get(name) or name.removeprefix("PinLater")


def our_name(word: str) -> str:
    """Returns our name of a field. The names of times and durations contain their unit."""
    known = OTHER_WORDS.get(word)
    return known or _CAPITAL.sub("_", _TIME.sub("_ms", re.sub("Seconds$", "_s", word))).lower()
