"""Roles, which of them allow which method of the protocol, and the patterns of queues: the table that server, docs and tests read.

Pure. A token has roles and patterns; a call is allowed if one of the token's roles allows its method, and a pattern matches each
queue that the call names.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping
from enum import Enum
from hashlib import sha256

TOKEN_PREFIX = "pinlater_"  # noqa: S105 - what tokens begin with, so that scanners for secrets find them
_SECRET_BYTES = 32
ALL_QUEUES = "*"
_PATTERN = re.compile(r"[A-Za-z0-9_*]+", re.ASCII)
PATTERN_RULE = "a pattern has letters, digits, underscores, and * for any text"


class Role(str, Enum):  # noqa: UP042 - also the words of the command line and of files
    """What a caller may do."""

    READ = "read"
    PRODUCE = "produce"
    WORK = "work"
    OPERATE = "operate"
    ADMIN = "admin"


MEANINGS: Mapping[Role, str] = {
    Role.READ: "Look at queues, jobs with their bodies, statistics and the cluster.",
    Role.PRODUCE: "Enqueue, and look up jobs by descriptor, without bodies. Creates queues that are missing.",
    Role.WORK: "Claim jobs and report on them; look up jobs by descriptor. Creates queues that are missing.",
    Role.OPERATE: "Everything of `read`, the audit, and change queues and jobs: settings, pause, cancel, retry, run now, delete jobs.",
    Role.ADMIN: "Everything, and delete queues without the admin password (`pinlater queue delete --no-password`).",
}

INCLUDED: Mapping[Role, frozenset[Role]] = {
    Role.READ: frozenset({Role.READ}),
    Role.PRODUCE: frozenset({Role.PRODUCE}),
    Role.WORK: frozenset({Role.WORK}),
    Role.OPERATE: frozenset({Role.OPERATE, Role.READ}),
    Role.ADMIN: frozenset(Role),
}
"""The roles that each role includes, itself among them."""

_READ = frozenset({Role.READ})
_WORK = frozenset({Role.WORK})
_OPERATE = frozenset({Role.OPERATE})
EVERY_CALLER: frozenset[Role] = frozenset()

METHOD_ROLES: Mapping[str, frozenset[Role]] = {
    "getServerInfo": EVERY_CALLER,
    "getQueueNames": _READ,
    "getQueueConfig": _READ,
    "getSettingsInForce": _READ,
    "getQueueStats": _READ,
    "getJobCount": _READ,
    "countJobs": _READ,
    "findUniqueKey": _READ,
    "scanJobs": _READ,
    "getWaitingDequeues": _READ,
    "getWorkers": _READ,
    "getCluster": _READ,
    "explainJob": _READ,
    "getAudit": _OPERATE,  # its entries name people and addresses, which a caller that only reads jobs need not see
    "getQueueHistory": _READ,
    "getFailures": _READ,
    "getBulkRuns": _READ,
    "listBulkRuns": _READ,
    "getQueueOwners": frozenset({Role.READ, Role.PRODUCE, Role.WORK}),
    "lookupJobs": frozenset({Role.READ, Role.PRODUCE, Role.WORK}),
    "enqueueJobs": frozenset({Role.PRODUCE}),
    "dequeueJobs": _WORK,
    "ackDequeuedJobs": _WORK,
    "ackJobs": _WORK,
    "checkpointJobs": _WORK,
    "checkpointJobsFenced": _WORK,
    "heartbeatClaims": _WORK,
    "releaseJobs": _WORK,
    "createQueue": frozenset({Role.PRODUCE, Role.WORK, Role.OPERATE}),
    "ensureQueue": frozenset({Role.PRODUCE, Role.WORK, Role.OPERATE}),
    "createOrderedQueue": frozenset({Role.PRODUCE, Role.WORK, Role.OPERATE}),
    "configureQueue": _OPERATE,
    "pauseQueue": _OPERATE,
    "resumeQueue": _OPERATE,
    "unblockKey": _OPERATE,
    "addDeployMark": _OPERATE,
    "muteFailures": _OPERATE,
    "startBulkRun": _OPERATE,
    "startLimitedBulkRun": _OPERATE,
    "stopBulkRun": _OPERATE,
    "cancelJobs": _OPERATE,
    "runJobs": _OPERATE,
    "changePriority": _OPERATE,
    "retryFailedJobs": _OPERATE,
    "deleteJobs": _OPERATE,
    "deleteJobsByDescriptor": _OPERATE,
    "deleteJobsInState": _OPERATE,
    "deleteQueue": frozenset({Role.ADMIN}),
}
"""Each of these roles allows the method by itself. An empty set: every caller may call it, even without a token."""

BODIES, DRY_RUN = "lookupJobs with bodies", "dequeueJobs as a dry run"
FAILURE_TEXTS = "texts of failures of shards in getCluster, getBulkRuns and listBulkRuns"
VARIANT_ROLES: Mapping[str, frozenset[Role]] = {
    BODIES: frozenset({Role.READ, Role.WORK}),
    DRY_RUN: frozenset({Role.READ, Role.WORK}),
    FAILURE_TEXTS: _OPERATE,  # a database names users, hosts and files
}
"""Calls and parts of answers that need other roles than their method: a lookup with bodies; a dry run without acks, which claims nothing;
the texts of databases about failures."""


def effective(roles: Iterable[Role]) -> frozenset[Role]:
    """The roles, including those that they include."""
    return frozenset().union(*(INCLUDED[role] for role in roles))


def allowed(roles: Iterable[Role]) -> frozenset[str]:
    """The methods, and the keys of `VARIANT_ROLES`, that these roles allow."""
    held = effective(roles)
    every = {**METHOD_ROLES, **VARIANT_ROLES}
    return frozenset(name for name, needed in every.items() if not needed or needed & held)


def needed_for(name: str) -> str:
    """The roles that allow a method or variant, in words: `read or work`."""
    needed = {**METHOD_ROLES, **VARIANT_ROLES}[name]
    return " or ".join(role.value for role in Role if role in needed)


def check_pattern(pattern: str) -> str:
    """Returns the pattern. Raises ValueError if no queue name could match it."""
    if not _PATTERN.fullmatch(pattern):
        raise ValueError(f"{pattern!r} is not a pattern of queues: {PATTERN_RULE}")
    return pattern


def matches(patterns: Iterable[str], queue: str) -> bool:
    """Returns whether one of the patterns matches the whole name. `*` stands for any text, including none; case counts."""
    return any(_matches(pattern, queue) for pattern in patterns)


def _matches(pattern: str, queue: str) -> bool:
    """Matches in time that grows only with the length of the name, since any caller chooses the name."""
    first, *others = pattern.split("*")
    if not others:
        return queue == pattern
    *between, last = others
    at = len(first)
    if not queue.startswith(first) or not queue.endswith(last):
        return False
    end = len(queue) - len(last)
    for part in between:
        found = queue.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return at <= end


def new_secret() -> str:
    """A token of 256 random bits."""
    return TOKEN_PREFIX + secrets.token_urlsafe(_SECRET_BYTES)


def digest_of(secret: str) -> str:
    """The SHA-256 of a token, in hexadecimal digits. A token is random, so a slow hash would add nothing."""
    return sha256(secret.encode()).hexdigest()
