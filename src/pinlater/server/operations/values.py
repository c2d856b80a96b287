"""What goes into the operations and what comes out, if a client does not see the same (`domain.calls`): plain values that know neither
Thrift nor SQL.

A dequeue's jobs are still together by shard and claim here, a scan's jobs are what the store knows of them, and a queue's counts keep
the name of their queue. The client has values of its own for these answers (`client.values`), which it makes from what the wire says,
an original server's gaps included.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pinlater.domain.calls import AckBatch, AckResult
from pinlater.domain.job import JobState, StoredJob
from pinlater.domain.queue import QueueCounts, Rates
from pinlater.server.dispatch.claiming import FromShard


class Caller(NamedTuple):
    """The caller: the request context. `source` is what bare checkpoints compare, by equality."""

    source: str = ""
    request_id: str = ""


class DequeueCommand(NamedTuple):
    """A dequeue: acks that ride first, then a claim of up to `limit` jobs, waiting for them up to `wait_ms`."""

    queue: str
    limit: int
    acks: AckBatch | None = None
    dry_run: bool = False
    coverage: float = 1.0
    wait_ms: int = 0


class DequeueResult(NamedTuple):
    """Jobs in the order to run them, by the claim that gave them, and the outcomes of the acks that rode along."""

    claimed: Sequence[FromShard]
    ack_results: Sequence[AckResult] = ()


class JobFilter(NamedTuple):
    """Which jobs a count or a scan looks at. `future`: PENDING jobs that are not due yet, and only they; no job of another state."""

    queue: str
    state: JobState
    priority: int | None = None
    future: bool = False
    body_regex: str | None = None


class ScanCommand(NamedTuple):
    """A scan. `paged` asks for a continuation that goes on where this one stopped."""

    filter: JobFilter
    limit: int = 100
    continuation: str = "0"
    paged: bool = False
    bodies: bool = False


class ScanResult(NamedTuple):
    """Jobs, newest first, each with its descriptor. `incomplete`: a shard or a time budget cut it short."""

    jobs: Sequence[tuple[str, StoredJob]]
    continuation: str = "-1"
    incomplete: bool = False


class QueueStatsResult(NamedTuple):
    """What an operator asks of a queue. `oldest_waiting_ms`: age of the job that has been due longest, or None."""

    queue: str
    paused: bool
    counts: Sequence[QueueCounts]
    oldest_waiting_ms: int | None
    rates: Rates
    waiting_dequeues: int
    incomplete: bool = False
