"""Defects that tests plant into the store, for the simulator to find."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pinlater.domain.job import JobState, Outcome
from pinlater.server.storage.commands import FinishJobs, LookupJobs
from pinlater.server.storage.sqlite.memory import MemoryShard
from pinlater.server.storage.values import Acked, JobAck
from tests.commands import everywhere


def forget_successes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes each shard answer some first successes without storing them."""
    plain = MemoryShard.table[FinishJobs]

    async def finish(shard: MemoryShard, acks: Sequence[JobAck], now_ms: int) -> Sequence[Acked]:
        found = await shard.submit(LookupJobs([ack.key for ack in acks], bodies=False))
        answers = []
        for ack, job in zip(acks, found, strict=True):
            held_first = job is not None and job.state is JobState.IN_PROGRESS and not job.attempts
            if ack.key.id % 5 == 0 and held_first and ack.succeeded:
                answers.append(Acked(Outcome.APPLIED, JobState.IN_PROGRESS))
            else:
                answers += await plain(shard, [ack], now_ms)
        return answers

    everywhere(monkeypatch, MemoryShard, FinishJobs, finish)
