"""Calls that a server refuses because its shards are unreachable: for seconds, or for good."""

from __future__ import annotations

import asyncio
import logging
import re
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from pinlater import EnqueueBatcher
from pinlater.client import (
    Ack,
    AckBatch,
    AsyncClient,
    AsyncEnqueueBatcher,
    Client,
    Job,
    JobState,
    UniqueKey,
    errors,
)
from pinlater.domain.clock import SystemClock
from pinlater.server.config.settings import Settings
from pinlater.server.config.store import StoreLocation
from pinlater.server.http.settings import HttpSettings
from pinlater.server.main import file_watch
from pinlater.server.main.app import App
from pinlater.server.sharding.reload import DesiredShard
from pinlater.server.storage.sqlite.memory import MemoryShard
from pinlater.server.thrift.settings import ThriftSettings
from pinlater.worker import Worker
from tests import structs as t
from tests.client.fake_server import FakeServer
from tests.sharding.faulty import FaultyShard

INFO = t.ServerInfo("9", [], "memory", 1, 1, 3, 1, 1, 1, 1, 1)
STORED = t.Enqueued(descriptors=["q:s1:p1:1"])
NO_SHARDS = t.PinLaterException(501, "Unable to find healthy shard", detail="NO_HEALTHY_SHARDS", retryable=True)
AWAY = t.PinLaterException(502, "Shard 2 is unreachable", detail="SHARD_UNREACHABLE", retryable=True)
FULL = t.PinLaterException(430, "Queue q is full", detail="QUEUE_FULL", retryable=True, retry_after_ms=10)
# More than `retries` of a client.
_REFUSALS = 6


def after(refusals: int, refusal: Exception, answer: Any) -> Callable[[Any], Any]:
    """Refuses many calls, and answers the others."""
    left = [refusal] * refusals

    def method(_: Any) -> Any:
        if left:
            raise left.pop()
        return answer

    return method


ACKED = [t.AckResult("q:s1:p1:1", 0)]
CALLS: dict[str, tuple[str, Any, Callable[[AsyncClient], Awaitable[Any]]]] = {
    "enqueue": ("enqueueJobs", STORED, lambda client: client.enqueue("q", [b"x"])),
    "enqueue of a unique job": (
        "enqueueJobs",
        STORED,
        lambda client: client.enqueue("q", [Job(b"x", unique=UniqueKey("k"))]),
    ),
    "dequeue": ("dequeueJobs", t.DequeueResponse(jobs={}), lambda client: client.dequeue("q")),
    "long poll": ("dequeueJobs", t.DequeueResponse(jobs={}), lambda client: client.dequeue("q", wait_ms=50)),
    "ack": ("ackJobs", ACKED, lambda client: client.ack("q", [Ack("q:s1:p1:1")])),
    "count": ("getJobCount", 3, lambda client: client.count("q", JobState.FAILED)),
    "pause": ("pauseQueue", None, lambda client: client.pause_queue("q")),
}


@pytest.mark.usefixtures("pauses")
@pytest.mark.parametrize("refusal", [NO_SHARDS, AWAY], ids=["no shard", "a shard"])
@pytest.mark.parametrize("name", CALLS)
async def test_a_call_that_a_shard_refuses_is_tried_until_it_is_answered(name: str, refusal: Exception) -> None:
    """An outage of seconds, such as the restart of a database, raises nothing."""
    method, answer, call = CALLS[name]
    async with (
        FakeServer(getServerInfo=lambda _: INFO, **{method: after(_REFUSALS, refusal, answer)}) as server,
        AsyncClient(server.address, timeout_ms=60_000) as client,
    ):
        await call(client)
    assert len(server.called(method)) == _REFUSALS + 1


@pytest.mark.usefixtures("pauses")
async def test_the_sync_client_waits_likewise() -> None:
    async with FakeServer(getServerInfo=lambda _: INFO, enqueueJobs=after(_REFUSALS, NO_SHARDS, STORED)) as server:
        with Client(server.address, timeout_ms=60_000) as client:
            assert (await asyncio.to_thread(client.enqueue, "q", [b"x"])).descriptors == ["q:s1:p1:1"]
    assert [call.request.repeated for call in server.called("enqueueJobs")] == [None] * (_REFUSALS + 1)


@pytest.mark.usefixtures("pauses")
async def test_both_batchers_wait_likewise() -> None:
    async with FakeServer(getServerInfo=lambda _: INFO, enqueueJobs=after(_REFUSALS, AWAY, STORED)) as server:
        async with AsyncClient(server.address, timeout_ms=60_000) as client, AsyncEnqueueBatcher(client) as batcher:
            assert (await batcher.enqueue("q", b"x")).descriptor == "q:s1:p1:1"
        server.methods["enqueueJobs"] = after(_REFUSALS, AWAY, STORED)
        with Client(server.address, timeout_ms=60_000) as blocking, EnqueueBatcher(blocking) as threads:
            assert (await asyncio.to_thread(threads.enqueue, "q", b"x")).descriptor == "q:s1:p1:1"


@pytest.mark.usefixtures("pauses")
async def test_another_server_is_asked_at_once() -> None:
    """It may reach the shards that the first one does not."""
    async with (
        FakeServer(getServerInfo=lambda _: INFO, enqueueJobs=after(1000, NO_SHARDS, None)) as cut_off,
        FakeServer(getServerInfo=lambda _: INFO, enqueueJobs=lambda _: STORED) as other,
        AsyncClient([cut_off.address, other.address], connections=2, timeout_ms=60_000) as client,
    ):
        for _ in range(4):
            await client.enqueue("q", [b"x"])
    assert len(other.called("enqueueJobs")) == 4


@pytest.mark.parametrize("sync", [False, True])
async def test_the_last_refusal_is_raised_at_the_deadline(sync: bool) -> None:
    """The pause before the next try is longer than the rest of the time: a try under way at the deadline has an unknown outcome."""
    refusals = iter([1, 2, 3])

    def refuse(_: Any) -> Any:
        shard = next(refusals)
        raise t.PinLaterException(
            502, f"Shard {shard} is unreachable", "SHARD_UNREACHABLE", True, 60_000 if shard == 3 else None
        )

    async with FakeServer(getServerInfo=lambda _: INFO, enqueueJobs=refuse) as server:
        began = time.monotonic()
        with pytest.raises(errors.ShardConnectionFailed, match="Shard 3 is unreachable"):
            await enqueue_with(sync, server.address, timeout_ms=1_000)
        assert time.monotonic() - began >= 0.99


@pytest.mark.usefixtures("pauses")
@pytest.mark.parametrize("options", [{"wait_for_servers": False, "retries": 2}, {"retries": 0}])
async def test_a_client_may_be_told_not_to_wait_for_shards(options: dict[str, Any]) -> None:
    """The client's timeout is longer than the test's."""
    async with (
        FakeServer(getServerInfo=lambda _: INFO, enqueueJobs=after(100, AWAY, None)) as server,
        AsyncClient(server.address, timeout_ms=600_000, **options) as client,
    ):
        with pytest.raises(errors.ShardConnectionFailed):
            await client.enqueue("q", [b"x"])
    assert len(server.called("enqueueJobs")) == 1 + options["retries"]


async def test_a_full_queue_is_told_at_once() -> None:
    """Seconds do not drain a queue, and its producer must slow down."""
    async with (
        FakeServer(getServerInfo=lambda _: INFO, enqueueJobs=after(100, FULL, None)) as server,
        AsyncClient(server.address, timeout_ms=600_000) as client,
    ):
        with pytest.raises(errors.QueueFull):
            await client.enqueue("q", [b"x"])
    assert len(server.called("enqueueJobs")) == 1


async def test_acks_that_ride_on_a_dequeue_are_not_sent_twice() -> None:
    """They may have been carried out before no shard was left for the claim."""
    async with (
        FakeServer(dequeueJobs=after(100, NO_SHARDS, None)) as server,
        AsyncClient(server.address, timeout_ms=600_000) as client,
    ):
        with pytest.raises(errors.NoHealthyShards):
            await client.dequeue("q", acks=AckBatch("q", [Ack("q:s1:p1:1")]))
    assert len(server.called("dequeueJobs")) == 1


async def test_an_original_servers_refusal_of_an_enqueue_is_raised() -> None:
    """It stores the jobs of a request one by one, and ignores request keys."""
    plain = t.PinLaterException(501, "Unable to find healthy shard")
    async with (
        FakeServer(enqueueJobs=after(100, plain, None)) as server,
        AsyncClient(server.address, timeout_ms=600_000) as client,
    ):
        with pytest.raises(errors.NoHealthyShards):
            await client.enqueue("q", [b"x"])
    assert len(server.called("enqueueJobs")) == 1


@pytest.mark.usefixtures("pauses")
async def test_a_refusal_after_a_lost_answer_is_waited_out_as_a_repeat() -> None:
    answers = [FakeServer.HANG_UP, *[AWAY] * _REFUSALS, STORED]

    def enqueue(_: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with (
        FakeServer(getServerInfo=lambda _: INFO, enqueueJobs=enqueue) as server,
        AsyncClient(server.address, timeout_ms=60_000) as client,
    ):
        await client.enqueue("q", [b"x"])
    assert [call.request.repeated for call in server.called("enqueueJobs")] == [None, *[True] * (_REFUSALS + 1)]


async def test_a_long_poll_that_is_made_again_ends_before_its_deadline() -> None:
    late = asyncio.Event()

    async def refuse_late(_: Any) -> Any:
        if late.is_set():
            return t.DequeueResponse(jobs={})
        asyncio.get_running_loop().call_later(0.5, late.set)
        await late.wait()
        raise NO_SHARDS

    async with FakeServer(dequeueJobs=refuse_late) as server, AsyncClient(server.address, timeout_ms=400) as client:
        await client.dequeue("q", wait_ms=1_000)
    first, second = [call.request.wait_ms for call in server.called("dequeueJobs")]
    assert first == 1_000
    assert second <= 700


async def test_a_restart_of_the_only_database_raises_nothing_in_producers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "pinlater.client")
    shard = FaultyShard(MemoryShard("1"))
    monkeypatch.setattr(file_watch, "embedded", lambda settings: [DesiredShard("1", shard.as_shard)])
    listening = {"thrift": ThriftSettings(host="127.0.0.1", port=0), "http": HttpSettings(host="127.0.0.1", port=0)}
    app = App(replace(Settings(), store=StoreLocation("memory"), **listening))  # type: ignore[arg-type]
    await app.start()
    async with AsyncClient(f"127.0.0.1:{app.thrift.port}", timeout_ms=60_000) as client:
        await client.create_queue("q")
        shard.dead = "connection refused"
        await app.core.shard_monitor.ping_all()
        unique = Job(b"y", unique=UniqueKey("k"))
        calls = [asyncio.create_task(client.enqueue("q", [job])) for job in (b"x", unique)]
        calls.append(asyncio.create_task(client.enqueue("q", [b"z"], request_key="mine", repeat=True)))
        async with asyncio.timeout(30):
            while caplog.text.count("trying again") < 5 * len(calls):
                await asyncio.sleep(0.01)
        shard.dead = None
        await app.core.shard_monitor.ping_all()
        await asyncio.gather(*calls)
        assert await client.count("q") == len(calls)
    await app.stop(0)


# --- what it says -------------------------------------------------------------------------------------------------------
async def test_calls_that_wait_say_so_once_and_when_they_are_answered(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pinlater.client")
    back = asyncio.Event()

    def enqueue(_: Any) -> Any:
        if not back.is_set():
            raise AWAY
        return STORED

    async with (
        FakeServer(getServerInfo=lambda _: INFO, enqueueJobs=enqueue) as server,
        AsyncClient(server.address, timeout_ms=60_000) as client,
    ):
        calls = [asyncio.create_task(client.enqueue("q", [b"x"])) for _ in range(20)]
        async with asyncio.timeout(30):
            while not caplog.records:
                await asyncio.sleep(0.01)
        back.set()
        await asyncio.gather(*calls)
    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert said[0][0] == "WARNING"
    assert re.fullmatch(r"enqueue on queue q: Shard 2 is unreachable; trying again for 5\d s", said[0][1])
    assert said[1:] == [("INFO", "calls are answered again")]


async def test_a_call_that_is_answered_soon_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with (
        FakeServer(getServerInfo=lambda _: INFO, enqueueJobs=after(2, AWAY, STORED)) as server,
        AsyncClient(server.address) as client,
    ):
        await client.enqueue("q", [b"x"])
    assert not caplog.records


@pytest.mark.parametrize("sync", [False, True])
def test_the_traceback_of_an_unreachable_server_shows_the_callers_frames_and_few_others(sync: bool) -> None:
    worker = Worker()

    @worker.task("mails")
    def send() -> None: ...

    servers = "127.0.0.1:1"
    with Client(servers, timeout_ms=50) as client, worker.redirected(client, AsyncClient, SystemClock()):
        produce: Callable[[], object] = send.enqueue if sync else partial(_run, send.enqueue_async)
        with pytest.raises(errors.ServerUnreachable) as raised:
            produce()
    lines = "".join(traceback.format_exception(raised.value)).splitlines()
    from_asyncio = 6 if not sync else 0  # `asyncio.run` is the caller's
    assert len([line for line in lines if line.startswith("  File")]) <= 6 + from_asyncio
    assert sum(line.startswith("Traceback") for line in lines) == 1
    assert lines[-1].endswith("127.0.0.1:1 can't be reached: Connection refused")


def _run(call: Callable[[], Coroutine[Any, Any, Any]]) -> object:
    return asyncio.run(call())


async def enqueue_with(sync: bool, server: str, timeout_ms: int) -> None:
    if not sync:
        async with AsyncClient(server, timeout_ms=timeout_ms) as client:
            await client.enqueue("q", [b"x"])
        return
    with Client(server, timeout_ms=timeout_ms) as blocking:
        await asyncio.to_thread(blocking.enqueue, "q", [b"x"])


@pytest.mark.parametrize("sync", [False, True])
def test_the_error_of_several_unreachable_servers_names_them(sync: bool) -> None:
    servers = [f"127.0.0.1:{port}" for port in range(1, 8)]

    async def ask() -> None:
        async with AsyncClient(servers, wait_for_servers=False) as client:
            await client.queue_names()

    with Client(servers, wait_for_servers=False) as client, pytest.raises(errors.ServerUnreachable) as raised:
        client.queue_names() if sync else asyncio.run(ask())
    assert raised.value.message.startswith(
        f"No server could be reached; tried {', '.join(servers[:5])}, ...; last: Server 127.0.0.1:"
    )


def test_the_error_at_the_deadline_names_them_once() -> None:
    with Client("127.0.0.1:1,127.0.0.1:2", timeout_ms=50) as client, pytest.raises(errors.ServerUnreachable) as raised:
        client.enqueue("q", [b"x"])
    assert raised.value.message.startswith(
        "No server could be reached within 0.05 s for enqueue on queue q; tried 127.0.0.1:1, 127.0.0.1:2; last: Server 127."
    )
