"""Arguments and results of operations that a client does not see (the others are structs of the wire): plain values without Thrift or SQL.

The jobs of a dequeue are grouped by shard and claim, so that the server makes no object for each of them. A client gets them one by one,
by descriptor (`client.values.ClaimedJob`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pinlater.domain.workers import WorkerInfo
from pinlater.server.dispatch.claiming import FromShard
from pinlater.wire.generated.structs import AckResult, JobInfo


class Caller(NamedTuple):
    """The caller: the request context. `source` is what bare checkpoints compare, by equality.

    `process` identifies a worker's process among all that ever use the source, 0 if the request does not name it; `worker` is what the
    process reports about itself now and then.
    """

    source: str = ""
    process: int = 0
    worker: WorkerInfo | None = None


class DequeueResult(NamedTuple):
    """Jobs in the order to run them, by their claim, and the outcomes of the acks that rode along."""

    claimed: Sequence[FromShard]
    ack_results: Sequence[AckResult] = ()


class ScannedPage(NamedTuple):
    """The answer to a scan (`structs.Scanned`), and how many jobs it compared."""

    jobs: Sequence[JobInfo]
    continuation: str
    incomplete: bool
    looked: int
