"""The list of the features. The core names none: `main/core.py` adds the features of this list.

`main/app.py` and `main/cluster.py` give the status and the workers what only a server among others knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pinlater.server.features.audit.feature import FEATURE as AUDIT
from pinlater.server.features.bulk.feature import FEATURE as BULK
from pinlater.server.features.demand.feature import FEATURE as DEMAND
from pinlater.server.features.explain.feature import FEATURE as EXPLAIN
from pinlater.server.features.failures.feature import FEATURE as FAILURES
from pinlater.server.features.feature import Feature
from pinlater.server.features.history.feature import FEATURE as HISTORY
from pinlater.server.features.partitions.feature import FEATURE as PARTITIONS
from pinlater.server.features.status.feature import FEATURE as STATUS
from pinlater.server.features.workers.feature import FEATURE as WORKERS
from pinlater.server.front.operations import Operation, operations
from pinlater.server.thrift.methods import changing, jobs, looking, queues
from pinlater.server.thrift.methods.record import ServedMethod

FEATURES: Sequence[Feature] = (STATUS, WORKERS, EXPLAIN, FAILURES, BULK, HISTORY, DEMAND, PARTITIONS, AUDIT)
"""In the order in which they are added to a server, and closed: the audit is last, to record changes that end meanwhile."""
_ON_JOBS_AND_QUEUES = (*jobs.METHODS, *looking.METHODS, *changing.METHODS, *queues.METHODS)
METHODS: Mapping[str, ServedMethod] = {
    served.name: served
    for served in (*_ON_JOBS_AND_QUEUES, *(served for feature in FEATURES for served in feature.methods))
}
"""The record of each method, by its name in the IDL."""
OPERATIONS: Sequence[Operation] = operations([feature.forwarded for feature in FEATURES])
"""The operations for which a front process calls the process that has the store."""
KNOWN_TO_CLIENTS = (
    "long-poll",
    "claim-tokens",
    "heartbeat",
    "release",
    "cancel",
    "headers",
    "unique-keys",
    "request-keys",
    "expiry",
    "attempts-history",
    "queue-config",
    "pause",
    "queue-stats",
    "paged-scan",
    "per-item-errors",
    "incomplete-counts",
    "run-jobs",
    "settings-in-force",
    "waiting-dequeues",
    "cluster",
    "explain",
    "queue-owners",
    "audit",
    "history",
    "failures",
    "bulk-runs",
    "workers",
    "incomplete-bulk-runs",
    "scan-of-shard",
)
"""What clients are told that this server can do (`ServerInfo.features`)."""
