"""How many job slots queues want, as `/demand` and `/metrics` say it."""

from __future__ import annotations

import pytest

from pinlater.domain.queue import QueueConfig
from pinlater.server.storage.commands import CountJobs, ListSamples
from pinlater.wire.generated.structs import EnqueueRequest, Job
from tests.demand.conftest import Port, Ports
from tests.history.conftest import ack, claim, enqueue


async def run_jobs(ports: Ports, port: Port, run_ms: int, *, jobs: int = 4, queue: str = "q") -> None:
    """Jobs run for so long, and the minute goes into the history."""
    await enqueue(port.core, jobs, queue=queue)
    acks = await claim(port.core, jobs, queue=queue)
    ports.clock.advance(ms=run_ms)
    await ack(port.core, acks, queue=queue)
    await ports.minutes(3)


async def test_a_pool_of_queues_gets_the_slots_of_all_and_of_each(ports: Ports, port: Port) -> None:
    for queue, jobs in (("a", 8), ("b", 4), ("c", 0)):
        await port.core.service.queues.create_queue(queue)
        if jobs:
            await enqueue(port.core, jobs, queue=queue)
    await claim(port.core, 3, queue="a")
    await port.sample()
    assert await port.demand("a", "b") == {"slots": 12, "queues": {"a": 8, "b": 4}}
    assert await port.demand("b", "b", "c") == {"slots": 4, "queues": {"b": 4, "c": 0}}
    assert await port.gauges() == {"a": 8, "b": 4, "c": 0, "q": 0}


async def test_short_jobs_want_few_slots_and_long_ones_a_slot_each(ports: Ports, port: Port) -> None:
    await port.core.service.queues.create_queue("long")
    await run_jobs(ports, port, 20)
    await run_jobs(ports, port, 600_000, queue="long")
    for queue in ("q", "long"):
        await enqueue(port.core, 900, queue=queue)
    await port.sample()
    assert await port.demand("q", "long") == {"slots": 901, "queues": {"q": 1, "long": 900}}


@pytest.mark.parametrize("idle_minutes", [0, 14, 140, 60 * 24 * 7])
async def test_run_times_are_known_to_a_server_that_has_just_started(
    ports: Ports, port: Port, idle_minutes: int
) -> None:
    """And after a quiet week: else a weekly run of short jobs would want a slot for each."""
    await run_jobs(ports, port, 600)
    if idle_minutes > 1_000:
        await ports.minutes(200)  # in which minutes become ten minutes, and these hours
        ports.clock.advance(ms=(idle_minutes - 200) * 60_000)
    else:
        await ports.minutes(idle_minutes)
    await enqueue(port.core, 1_000)
    new = await ports.serve()
    for each in (port, new):
        await each.sample()
    slots = await port.slots()
    assert slots == pytest.approx(10, abs=1)
    assert await new.slots() == slots


async def test_a_server_says_nothing_before_it_has_counted_for_ten_seconds(ports: Ports, port: Port) -> None:
    """It could not tell jobs that workers have claimed ahead from those that they run."""
    await enqueue(port.core, 600)
    new = await ports.serve(samples=0)
    for _ in range(3):
        assert await new.get("/demand?queue=q") == (503, "Not known now: no queue is counted yet\n")
        assert await new.gauges() == {}
        await new.sample()
    assert await new.slots() == 600


async def test_all_servers_say_the_same_whichever_of_them_the_jobs_went_through(ports: Ports, port: Port) -> None:
    others = [await ports.serve() for _ in range(2)]
    await run_jobs(ports, port, 2_000)
    await run_jobs(ports, others[0], 2_000)
    await enqueue(others[1].core, 600)
    for each in (port, *others):
        await each.sample()
    assert len({await each.slots() for each in (port, *others)}) == 1


async def test_the_rate_of_enqueues_counts_beside_what_waits(ports: Ports, port: Port) -> None:
    await run_jobs(ports, port, 30_000)
    for _ in range(8):
        await enqueue(port.core, 60)
        await ports.minutes()
    await port.sample()
    from_rate, from_backlog = 60 / 60 * 30, 8 * 60 * 30 / 60
    assert await port.slots() == pytest.approx(from_rate + from_backlog, rel=0.1)


async def test_a_pause_leaves_the_slots_of_the_jobs_in_hand(port: Port) -> None:
    await enqueue(port.core, 10)
    await claim(port.core, 3)
    await port.core.service.queues.set_paused("q", True)
    await port.sample()
    assert await port.slots() == 3


async def test_a_rate_limit_bounds_the_slots_by_the_jobs_that_it_lets_run(ports: Ports, port: Port) -> None:
    await run_jobs(ports, port, 10_000)
    await enqueue(port.core, 5_000)
    await port.core.service.queues.configure_queue("q", QueueConfig(max_jobs_per_second=2))
    await port.sample()
    assert await port.slots() == pytest.approx(20, abs=2)


async def test_jobs_that_are_not_due_want_no_slot(ports: Ports, port: Port) -> None:
    due_ms = ports.clock.now_ms() + 3_600_000
    await port.core.service.enqueuing.enqueue(EnqueueRequest("q", [Job(b"x", run_after_ms=due_ms)] * 5))
    await port.sample()
    assert await port.slots() == 0


async def test_with_a_shard_away_the_answer_is_the_reason_and_no_number(ports: Ports) -> None:
    port = await ports.serve("1", "2")
    await port.core.service.queues.create_queue("q")
    await enqueue(port.core, 5)
    await port.sample()
    assert await port.slots() == 5
    ports.stores["2"].dead = "connection refused"
    await port.core.shard_monitor.ping_all()
    assert await port.get("/demand?queue=q") == (503, "Not known now: shard 2 is unreachable\n")
    assert await port.gauges() == {}
    ports.stores["2"].recover()
    ports.clock.advance(ms=60_000)
    await port.core.shard_monitor.ping_all()
    await port.sample(3)
    assert await port.slots() == 5


async def test_the_claims_of_a_shard_that_is_counted_for_the_first_time_are_not_taken_for_new_ones(
    ports: Ports,
) -> None:
    """The jobs in hand would seem to be replaced many times a second, and so to need few slots."""
    former = await ports.serve("1", "2", max_queues=0)
    await former.core.service.queues.create_queue("q")
    for _ in range(30):
        await enqueue(former.core, 100)
        await ack(former.core, await claim(former.core))
    await enqueue(former.core, 50)
    await claim(former.core, 20)
    away = ports.stores[former.core.shards.first_of("q").name]
    away.dead = "connection refused"
    new = await ports.serve("1", "2", max_queues=0)
    await new.sample(2)
    away.recover()
    ports.clock.advance(ms=60_000)
    await new.core.shard_monitor.ping_all()
    await new.core.service.queue_cache.refresh()
    answers = []
    for _ in range(5):
        await new.sample()
        answers.append(await new.get("/demand?queue=q"))
    assert [status for status, _ in answers] == [503, 503, 200, 200, 200]
    assert {text for status, text in answers if status == 200} == {'{"slots": 50, "queues": {"q": 50}}\n'}


@pytest.mark.parametrize("kind", [CountJobs, ListSamples])
async def test_while_a_shard_does_not_say_its_counts_or_run_times_there_is_no_number(
    ports: Ports, port: Port, kind: type
) -> None:
    """The last number counts for half a minute."""
    await enqueue(port.core, 5)
    await port.sample()
    assert await port.slots() == 5
    ports.clock.advance(ms=60_000)
    ports.stores["1"].fails(kind, times=100)
    with pytest.raises(Exception, match="the connection is gone"):
        await port.sample()
    status, _ = await port.get("/demand?queue=q")
    assert status == 503


async def test_without_a_history_each_job_wants_a_slot_unless_workers_take_many_a_second(ports: Ports) -> None:
    port = await ports.serve(max_queues=0)
    await port.core.service.queues.create_queue("q")
    await enqueue(port.core, 500)
    acks = await claim(port.core, 20)
    await port.sample()
    assert await port.slots() == 500
    await ack(port.core, acks)
    for _ in range(3):
        await ack(port.core, await claim(port.core, 100))
    await claim(port.core, 5)
    await port.sample()
    assert await port.slots() < 10


async def test_run_times_of_a_former_queue_of_the_name_do_not_count(ports: Ports, port: Port) -> None:
    await run_jobs(ports, port, 20)
    await port.core.service.queues.delete_queue("q", None)
    await port.core.service.queues.create_queue("q")
    await enqueue(port.core, 50)
    await port.sample()
    assert await port.slots() == 50


async def test_a_question_asks_no_shard_and_run_times_are_read_once_a_minute_while_jobs_wait(
    ports: Ports, port: Port
) -> None:
    store = ports.stores["1"]
    await run_jobs(ports, port, 1_000)
    before = store.calls[ListSamples]
    for _ in range(12):
        await port.sample()
    assert store.calls[ListSamples] == before
    await enqueue(port.core, 5)
    for _ in range(12):
        await port.sample()
    assert store.calls[ListSamples] - before in (1, 2)
    calls = store.calls.total()
    for _ in range(20):
        await port.demand("q")
        await port.gauges()
    assert store.calls.total() == calls
