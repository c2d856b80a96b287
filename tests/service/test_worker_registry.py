"""What a server knows of workers: in bounded memory, by a clock that the test turns."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from pinlater.domain.workers import LostClaim, ServerWorkers, WorkerInfo, WorkerQueue, WorkerStatus
from pinlater.server.features.all import METHODS
from pinlater.server.features.status.status import Status
from pinlater.server.features.workers.registry import (
    KEPT_S,
    QUEUES_MAX,
    TEXT_CHARS_MAX,
    WORKERS_MAX,
    HourCount,
    WorkerRegistry,
)
from pinlater.server.features.workers.workers import Workers
from pinlater.server.operations.values import Caller
from pinlater.wire.codec import encode_reply
from pinlater.wire.generated.structs import (
    Ack,
    AckBatch,
    Claim,
    ClaimsRequest,
    ClusterServer,
    ClusterStatus,
    DequeueRequest,
)
from pinlater.wire.limits import FRAME_BYTES_MAX
from pinlater.wire.methods import METHODS_BY_NAME
from tests.service.conftest import ServiceUnderTest

INFO = WorkerInfo("python", "1.0", "host", 17, 16, 3, 1)
NEW = Caller("w", process=7, worker=INFO)


class Turned:
    """A registry and its clock, in seconds."""

    def __init__(self) -> None:
        self.now_s = 1_000_000.0
        self.registry = WorkerRegistry(lambda: self.now_s)

    @property
    def known(self) -> Sequence[WorkerStatus]:
        return self.registry.shown(self.registry.known())

    @property
    def only(self) -> WorkerStatus:
        [status] = self.known
        return status


@pytest.fixture
def turned() -> Turned:
    return Turned()


# --- counts of an hour ----------------------------------------------------------------------------------------------------


def test_a_count_is_of_the_last_hour() -> None:
    count = HourCount()
    for minute in range(120):
        count.add(1, 60.0 * minute)
    assert count.total(60.0 * 119) == 60
    assert count.total(60.0 * 119, spans=2) == 10
    assert count.total(60.0 * 180) == 0
    assert count.total(60.0 * 119, spans=24) == 60, "what is older takes no memory"


# --- one process ----------------------------------------------------------------------------------------------------------


def test_a_process_is_known_with_what_it_said_and_when_it_was_heard(turned: Turned) -> None:
    asking = turned.registry.asked(NEW, "q")
    turned.now_s += 4
    turned.registry.handed_out(asking, 3, 30_000)
    turned.now_s += 2
    assert turned.only == WorkerStatus("w", 7, 2_000, [WorkerQueue("q", 6_000, 3)], 30_000, INFO, 6_000)


def test_a_heartbeat_is_heard_although_it_asks_for_nothing(turned: Turned) -> None:
    turned.registry.renewed(NEW, "q")
    assert turned.only == WorkerStatus("w", 7, 0, [WorkerQueue("q")], None, INFO, 0)


def test_a_worker_that_is_started_again_begins_at_0(turned: Turned) -> None:
    turned.registry.handed_out(turned.registry.asked(NEW, "q"), 3, 30_000)
    turned.now_s += 60
    turned.registry.asked(NEW._replace(process=8, worker=INFO._replace(running=0)), "q")
    new, old = turned.known
    assert (new.process, new.queues, new.claim_ms) == (8, [WorkerQueue("q", 0)], None)
    assert (old.process, old.heard_ms, old.queues[0].handed_out) == (7, 60_000, 3)


def test_a_client_without_a_number_is_known_by_its_source(turned: Turned) -> None:
    turned.registry.asked(Caller("old"), "q")
    assert turned.only == WorkerStatus("old", 0, 0, [WorkerQueue("q", 0)])
    turned.now_s += 5
    turned.registry.reported(Caller("old"))
    assert turned.only.heard_ms == 0


def test_a_request_without_a_number_is_none_of_a_named_process(turned: Turned) -> None:
    """An ack names no process: it may be of any that share the source."""
    turned.registry.asked(NEW, "q")
    turned.now_s += 5
    turned.registry.reported(Caller("w"))
    assert [(status.process, status.heard_ms) for status in turned.known] == [(7, 5_000)]


def test_what_a_caller_says_without_a_number_is_not_kept(turned: Turned) -> None:
    turned.registry.asked(Caller("old", worker=INFO), "q")
    assert turned.only.info is None


# --- lost claims ----------------------------------------------------------------------------------------------------------


def test_lost_claims_are_counted_for_the_source_and_make_no_process(turned: Turned) -> None:
    turned.registry.timed_out("q", {"q:s1:p1:1": "w", "q:s1:p1:2": "x"})
    turned.now_s += 1
    turned.registry.timed_out("q", {"q:s1:p1:3": "w"})
    turned.registry.late(NEW, "q", 4)
    counted = {status.source: status for status in turned.known}
    lost = [LostClaim("q", "q:s1:p1:3", 0), LostClaim("q", "q:s1:p1:1", 1_000)]
    assert counted["w"] == WorkerStatus("w", 0, None, [WorkerQueue("q", None, 0, 2, 4, 2, 4, 1)], lost=lost)
    lost = [LostClaim("q", "q:s1:p1:2", 1_000)]
    assert counted["x"] == WorkerStatus("x", 0, None, [WorkerQueue("q", None, 0, 1, 0, 1, 0, 1)], lost=lost)


def test_the_newest_lost_claims_of_a_source_are_kept_and_all_are_counted(turned: Turned) -> None:
    turned.registry.timed_out("q", {f"q:s1:p1:{number}": "w" for number in range(1_000)})
    assert turned.only.queues[0].timed_out == 1_000
    assert [claim.descriptor for claim in turned.only.lost] == [f"q:s1:p1:{number}" for number in range(999, 994, -1)]


def test_a_lost_claim_is_recent_for_ten_minutes(turned: Turned) -> None:
    turned.registry.timed_out("q", {"q:s1:p1:1": "w", "q:s1:p1:2": "w"})
    turned.now_s += 600
    [queue] = turned.only.queues
    assert (queue.timed_out, queue.timed_out_lately) == (2, 0)


def test_claims_that_time_out_within_a_minute_count_as_one_time(turned: Turned) -> None:
    times = []
    for _ in range(150):  # of one second: they begin a minute anew after 60 and 120
        turned.registry.timed_out("q", {"q:s1:p1:1": "w", "q:s1:p1:2": "w"})
        times.append(turned.only.queues[0].timed_out_times)
        turned.now_s += 1
    assert times == [1] * 60 + [2] * 60 + [3] * 30
    turned.registry.timed_out("r", {"r:s1:p1:1": "w"})
    assert [queue.timed_out_times for queue in turned.only.queues] == [1, 3]
    turned.now_s += 600
    turned.registry.asked(Caller("w"), "q")
    assert (turned.only.queues[0].timed_out_lately, turned.only.queues[0].timed_out_times) == (0, 3)


# --- bounds ---------------------------------------------------------------------------------------------------------------


def test_an_entry_ends_after_a_quarter_of_an_hour_without_a_request(turned: Turned) -> None:
    turned.registry.asked(NEW, "q")
    turned.now_s += KEPT_S
    assert len(turned.known) == 1
    turned.now_s += 1
    assert turned.known == []
    assert len(turned.registry) == 0
    assert turned.registry.forgotten == 0


def test_a_process_that_is_heard_again_after_that_begins_at_0(turned: Turned) -> None:
    """Nothing asked for the list meanwhile: the server stood still, or the worker did."""
    turned.registry.handed_out(turned.registry.asked(NEW, "q"), 3, 30_000)
    turned.now_s += KEPT_S + 1
    turned.registry.asked(NEW, "q")
    assert turned.only.queues == [WorkerQueue("q", 0)]


def test_50_000_sources_take_bounded_memory_and_push_out_the_longest_unheard(turned: Turned) -> None:
    turned.registry.asked(NEW, "q")
    for number in range(50_000):
        turned.registry.asked(Caller(f"hostile {number} {'x' * 1_000}", process=number), f"q{number % 100}")
        if number % 1_000 == 0:
            turned.now_s += 1
            turned.registry.asked(NEW, "q")
    known = turned.known
    assert len(known) == len(turned.registry) == WORKERS_MAX
    assert sum(status.source == "w" for status in known) == 1
    assert max(len(status.source) for status in known) <= 200
    assert turned.registry.forgotten == 50_001 - WORKERS_MAX
    turned.now_s += 3_600
    assert turned.registry.forgotten == 0


def test_an_entry_keeps_the_queues_that_it_asked_for_last(turned: Turned) -> None:
    for number in range(100):
        turned.registry.asked(NEW, f"q{number}")
        turned.registry.asked(NEW, "q0")
    queues = [queue.queue for queue in turned.only.queues]
    assert (len(queues), queues[:2]) == (QUEUES_MAX, ["q0", "q99"])


def test_long_texts_are_cut(turned: Turned) -> None:
    turned.registry.asked(
        NEW._replace(worker=INFO._replace(library="l" * 1_000, version="v" * 1_000, host="h" * 1_000)), "q"
    )
    info = turned.only.info
    assert info is not None
    assert {len(info.library), len(info.version), len(info.host)} == {TEXT_CHARS_MAX}


@pytest.mark.parametrize("number", [-1, -(2**63), 2**63 - 1])
def test_a_number_that_means_nothing_counts_as_not_said(turned: Turned, number: int) -> None:
    """No calendar has such a time."""
    said = INFO._replace(pid=number, concurrency=number, running=number, started_at_ms=number)
    turned.registry.asked(NEW._replace(worker=said), "q")
    assert turned.only.info == WorkerInfo("python", "1.0", "host")


# --- operations tell it ---------------------------------------------------------------------------------------------------


async def known(world: ServiceUnderTest) -> dict[int, WorkerStatus]:
    return {status.process: status for status in (await world.service.of(Workers).workers_here(100)).workers}


async def test_a_dequeue_is_heard_and_its_jobs_are_counted(world: ServiceUnderTest) -> None:
    await world.enqueue(b"a", b"b")
    await world.service.queues.create_queue("empty")
    dequeue = world.service.dequeuing.dequeue
    await dequeue(NEW, DequeueRequest("q", 5))
    await dequeue(NEW, DequeueRequest("empty", 5))
    [status] = (await known(world)).values()
    assert [(queue.queue, queue.handed_out) for queue in status.queues] == [("empty", 0), ("q", 2)]
    assert (status.info, status.claim_ms) == (INFO, 600_000)


async def test_a_look_is_no_worker(world: ServiceUnderTest) -> None:
    await world.service.dequeuing.dequeue(NEW, DequeueRequest("q", 5, dry_run=True))
    await world.service.dequeuing.dequeue(NEW, DequeueRequest("q", 0))
    assert await known(world) == {}


async def test_late_answers_are_counted(world: ServiceUnderTest) -> None:
    """An ack, an ack that comes with a dequeue, and a heartbeat."""
    await world.enqueue(b"a")
    [job] = (await world.service.dequeuing.dequeue(NEW, DequeueRequest("q", 1))).claimed[0].jobs
    descriptor = f"q:s1:p1:{job.id}"
    late = AckBatch("q", [Ack(descriptor, token="of another claim")])
    await world.service.claimed_jobs.acknowledge(Caller("w"), late)
    await world.service.dequeuing.dequeue(NEW, DequeueRequest("q", 1, late))
    await world.service.claimed_jobs.heartbeat(ClaimsRequest("q", [Claim(descriptor, "of another claim")]), caller=NEW)
    statuses = await known(world)
    assert [queue.late for queue in statuses[0].queues] == [3]
    assert statuses[0].heard_ms is None


async def test_what_the_server_says_of_itself_and_who_waits(world: ServiceUnderTest) -> None:
    world.clock.advance(seconds=5)
    poll = asyncio.create_task(world.service.dequeuing.dequeue(NEW, DequeueRequest("q", 1, wait_ms=60_000)))
    async with asyncio.timeout(30):
        while not world.dispatcher.waiting():
            await asyncio.sleep(0)
    [found] = await world.service.of(Workers).known_workers(everywhere=True)
    assert [(each.queue, each.source, each.number) for each in found.waiting] == [("q", "w", 1)]
    assert (found.server_id, found.servers, found.forgotten) == (world.service.identity.life, 1, 0)
    assert (found.up_ms, found.now_ms) == (5_000, world.clock.now_ms())
    world.dispatcher.drain()
    await poll


async def test_the_time_that_numbers_go_back_is_not_that_of_a_clock_which_was_set_right_since(
    world: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.service.identity, "started_at_ms", 0)
    world.clock.advance(seconds=5)
    [found] = await world.service.of(Workers).known_workers(everywhere=False)
    assert found.up_ms == 5_000


async def test_servers_that_start_or_stop_are_not_among_those_that_should_answer(
    world: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = [ClusterServer("a:1"), ClusterServer("b:1"), ClusterServer("", "host-7")]
    monkeypatch.setattr(world.service.of(Status), "cluster_status", lambda: ClusterStatus("a:1", servers, []))
    [found] = await world.service.of(Workers).known_workers(everywhere=False)
    assert found.servers == 2


async def test_an_answer_has_the_workers_that_were_heard_last_and_says_how_many_it_lacks(
    world: ServiceUnderTest,
) -> None:
    for number in range(5):
        world.service.of(Workers).registry.asked(Caller(f"w{number}"), "q")
    found = await world.service.of(Workers).workers_here(2)
    assert ([status.source for status in found.workers], found.forgotten) == (["w4", "w3"], 3)


async def test_what_other_servers_know_comes_after_what_this_one_knows(world: ServiceUnderTest) -> None:
    async def elsewhere() -> Sequence[ServerWorkers]:
        return [ServerWorkers([WorkerStatus("there")], (), "other", 2, 0, 0)]

    world.service.of(Workers).elsewhere = elsewhere
    world.service.of(Workers).registry.asked(NEW, "q")
    assert len(await world.service.of(Workers).known_workers(everywhere=False)) == 1
    found = await world.service.of(Workers).known_workers(everywhere=True)
    assert [[status.source for status in each.workers] for each in found] == [["w"], ["there"]]


async def test_an_answer_about_hostile_workers_of_many_servers_fits_a_frame(world: ServiceUnderTest) -> None:
    long = "x" * 200
    queues = [WorkerQueue(f"{number}{long}") for number in range(QUEUES_MAX)]
    hostile = WorkerStatus(long, 1, 0, queues, info=WorkerInfo(long, long, long))

    async def elsewhere() -> Sequence[ServerWorkers]:
        return [ServerWorkers([hostile] * 2_000, (), f"other {number}", 6, 0, 0) for number in range(5)]

    world.service.of(Workers).elsewhere = elsewhere
    found = await METHODS["getWorkers"].handle(world.service, SimpleNamespace(everywhere=True))
    assert sum(len(each.workers) + each.forgotten for each in found) == 10_000
    assert len(encode_reply(METHODS_BY_NAME["getWorkers"], 1, found)) < FRAME_BYTES_MAX
