"""The connection between a front process and the store process: what happens if one side, or a caller, goes."""

from __future__ import annotations

import asyncio
import inspect
import re
from random import Random
from typing import Any

import pytest

from pinlater.domain.clock import ManualClock
from pinlater.domain.errors import Draining, OutcomeUnknown, RequestTooOld, ShardConnectionFailed
from pinlater.domain.job import JobState, Outcome
from pinlater.server.features.all import METHODS, OPERATIONS
from pinlater.server.features.audit.buffer import AuditBuffer
from pinlater.server.features.audit.trail import AuditTrail
from pinlater.server.features.explain.explain import Explain
from pinlater.server.front.front_listener import FrontListener
from pinlater.server.front.messages import StoreState
from pinlater.server.front.store_connection import StoreProcessFailed
from pinlater.server.link import side
from pinlater.server.operations.values import Caller
from pinlater.server.storage.sqlite.memory import MemoryShard
from pinlater.server.telemetry.metrics import Metrics
from pinlater.wire.generated.structs import (
    Ack,
    AckBatch,
    AuditEntry,
    AuditRequest,
    CountRequest,
    DequeueRequest,
    EnqueueRequest,
    FrontProcess,
    Job,
)
from tests.front.conftest import FrontAndStore, until

CALLER = Caller("tests")


async def enqueue(pair: FrontAndStore, body: bytes = b"x") -> str:
    [descriptor] = (await pair.service.enqueuing.enqueue(EnqueueRequest("q", [Job(body)]))).descriptors
    return descriptor


def dequeue(pair: FrontAndStore, wait_ms: int = 0, acks: AckBatch | None = None) -> asyncio.Task[Any]:
    command = DequeueRequest("q", 1, acks, wait_ms=wait_ms)
    return asyncio.create_task(pair.service.dequeuing.dequeue(CALLER, command))


async def waiting(pair: FrontAndStore, number: int = 1) -> None:
    await until(lambda: pair.core.dispatcher.waiting("q") == number)


async def pending(pair: FrontAndStore) -> int:
    return (await pair.core.service.job_queries.count_jobs(CountRequest("q", JobState.PENDING))).jobs


def test_every_operation_that_a_handler_calls_is_forwarded() -> None:
    handlers = [served.handle for served in METHODS.values()]
    modules = filter(None, {inspect.getmodule(handle) for handle in handlers})
    functions = [found for module in modules for _, found in inspect.getmembers(module, inspect.isfunction)]
    functions = [each for each in functions if "call" in inspect.signature(each).parameters]
    sources = "".join([*map(inspect.getsource, functions), *map(inspect.getsource, handlers)])
    called = set(re.findall(r"\bservice\.(?:of\((\w+)\)|(\w+))\.(\w+)\(", sources))
    forwarded = {
        ("" if operation.group.attribute else operation.group.kind.__name__, operation.group.attribute, operation.name)
        for operation in OPERATIONS
    }
    assert called | {("AuditTrail", "", "keep")} == forwarded


async def test_entries_of_the_audit_reach_the_store_process_and_wait_while_it_is_gone(pair: FrontAndStore) -> None:
    buffer = AuditBuffer(lambda entries: pair.service.of(AuditTrail).keep(entries), Metrics(), ManualClock(), Random(1))
    buffer.add(AuditEntry("", 0, "ops", ("admin",), "cli", "::1", "pauseQueue", "q", "{}", 3, "ok", ""))
    await buffer.flush()
    [found] = (await pair.service.of(AuditTrail).read(AuditRequest(queue="q"))).entries
    assert (found.who, tuple(found.roles), found.jobs) == ("ops", ("admin",), 3)
    assert found.server == pair.core.service.identity.address
    pair.fronts.close()
    await until(lambda: not pair.store.connected.is_set())
    buffer.add(AuditEntry("", 0, "ops", (), "cli", "::1", "resumeQueue", "q", "{}", None, "ok", ""))
    assert await buffer.flush() is not None
    assert [entry.operation for entry in buffer.waiting] == ["resumeQueue"]


async def test_a_job_enqueued_at_one_process_wakes_a_dequeue_that_waits_at_another(pair: FrontAndStore) -> None:
    at_front = dequeue(pair, 60_000)
    await waiting(pair)
    await pair.core.service.enqueuing.enqueue(EnqueueRequest("q", [Job(b"from elsewhere")]))
    assert [job.body for part in (await at_front).claimed for job in part.jobs] == [b"from elsewhere"]


async def test_a_dequeue_whose_caller_has_gone_waits_no_longer(pair: FrontAndStore) -> None:
    gone, stays = dequeue(pair, 60_000), None
    await waiting(pair)
    stays = dequeue(pair, 60_000)
    await waiting(pair, 2)
    gone.cancel()
    await waiting(pair, 1)
    await enqueue(pair)
    assert len((await stays).claimed) == 1


async def test_jobs_for_a_caller_that_has_gone_go_back_unspent(pair: FrontAndStore) -> None:
    """Its dequeue was carried out before the store process learned that it has gone."""
    await enqueue(pair)
    asked = dequeue(pair)
    await asyncio.sleep(0)  # it is to be sent at the end of this turn
    asked.get_loop().call_soon(asked.cancel)
    with pytest.raises(asyncio.CancelledError):
        await asked
    [part] = (await dequeue(pair, 30_000)).claimed
    assert part.jobs[0].attempt == 1


async def test_an_answer_that_reached_no_client_is_given_back_through_the_front(pair: FrontAndStore) -> None:
    await enqueue(pair)
    answer = await dequeue(pair)
    pair.service.dequeuing.undelivered("q", answer.claimed)
    async with asyncio.timeout(30):
        while await pending(pair) != 1:
            await asyncio.sleep(0.001)


async def test_a_call_that_was_sent_has_an_unknown_outcome_if_the_store_process_dies(
    pair: FrontAndStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that only looks may simply be sent again. Those that come later are not sent at all, until there is a connection again."""
    never = asyncio.Event()

    async def hang(*_: object, **__: object) -> None:
        await never.wait()

    monkeypatch.setattr(pair.core.service.enqueuing, "enqueue", hang)
    monkeypatch.setattr(pair.core.service.queues, "queue_names", hang)
    enqueued = asyncio.create_task(pair.service.enqueuing.enqueue(EnqueueRequest("q", [Job(b"x")])))
    looked = asyncio.create_task(pair.service.queues.queue_names())
    await until(lambda: pair.fronts.taken == 2)
    monkeypatch.undo()
    restarting = asyncio.create_task(pair.restart())
    with pytest.raises(OutcomeUnknown) as unknown:
        await enqueued
    with pytest.raises(ShardConnectionFailed) as unreachable:
        await looked
    assert unknown.value.retryable
    assert not isinstance(unreachable.value, OutcomeUnknown)
    assert unreachable.value.retryable
    with pytest.raises(ShardConnectionFailed) as not_sent:
        await enqueue(pair)
    assert not isinstance(not_sent.value, OutcomeUnknown)
    assert pair.store.state.ready is False
    assert pair.store.calls_lost == 2
    await restarting
    await until(lambda: pair.store.state.ready)
    assert await enqueue(pair)


async def test_a_call_that_was_not_sent_when_the_connection_ends_is_known_not_to_be_carried_out(
    pair: FrontAndStore,
) -> None:
    asked = asyncio.create_task(enqueue(pair))
    await asyncio.sleep(0)  # it is to be sent at the end of this turn
    pair.store.abort()
    with pytest.raises(ShardConnectionFailed) as not_sent:
        await asked
    assert not isinstance(not_sent.value, OutcomeUnknown)
    assert (pair.store.calls_lost, await pending(pair)) == (0, 0)


async def test_the_calls_of_a_turn_are_one_frame_or_several_where_they_are_very_many(
    pair: FrontAndStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frame of more parts than the other side takes would end the connection."""
    monkeypatch.setattr(side, "_PARTS_MAX", 10)
    for calls, frames in ((7, 1), (25, 3)):
        before = pair.store.frames
        await asyncio.gather(*(enqueue(pair) for _ in range(calls)))
        assert pair.store.frames == before + frames
    assert await pending(pair) == 32


async def test_a_request_key_settles_an_enqueue_whose_answer_was_lost(pair: FrontAndStore) -> None:
    async def keyed(*, repeat: bool) -> str:
        stored = await pair.service.enqueuing.enqueue(
            EnqueueRequest("q", [Job(b"x")], request_key="key", repeated=repeat)
        )
        return stored.descriptors[0]

    before = await keyed(repeat=False)
    await pair.restart()
    await until(pair.store.connected.is_set)
    assert await keyed(repeat=True) == before
    assert await pending(pair) == 1


async def test_an_enqueue_with_a_key_is_not_begun_long_after_it_came_to_a_front(
    pair: FrontAndStore, clock: ManualClock
) -> None:
    """Though the store process never stood still for long on its way: the key of a repeat may be forgotten by then."""

    async def begun_after(seconds: int, key: str | None) -> None:
        arrived_s = clock.monotonic()
        clock.advance(seconds=5)  # in the front
        sent = pair.service.enqueuing.enqueue(EnqueueRequest("q", [Job(b"x")], request_key=key), arrived_s=arrived_s)
        asked = asyncio.create_task(sent)
        await asyncio.sleep(0)  # it is to be sent at the end of this turn
        for _ in range(seconds - 5):
            clock.advance(seconds=1)
            pair.core.standstill.runs(clock.monotonic())
        await asked

    await begun_after(20, "one")
    await begun_after(21, None)
    with pytest.raises(RequestTooOld) as too_old:
        await begun_after(21, "two")
    assert too_old.value.retryable
    assert await pending(pair) == 2


async def test_nothing_is_carried_out_that_a_front_sends_after_a_standstill(
    pair: FrontAndStore, clock: ManualClock
) -> None:
    """A late delete could hit a queue that was made again meanwhile."""
    pair.front_standstill.limit_s = 20.0
    for between_decoding_and_sending in (True, False):
        pair.front_standstill.begin()
        asked = asyncio.create_task(pair.service.queues.delete_queue("q", None))
        if not between_decoding_and_sending:
            await asyncio.sleep(0)  # it is to be sent at the end of this turn
        clock.advance(seconds=21)
        with pytest.raises(RequestTooOld):
            await asked
        assert "q" in await pair.core.service.queues.queue_names()


async def test_the_store_process_says_which_fronts_it_has_and_what_they_wait_for(pair: FrontAndStore) -> None:
    await enqueue(pair)
    assert pair.fronts.processes() == [FrontProcess(3, 1, 0, 0, 0)]
    waits = dequeue(pair, 60_000)
    await dequeue(pair)
    await waiting(pair)
    assert pair.fronts.processes() == [FrontProcess(3, 3, 1, 1, 0)]
    await enqueue(pair)
    await waits
    assert pair.fronts.processes() == [FrontProcess(3, 4, 0, 0, 0)]
    await pair.restart()
    await until(pair.fronts.processes)
    assert pair.fronts.processes() == [FrontProcess(3, 0, 0, 0, 0)]


async def test_a_store_process_that_stops_answers_what_it_has_and_takes_no_more(pair: FrontAndStore) -> None:
    waits = dequeue(pair, 60_000)
    await waiting(pair)
    draining = asyncio.create_task(pair.fronts.drain(30))
    await until(lambda: not pair.store.connected.is_set())
    with pytest.raises(Draining):
        await enqueue(pair)
    pair.core.dispatcher.drain()
    assert (await waits).claimed == []
    await draining
    assert not pair.fronts.connections


async def test_a_store_process_that_stops_waits_for_fronts_that_stop_too(pair: FrontAndStore) -> None:
    pair.store.drain()
    draining = asyncio.create_task(pair.fronts.drain(30))
    assert await enqueue(pair)
    assert not draining.done()
    await pair.store.stop()
    await draining


async def test_a_front_that_stops_ends_the_waits_of_its_own_dequeues_only(pair: FrontAndStore) -> None:
    """The acks that came with one are answered."""
    descriptor = await enqueue(pair)
    [part] = (await dequeue(pair)).claimed
    elsewhere = asyncio.create_task(pair.core.service.dequeuing.dequeue(CALLER, DequeueRequest("q", 1, wait_ms=60_000)))
    here = dequeue(pair, 60_000, AckBatch("q", [Ack(descriptor, token=part.token)]))
    await waiting(pair, 2)
    pair.store.drain()
    answer = await here
    assert (answer.claimed, [result.outcome for result in answer.ack_results]) == ([], [Outcome.APPLIED])
    later = await dequeue(pair, 60_000)
    assert later.claimed == []
    assert not elsewhere.done()
    await enqueue(pair)
    assert len((await elsewhere).claimed) == 1


async def test_a_front_that_takes_no_answers_is_disconnected_and_its_claims_are_given_back(
    pair: FrontAndStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.fronts.untaken_bytes_max = 4 * 1024 * 1024
    for _ in range(200):
        await pair.core.service.enqueuing.enqueue(EnqueueRequest("q", [Job(b"x" * 1000, custom_status="s" * 100)] * 50))
    transport = pair.store.transport
    transport.pause_reading()
    asked = [asyncio.create_task(pair.service.dequeuing.dequeue(CALLER, DequeueRequest("q", 200))) for _ in range(50)]
    await until(lambda: not pair.fronts.connections)
    transport.resume_reading()
    await asyncio.wait(asked)
    answered = [task.result() for task in asked if task.exception() is None]
    held = sum(len(part.jobs) for answer in answered for part in answer.claimed)
    assert held < 10_000
    async with asyncio.timeout(30):
        while await pending(pair) != 10_000 - held:
            await asyncio.sleep(0.01)


async def test_nothing_is_carried_out_that_came_while_the_store_process_stood_still(pair: FrontAndStore) -> None:
    pair.still_runs = False
    asked = asyncio.create_task(enqueue(pair))
    await asyncio.sleep(0)
    await until(lambda: pair.store.calls == 1)
    pair.fronts.abort_connections()  # as `Standstill` has it done
    with pytest.raises(OutcomeUnknown):
        await asked
    assert await pending(pair) == 0


async def test_a_front_is_as_ready_as_the_store_process_says(pair: FrontAndStore) -> None:
    assert pair.store.state == StoreState(True, [])
    full = StoreState(False, ["shard 1: the disk is full"])
    pair.fronts.tell(full)
    await until(lambda: pair.store.state == full)


async def test_a_bug_in_an_operation_reaches_its_own_caller_only(
    pair: FrontAndStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(pair.core.service.queues, "queue_names", broken)
    with pytest.raises(StoreProcessFailed):
        await pair.service.queues.queue_names()
    assert await enqueue(pair)
    assert "request failed" in caplog.text


@pytest.mark.parametrize(("wrong", "error"), [(object(), TypeError), (7, StoreProcessFailed)])
async def test_arguments_that_do_not_fit_their_types_reach_their_own_caller_only(
    pair: FrontAndStore, wrong: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await pair.service.queues.create_queue(wrong)
    assert await enqueue(pair)


async def test_a_second_listener_takes_the_place_of_a_process_that_was_killed(pair: FrontAndStore) -> None:
    """Its socket is still there."""
    other = FrontListener(pair.core.service, OPERATIONS, pair.core.dispatcher.stop_waiting, lambda: True, 1_000)
    await other.open_local(pair.path)
    other.close()
    assert isinstance(next(iter(pair.core.shards)).unguarded, MemoryShard)


async def test_an_explanation_is_the_same_through_a_front(pair: FrontAndStore) -> None:
    descriptor = await enqueue(pair)
    there = await pair.core.service.of(Explain).explain("q", descriptor)
    here = await pair.service.of(Explain).explain("q", descriptor)
    assert here == there
