"""Settings of sharding: time limits, when a shard counts as unreachable, and how it is tried again.

They hold for stores that other servers share (databases over a network). An embedded store is one disk without an alternative:
calls wait for it without a limit.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ShardingSettings:
    """The settings of shards. A name that ends in `_ms` is in milliseconds."""

    call_timeout_ms: int = 5_000
    """A request's call to a shard is given up after this long, and counts as a failure of the shard."""
    work_timeout_ms: int = 10_000
    """The same for what may take longer: sweeps, samples, scans, bulk operations, changes of queues."""
    slow_ms: int = 25
    """A shard whose claims have been under way for this long is asked last, and its dequeues look for jobs on other shards meanwhile."""
    stall_ms: int = 500
    """A shard whose call has been under way for this long gets no new enqueues or claims while others answer, and is probed."""
    failures_to_open: int = 6
    """This many failures among the last `window_calls` calls put a shard out of use; a time-out counts for three."""
    window_calls: int = 20
    """How many calls, the newest, decide whether a shard is in use."""
    window_ms: int = 10_000
    """Older failures don't count."""
    probe_interval_ms: int = 1_000
    """A shard out of use is tried again after this long, the first time; each failure doubles it."""
    probe_interval_max_ms: int = 5_000
    """The longest time between two tries."""
    probe_timeout_ms: int = 1_000
    """A probe that has no answer after this long has failed."""
    watch_interval_ms: int = 200
    """How often the server looks for calls that take too long and for probes that are due."""
    removal_grace_ms: int = 150_000
    """A shard taken out of the map goes once it is empty and has had no enqueue for this long: other servers may still know it, and
    request keys are kept for two minutes."""
    close_timeout_ms: int = 10_000
    """How long a shard that is closed may take to finish what is under way."""
