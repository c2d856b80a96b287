"""Why a job waits, on several shards of which some are unreachable."""

from __future__ import annotations

from pinlater.server.features.explain.explain import Explain
from pinlater.wire.generated.structs import JobsAhead
from tests.sharding.sharded_server import ShardedServer, on_shards


@on_shards(shards=("1", "2"))
async def test_the_jobs_of_all_shards_come_before(server: ShardedServer) -> None:
    for name in ("1", "2", "2"):
        await server.put(name)
    server.clock.advance(ms=1)
    last = await server.put("1")

    assert (await server.service.of(Explain).explain("q", last)).jobs_ahead == JobsAhead(3, False, False)


@on_shards(shards=("1", "2"))
async def test_a_job_on_an_unreachable_shard_is_not_known_and_others_are_counted_without_it(
    server: ShardedServer,
) -> None:
    first, away, mine = await server.put("1"), await server.put("2"), await server.put("1")
    server.store("2").dead = "gone"
    await server.pass_time(3_000)

    found = await server.service.of(Explain).explain("q", away)
    assert (found.job, found.shard.in_reach, found.jobs_ahead) == (None, False, None)
    counted = (await server.service.of(Explain).explain("q", mine)).jobs_ahead
    assert (counted, first) == (JobsAhead(1, False, True), first)


@on_shards(shards=("1", "2"))
async def test_a_shard_that_fails_at_that_moment_is_unreachable(server: ShardedServer) -> None:
    mine = await server.put("1")
    server.store("1").dead = "gone"

    found = await server.service.of(Explain).explain("q", mine)

    assert (found.job, found.shard.in_reach) == (None, False)
