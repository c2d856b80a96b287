"""The methods of a shard, by what the simulated store must know of each."""

from __future__ import annotations

import inspect

from pinlater.server.storage.interface import SharedShard

READS = frozenset(
    (
        "ping",
        "shard_time",
        "tell_time",
        "announce",
        "members",
        "owners",
        "list_queues",
        "find_requests",
        "find_unique",
        "list_unique_queues",
        "list_unique_keys",
        "timed_keys",
        "list_audit",
        "list_failures",
        "changed_queues",
        "snapshot",
        "peek_jobs",
        "lookup_jobs",
        "scan_jobs",
        "count_ahead",
        "count_jobs",
        "list_samples",
        "size",
    )
)
# They change something of which the other servers need not know.
UNTOLD = frozenset({"save_samples", "trim_samples"})
# `release_tokens` is a part of `time_out_claims`.
CHANGES = (
    frozenset(name for name, _ in inspect.getmembers(SharedShard, inspect.iscoroutinefunction))
    - READS
    - UNTOLD
    - {"open", "close"}
) | {"release_tokens"}
# Calls that have a connection of their own, as in MySQL's and Redis' stores; all others share one.
WRITERS = {"insert_jobs": "inserts", "claim_jobs": "claims", "release_tokens": "claims", "finish_jobs": "ends"}
# Of these the servers that wait elsewhere are told through the store; the first argument of each says which queues.
MAKES_READY = frozenset({"insert_jobs", "release_jobs", "finish_jobs", "checkpoint_jobs"})
