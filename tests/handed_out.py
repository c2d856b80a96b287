"""The jobs of a dequeue one by one, each with the descriptor and token by which its worker names it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pinlater.domain.job import HandedOutJob
from pinlater.server.dispatch.claiming import FromShard
from pinlater.server.operations.values import DequeueResult
from pinlater.wire.generated.structs import AckResult


class HandedOut(NamedTuple):
    descriptor: str
    token: str
    job: HandedOutJob


class DequeuedJobs(NamedTuple):
    """A dequeue's answer. `claimed`: as the operation gives it."""

    jobs: list[HandedOut]
    ack_results: Sequence[AckResult]
    claimed: Sequence[FromShard]


def answer_of(queue: str, dequeued: DequeueResult) -> DequeuedJobs:
    jobs = [
        HandedOut(f"{queue}:s{part.shard}:p{job.priority}:{job.id}", part.token, job)
        for part in dequeued.claimed
        for job in part.jobs
    ]
    return DequeuedJobs(jobs, dequeued.ack_results, dequeued.claimed)
