"""Makes the dump of a file of this program's schema: `python -m tests.sqlite.released.make`, before a migration is added.

All dumps hold the same jobs, so that one `expect` serves them all: later versions may add jobs, never take any away.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from pinlater.domain.job import Holder, JobState, UniqueKey, UniqueScope
from pinlater.domain.queue import QueueConfig
from pinlater.server.storage.commands import (
    CheckpointJobs,
    ClaimJobs,
    ConfigureQueue,
    CountJobs,
    FinishJobs,
    InsertJobs,
    ListQueues,
    LookupJobs,
    create_queues,
)
from pinlater.server.storage.options import Options
from pinlater.server.storage.sqlite import migration
from pinlater.server.storage.sqlite.shard import SqliteShard
from pinlater.server.storage.values import (
    ClaimCall,
    ClaimOrder,
    Inserted,
    InsertRequest,
    JobAck,
    JobCheckpoint,
    JobKey,
    NewJob,
)

NOW = 1_767_225_600_000
HOLDER = Holder("host:9010:0:worker:1", "worker", "token")
QUEUE_CONFIG = QueueConfig(claim_timeout_ms=5_000, max_jobs_per_second=2.5)

KEYS: dict[str, tuple[JobKey, JobState]] = {
    "succeeded": (JobKey("emails", 1, 1), JobState.SUCCEEDED),
    "failed": (JobKey("emails", 1, 2), JobState.FAILED),
    "retried": (JobKey("emails", 1, 3), JobState.PENDING),
    "in progress": (JobKey("emails", 1, 4), JobState.IN_PROGRESS),
    "waiting": (JobKey("emails", 2, 5), JobState.PENDING),
    "future": (JobKey("emails", 2, 6), JobState.PENDING),
    "other queue": (JobKey("images", 3, 7), JobState.PENDING),
}
_BODIES = {1: b"one", 2: b"two", 3: b"three", 4: b"four", 5: b"\x00\xff five", 6: b"six", 7: b""}


async def fill(shard: SqliteShard) -> None:
    """Jobs in every state, with everything that a job can have."""
    await shard.submit(create_queues(["emails", "images"], NOW))
    await shard.submit(ConfigureQueue("images", config=QUEUE_CONFIG, paused=True))
    plain = [NewJob(number, _BODIES[number], 1, NOW, 2) for number in range(1, 5)]
    unique = UniqueKey("order-5", UniqueScope.UNFINISHED)
    special = NewJob(5, _BODIES[5], 2, NOW, 3, Options("new;", {"trace": "ä"}, unique, 9_000, NOW + 86_400_000))
    future = NewJob(6, _BODIES[6], 2, NOW + 3_600_000, 1)
    await shard.submit(InsertJobs([InsertRequest("emails", [*plain, special, future], "request-1", b"print")], NOW))
    await shard.submit(InsertJobs([InsertRequest("images", [NewJob(7, b"", 3, NOW, 1)])], NOW))
    await shard.submit(ClaimJobs([ClaimOrder("emails", [ClaimCall(4, HOLDER)], 60_000)], NOW + 1))
    await shard.submit(
        CheckpointJobs([JobCheckpoint(KEYS["in progress"][0], "worker", new_body=b"four, halfway")], NOW + 2)
    )
    acks = [
        JobAck(KEYS["succeeded"][0], True),
        JobAck(KEYS["failed"][0], False, final=True, error_type="ValueError", error_text="no"),
        JobAck(KEYS["retried"][0], False, append_status="again;", retry_delay_ms=1_000, error_type="OSError"),
    ]
    await shard.submit(FinishJobs(acks, NOW + 3))


async def expect(shard: SqliteShard) -> None:
    """Everything is as `fill` left it, and still works."""
    keys = [key for key, _ in KEYS.values()]
    jobs = dict(zip(KEYS, await shard.submit(LookupJobs(keys, bodies=True)), strict=True))
    found = {name: job.state for name, job in jobs.items() if job}
    assert found == {name: state for name, (_, state) in KEYS.items()}
    bodies = {KEYS[name][0].id: job.body for name, job in jobs.items() if job}
    assert bodies == {**_BODIES, 4: b"four, halfway"}
    failed, retried, waiting = jobs["failed"], jobs["retried"], jobs["waiting"]
    assert failed
    assert retried
    assert waiting
    assert (failed.error_type, failed.error_text, failed.attempts_remaining) == ("ValueError", "no", 0)
    assert (retried.custom_status, retried.run_after_ms, len(retried.attempts or ())) == ("again;", NOW + 1_003, 1)
    assert (waiting.custom_status, waiting.headers, waiting.unique_key) == ("new;", {"trace": "ä"}, "order-5")
    await _expect_queues(shard)
    await _expect_keys(shard)


async def _expect_queues(shard: SqliteShard) -> None:
    [emails, images] = await shard.submit(ListQueues())
    assert (emails.name, emails.paused, images.name, images.paused) == ("emails", False, "images", True)
    assert images.config == QUEUE_CONFIG
    counts = {
        (queue, c.priority): (c.pending, c.in_progress, c.succeeded, c.failed)
        for queue, c in await shard.submit(CountJobs())
    }
    assert counts == {("emails", 1): (1, 1, 1, 1), ("emails", 2): (2, 0, 0, 0), ("images", 3): (1, 0, 0, 0)}
    [claimed] = await shard.submit(ClaimJobs([ClaimOrder("emails", [ClaimCall(10, HOLDER)], 60_000)], NOW + 2_000))
    assert [job.id for job in claimed.jobs[0]] == [3, 5]  # type: ignore[union-attr]


async def _expect_keys(shard: SqliteShard) -> None:
    """The unique key is still taken, and the request key still known."""
    duplicate = NewJob(8, b"twin", 1, NOW, 1, Options(unique=UniqueKey("order-5")))
    again = InsertRequest("emails", [NewJob(9, b"x", 1, NOW, 1)], "request-1", b"print")
    [inserted, repeated] = await shard.submit(InsertJobs([InsertRequest("emails", [duplicate]), again], NOW + 60_000))
    assert isinstance(inserted, Inserted)
    assert isinstance(repeated, Inserted)
    assert inserted.existing == {0: (5, 2)}
    assert (repeated.repeated, list(repeated.ids)) == (True, [1, 2, 3, 4, 5, 6])


async def _make(path: Path) -> None:
    shard = SqliteShard(path)
    await shard.open(NOW)
    await fill(shard)
    await shard.close()


def main() -> None:
    version = migration.newest_version()
    target = Path(__file__).parent / f"{version:04}.sql"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "jobs.db"
        asyncio.run(_make(path))
        with closing(sqlite3.connect(path)) as connection:
            [application_id] = connection.execute("PRAGMA application_id").fetchone()
            lines = [*connection.iterdump(), f"PRAGMA user_version = {version};"]
    target.write_text(f"PRAGMA application_id = {application_id};\n" + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
