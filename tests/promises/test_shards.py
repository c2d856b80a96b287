"""What the contract says of several shards, on memory shards in this process: spreading, coverage, homes of keys, unreachable shards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from pinlater.domain.rendezvous import covered
from pinlater.server.operations.job_settings import JobSettings
from pinlater.server.storage.commands import CountJobs, ListQueues
from tests.promises.conftest import PASSWORD
from tests.promises.running_server import RunningServer
from tests.promises.test_queues import refused
from tests.promises.wire import SUCCEEDED, Wire, ack_request, ttypes
from tests.quick_hash import quick_hash

Start = Callable[..., Awaitable[RunningServer]]


async def three(start: Start, partitions: int | None = 3, **more: object) -> tuple[RunningServer, Wire]:
    """Three shards, and a queue with this number of partitions; None leaves it to the server."""
    running = await start(3, **more)
    wire = await running.connect()
    await wire.create("q")
    if partitions is not None:
        await wire.configure("q", partitions=partitions)
    return running, wire


def shard_of(descriptor: str) -> str:
    return descriptor.split(":")[1]


async def on_each_shard(wire: Wire) -> dict[str, str]:
    """A job on each shard: descriptor by shard."""
    found: dict[str, str] = {}
    while len(found) < 3:
        [descriptor] = await wire.enqueue("q", b"x")
        found.setdefault(shard_of(descriptor), descriptor)
    return found


async def test_a_queue_is_made_on_every_shard_and_its_jobs_go_to_one(start: Start) -> None:
    running, wire = await three(start, partitions=None)
    found = {shard_of((await wire.enqueue("q", b"x", uniqueKey=key))[0]) for key in (None, *map(str, range(30)))}
    assert len(found) == 1
    for shard in running.core.shards:
        assert [queue.name for queue in await shard.store.submit(ListQueues())] == ["q"]


async def test_jobs_of_a_queue_with_several_partitions_spread_over_shards_that_take_enqueues(start: Start) -> None:
    _, wire = await three(start, partitions=2, draining=("2",))
    assert {shard_of((await wire.enqueue("q", b"x"))[0]) for _ in range(60)} == {"s1", "s3"}


async def test_statistics_tell_the_jobs_of_a_queue_on_shards_that_are_not_its_partitions(start: Start) -> None:
    _, wire = await three(start)
    found = Counter([shard_of((await wire.enqueue("q", b"x"))[0])[1:] for _ in range(60)])
    [stats] = await wire.call("getQueueStats", queueNames=["q"])
    assert (sorted(stats.partitions), stats.strays) == (["1", "2", "3"], {})
    await wire.configure("q", partitions=1)
    [stats] = await wire.call("getQueueStats", queueNames=["q"])
    [partition] = stats.partitions
    assert stats.strays == {shard: jobs for shard, jobs in found.items() if shard != partition}
    claimed = await wire.claim("q", 60)
    await wire.ack("q", *[descriptor for descriptor, _ in claimed])
    [stats] = await wire.call("getQueueStats", queueNames=["q"])
    assert stats.strays == {}


async def test_a_server_that_has_its_shards_for_itself_owns_every_slice(start: Start) -> None:
    _, wire = await three(start)
    status = await wire.call("getCluster")
    [server] = status.servers
    assert (server.address, server.answers, server.heard) == (status.address, True, True)
    assert server.slots.keys() == {"1", "2", "3"}
    assert [(shard.name, shard.inReach, shard.ownersVersion) for shard in status.shards] == [
        ("1", True, 0),
        ("2", True, 0),
        ("3", True, 0),
    ]
    assert {(*shard.owners,) for shard in status.shards} == {(0,) * 16}
    assert (status.forwarded, status.moves, status.answersLost, status.incomplete) == ([], 0, 0, None)
    owners = await wire.call("getQueueOwners")
    assert (owners.servers, owners.shards) == ([], [])
    assert (await wire.call("getServerInfo")).serverId is None


async def test_with_every_shard_dequeue_only_enqueues_are_rejected_and_dequeues_go_on(start: Start) -> None:
    running, wire = await three(start)
    await on_each_shard(wire)
    for shard in running.core.shards:
        running.core.shards.change_enqueues(shard, takes=False)
    error = await refused(wire.enqueue("q", b"x"))
    assert error.code == 430
    assert len(await wire.claim("q", 1_000)) >= 3


async def test_a_dequeue_looks_at_its_share_of_the_shards_rounded_half_up_and_at_least_one(start: Start) -> None:
    running, wire = await three(start)
    for coverage, most in ((0.0, 1), (-3.0, 1), (0.1, 1), (0.5, 2), (0.83, 2), (0.84, 3), (1.0, 3), (9.0, 3)):
        await on_each_shard(wire)
        claimed = await wire.claim("q", 1_000, coverage=coverage)
        assert len({shard_of(descriptor) for descriptor, _ in claimed}) == most, coverage
        assert covered(coverage, len(running.core.shards)) == most
        await wire.claim("q", 1_000)


async def test_all_jobs_of_one_call_share_one_claim_descriptor_across_shards(start: Start) -> None:
    _, wire = await three(start)
    jobs = await on_each_shard(wire)
    await wire.claim("q", 1_000)
    assert len({info.claimDescriptor for info in (await wire.lookup(*jobs.values())).values()}) == 1


async def test_unique_keys_of_a_queue_have_one_home_and_the_request_is_stored_in_order(start: Start) -> None:
    _, wire = await three(start)
    jobs = [ttypes.PinLaterJob(body=b"%d" % n, uniqueKey=f"k{n % 20}") for n in range(40)]
    answer = await wire.enqueue_jobs("q", jobs)
    assert answer.jobDescriptors[:20] == answer.jobDescriptors[20:]
    assert answer.existing == list(range(20, 40))
    assert len({shard_of(each) for each in answer.jobDescriptors}) == 1
    again = await wire.enqueue_jobs("q", jobs[:20])
    assert again.jobDescriptors == answer.jobDescriptors[:20]
    found = await wire.lookup(*answer.jobDescriptors[:20], body=True)
    assert [found[each].body for each in answer.jobDescriptors[:20]] == [job.body for job in jobs[:20]]


async def test_all_jobs_of_a_keyed_request_go_to_one_shard_and_a_resend_finds_them(start: Start) -> None:
    _, wire = await three(start)
    homes = set()
    for number in range(20):
        jobs = [ttypes.PinLaterJob(body=b"x") for _ in range(5)]
        first = await wire.enqueue_jobs("q", jobs, requestKey=f"r{number}")
        assert len({shard_of(each) for each in first.jobDescriptors}) == 1
        assert await wire.enqueue_jobs("q", jobs, requestKey=f"r{number}", repeated=True) == first
        homes.add(shard_of(first.jobDescriptors[0]))
    assert len(homes) == 3
    assert await wire.count("q") == 100


async def test_a_lookup_or_ack_on_an_unreachable_shard_fails_and_other_acks_stay_done(start: Start) -> None:
    running, wire = await three(start)
    jobs = await on_each_shard(wire)
    await wire.claim("q", 1_000)
    running.shard("3").healthy = False
    order = [jobs["s1"], jobs["s2"], jobs["s3"]]
    for call in (
        wire.lookup(*order),
        wire.ack("q", *order),
        wire.call("ackDequeuedJobs", request=ack_request("q", *order)),
    ):
        error = await refused(call)
        assert (error.code, error.detail, error.retryable) == (502, "SHARD_UNREACHABLE", True)
    for name in ("s1", "s2"):
        assert await wire.state(jobs[name]) == SUCCEEDED
    running.shard("3").healthy = True
    await wire.ack("q", *order)  # repeating is safe
    assert await wire.state(jobs["s3"]) == SUCCEEDED


async def test_an_unreachable_shard_fails_no_dequeue_and_no_enqueue(start: Start) -> None:
    """In the original a dead Redis shard failed dequeues."""
    running, wire = await three(start)
    await on_each_shard(wire)
    running.shard("2").healthy = False
    claimed = {shard_of(descriptor) for descriptor, _ in await wire.claim("q", 1_000)}
    assert claimed == {"s1", "s3"}
    assert "s2" not in {shard_of((await wire.enqueue("q", b"x"))[0]) for _ in range(30)}


@pytest.mark.parametrize("regex", [None, "x"])
async def test_counts_scans_and_deletes_answer_for_the_shards_in_reach_logged_and_counted(
    start: Start, regex: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING")
    running, wire = await three(start)
    await on_each_shard(wire)
    everything = await wire.count("q")
    hidden = running.shard("2")
    lost = sum(row.counts.pending for row in await hidden.store.submit(CountJobs(["q"])))
    hidden.healthy = False
    assert await wire.count("q", bodyRegexToMatch=regex) == everything - lost
    assert "unreachable" in caplog.text
    counted = await wire.call("countJobs", request=ttypes.PinLaterGetJobCountRequest("q", 0, bodyRegexToMatch=regex))
    assert (counted.jobs, counted.incomplete) == (everything - lost, True)
    [stats] = await wire.call("getQueueStats", queueNames=["q"])
    assert (sum(row.pending for row in stats.counts), stats.incomplete) == (everything - lost, True)
    scanned = await wire.scan("q", bodyRegexToMatch=regex, limit=1_000)
    assert len(scanned.scannedJobs) == everything - lost
    assert scanned.incomplete
    request = ttypes.PinLaterDeleteJobsRequest("q", 0, bodyRegexToMatch=regex)
    assert await wire.call("deleteJobs", request=request) == everything - lost
    assert running.core.metrics.snapshot().counters["shards_left_out"] >= 3
    hidden.healthy = True
    assert await wire.count("q") == lost
    counted = await wire.call("countJobs", request=ttypes.PinLaterGetJobCountRequest("q", 0, bodyRegexToMatch=regex))
    assert (counted.jobs, counted.incomplete) == (lost, None)
    [stats] = await wire.call("getQueueStats", queueNames=["q"])
    assert stats.incomplete is None


async def test_a_scan_merges_the_shards_newest_first(start: Start) -> None:
    running, wire = await three(start)
    for _ in range(30):
        running.clock.advance(ms=1)
        await wire.enqueue("q", b"x")
    times = [job.runAfterTimestampMillis for job in (await wire.scan("q")).scannedJobs]
    assert times == sorted(times, reverse=True)
    assert len(times) == 30


async def test_a_queue_limit_holds_for_all_shards_together(start: Start) -> None:
    running, wire = await three(start)
    await wire.configure("q", maxJobsPerSecond=5.0, partitions=3)
    for _ in range(60):
        await wire.enqueue("q", b"x")
    assert len(await wire.claim("q", 5)) == 5
    await refused(wire.dequeue("q"))
    running.clock.advance(seconds=1)
    assert len(await wire.claim("q", 5)) == 5


async def test_a_request_with_unique_keys_is_stored_on_the_first_shard_of_its_queue_or_not_at_all(start: Start) -> None:
    running, wire = await three(start)
    home = running.core.shards.home_of("q", "").name
    running.shard(home).healthy = False
    jobs = [ttypes.PinLaterJob(body=b"x", uniqueKey=key) for key in ("a", "b", None)]
    error = await refused(wire.enqueue_jobs("q", jobs))
    assert (error.code, error.retryable) == (502, True)
    assert f"only shard {home} takes jobs with the unique key 'a'" in error.message
    assert await wire.count("q") == 0
    running.shard(home).healthy = True
    answer = await wire.enqueue_jobs("q", jobs)
    assert {shard_of(each) for each in answer.jobDescriptors} == {f"s{home}"}


async def test_where_riding_acks_fail_nothing_is_claimed_and_the_error_says_so(start: Start) -> None:
    running, wire = await three(start)
    jobs = await on_each_shard(wire)
    await wire.claim("q", 1_000)
    await wire.enqueue("q", *[b"y"] * 3)
    running.shard("3").healthy = False
    before = await wire.count("q")
    error = await refused(wire.dequeue("q", jobAckRequest=ack_request("q", jobs["s1"], jobs["s3"])))
    assert (error.code, error.detail) == (502, "SHARD_UNREACHABLE")
    assert "nothing was claimed" in error.message
    assert await wire.count("q") == before
    assert await wire.state(jobs["s1"]) == SUCCEEDED


async def test_a_deleted_queue_is_gone_from_every_shard(start: Start) -> None:
    running, wire = await three(start, admin_password_hash=quick_hash(PASSWORD))
    await on_each_shard(wire)
    await wire.call("deleteQueue", name="q", password=PASSWORD)
    for shard in running.core.shards:
        assert await shard.store.submit(ListQueues()) == []


async def test_with_a_regex_the_count_is_capped_per_shard_and_priority(start: Start) -> None:
    """Without one it is exact."""
    running, wire = await three(start, jobs=JobSettings(regex_rows_max=5))
    for priority in (1, 2):
        for _ in range(3):
            await wire.enqueue("q", *[b"x"] * 40, priority=priority)
    shares = {priority: [0, 0, 0] for priority in (1, 2)}
    for number, shard in enumerate(running.core.shards):
        for _, counts in await shard.store.submit(CountJobs(["q"])):
            if counts.pending:
                shares[counts.priority][number] = counts.pending
    expected = sum(min(5, pending) for pendings in shares.values() for pending in pendings)
    assert await wire.count("q", bodyRegexToMatch="x") == expected
    assert await wire.count("q", bodyRegexToMatch="x", priority=1) == sum(min(5, n) for n in shares[1])
    assert await wire.count("q") == 240


async def test_configuration_and_pauses_reach_every_shard(start: Start) -> None:
    running, wire = await three(start)
    await wire.configure("q", claimTimeoutMillis=5)
    await wire.call("pauseQueue", queueName="q")
    for shard in running.core.shards:
        [queue] = await shard.store.submit(ListQueues())
        assert (queue.config.claim_timeout_ms, queue.paused) == (5, True)
