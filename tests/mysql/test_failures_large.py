"""max_allowed_packet: what doesn't fit into one packet goes in several; one job that fits into none is refused, and harms no other."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from pinlater.domain.errors import PinLaterError
from pinlater.domain.job import Outcome, UniqueScope
from pinlater.server.operations.job_settings import JobSettings
from pinlater.server.storage.commands import CheckpointJobs, FinishJobs, InsertJobs
from pinlater.server.storage.values import Acked, Inserted, InsertRequest, JobAck, JobCheckpoint
from tests.contract.desk import Desk, unique
from tests.mysql.proxied_mysql import ProxiedMysql
from tests.shared_shards.proxied_database import QUEUE

PACKET = 1 << 20
QUOTE = b"'"  # is sent as two bytes


@pytest.fixture
async def desk(killable: ProxiedMysql) -> AsyncIterator[Desk]:
    """On a server that takes packets of a megabyte."""
    [[before]] = await killable.server.execute("SELECT @@global.max_allowed_packet")
    await killable.server.execute(f"SET GLOBAL max_allowed_packet = {PACKET}")
    yield await killable.desk(direct=True)
    await killable.server.execute(f"SET GLOBAL max_allowed_packet = {before}")


async def test_a_request_longer_than_a_packet_is_stored_whole(killable: ProxiedMysql, desk: Desk) -> None:
    bodies = [bytes([number]) * 150_000 for number in range(20)]
    stored = await desk.insert(*[desk.job(body) for body in bodies])
    assert len(stored.ids) == len(bodies)
    held = await desk.claim(100)
    assert [one.job.body for one in held] == bodies
    acks = [
        JobAck(one.key, False, one.holder.token, "s" * 5_000, error_type="E", error_text="t" * 50_000) for one in held
    ]
    assert {one.outcome for one in await desk.shard.submit(FinishJobs(acks, desk.now))} == {Outcome.APPLIED}
    await killable.assert_consistent()


async def test_the_keys_of_a_request_are_longer_than_a_packet_together(killable: ProxiedMysql, desk: Desk) -> None:
    """As many jobs as a request may have, with the longest keys; each is found when it comes again, or has outlived its time."""
    keys = [f"{number:06d}".ljust(256, "'") for number in range(JobSettings().max_jobs_per_request)]

    async def insert() -> Inserted:
        return await desk.insert(*[desk.job(unique=unique(key, UniqueScope.TIME, 1_000)) for key in keys])

    first, again = await insert(), await insert()
    assert (len(again.existing), list(again.ids)) == (len(keys), list(first.ids))
    desk.clock.advance(ms=1_001)
    assert (await insert()).existing == {}
    await killable.assert_consistent()


async def test_the_longest_body_that_the_shard_declares_always_fits(killable: ProxiedMysql, desk: Desk) -> None:
    most = desk.shard.capabilities.body_bytes_max
    assert PACKET // 3 < most < PACKET // 2
    await desk.put(QUOTE * most)
    held = await desk.take()
    assert held.job.body == QUOTE * most
    saved = await desk.checkpoint(
        JobCheckpoint(held.key, "worker", held.holder.token, b"\\" * most, move_to_pending=True)
    )
    assert saved.outcome is Outcome.APPLIED
    assert (await desk.take()).job.body == b"\\" * most
    await killable.assert_consistent()


async def test_a_longer_one_fits_where_few_bytes_must_be_escaped(killable: ProxiedMysql, desk: Desk) -> None:
    body = b"x" * (PACKET - 4_000)
    await desk.put(body)
    assert (await desk.take()).job.body == body


@pytest.mark.parametrize("body", [b"x" * PACKET, QUOTE * (PACKET // 2)], ids=["long", "escaped"])
async def test_a_body_that_fits_into_no_packet_is_refused_and_harms_no_other(
    killable: ProxiedMysql, desk: Desk, body: bytes
) -> None:
    requests = [InsertRequest(QUEUE, [desk.job(b"before")]), InsertRequest(QUEUE, [desk.job(), desk.job(body)])]
    requests.append(InsertRequest(QUEUE, [desk.job(b"after")]))
    before, refused, after = await desk.shard.submit(InsertJobs(requests, desk.now))
    assert isinstance(before, Inserted)
    assert isinstance(after, Inserted)
    assert isinstance(refused, PinLaterError)
    assert (refused.detail, refused.retryable) == ("BODY_TOO_LARGE", False)
    assert "max_allowed_packet" in refused.message
    assert "Job 1 " in refused.message
    assert [held.job.body for held in await desk.claim(10)] == [b"before", b"after"]
    await killable.assert_consistent()


async def test_the_same_holds_for_checkpoints(killable: ProxiedMysql, desk: Desk) -> None:
    one, other = await desk.put_and_take(), await desk.put_and_take()
    saved, refused = await desk.shard.submit(
        CheckpointJobs(
            [
                JobCheckpoint(one.key, "worker", one.holder.token, b"new"),
                JobCheckpoint(other.key, "worker", other.holder.token, b"x" * PACKET),
            ],
            desk.now,
        )
    )
    assert isinstance(saved, Acked)
    assert saved.outcome is Outcome.APPLIED
    assert isinstance(refused, PinLaterError)
    assert "max_allowed_packet" in refused.message
    await killable.assert_consistent()
