"""The sync client's calls in the caller's own thread: what it does when a try fails is what the asynchronous one does."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest

from pinlater.client import Client, JobState, errors
from pinlater.domain.clock import ManualClock
from pinlater.wire.codec import Decoder, encode_reply
from tests import structs as t
from tests.client.fake_server import FakeServer
from tests.databases.proxy import Proxy

T = TypeVar("T")
INFO = t.ServerInfo("9", [], "memory", 1, 1, 3, 1, 1, 1, 1, 1)


def stored(_: Any) -> Any:
    return t.Enqueued(descriptors=["q:s1:p1:1"], existing=[])


async def in_thread(call: Callable[[], T]) -> T:
    return await asyncio.to_thread(call)


async def test_many_threads_share_a_bounded_number_of_connections() -> None:
    """Calls beyond 64 go through the loop, and share those that the client was given a number of."""
    alone, more, shared = 64, 30, 2
    answered = asyncio.Event()

    async def answer(_: Any) -> list[str]:
        await answered.wait()
        return ["a"]

    async with FakeServer(getQueueNames=answer) as server:
        with ThreadPoolExecutor(alone + more) as threads, Client(server.address, connections=shared) as client:
            loop = asyncio.get_running_loop()
            calls = [loop.run_in_executor(threads, client.queue_names) for _ in range(alone)]
            while len(server.called("getQueueNames")) < alone:
                await asyncio.sleep(0.001)
            calls += [loop.run_in_executor(threads, client.queue_names) for _ in range(more)]
            while server.connections < alone + shared:
                await asyncio.sleep(0.001)
            answered.set()
            assert await asyncio.gather(*calls) == [["a"]] * (alone + more)
    assert server.connections == alone + shared


async def test_a_connection_that_the_server_closed_meanwhile_costs_the_next_call_nothing() -> None:
    async with FakeServer(retryFailedJobs=lambda _: 3) as server:
        with Client(server.address) as client:
            assert await in_thread(lambda: client.retry_failed("q", priority=1)) == 3
            server.hung_up.clear()
            await server.stop()
            await server.hung_up.wait()
            await server.start()
            assert await in_thread(lambda: client.retry_failed("q", priority=1)) == 3  # a call that is never made again
    assert server.connections == 2


async def test_a_server_that_left_the_file_gets_no_more_calls(tmp_path: Path) -> None:
    listed, clock = tmp_path / "servers", ManualClock()
    async with FakeServer(getQueueNames=lambda _: ["a"]) as first, FakeServer(getQueueNames=lambda _: ["b"]) as second:
        listed.write_text(first.address)
        with Client(listed, clock=clock) as client:
            assert await in_thread(client.queue_names) == ["a"]
            listed.write_text(second.address)
            clock.advance(seconds=2)
            assert await in_thread(client.queue_names) == ["b"]


async def test_an_answer_to_another_call_ends_the_connection() -> None:
    async def answer_another(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        call = Decoder().call((await reader.read(65_536))[4:])
        writer.write(encode_reply(call.method, call.seqid + 1, {"a"}))
        assert await reader.read() == b""
        writer.close()

    async with await asyncio.start_server(answer_another, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()[:2]
        with Client(f"{host}:{port}", retries=0) as client, pytest.raises(errors.ConnectionLost):
            await in_thread(client.queue_names)


async def test_an_enqueue_whose_answer_is_lost_is_said_again_as_a_repeat() -> None:
    tries: list[Any] = []

    def lose_the_first(arguments: Any) -> Any:
        tries.append(arguments.request)
        return FakeServer.HANG_UP if len(tries) == 1 else stored(arguments)

    async with FakeServer(enqueueJobs=lose_the_first, getServerInfo=lambda _: INFO) as server:
        with Client(server.address) as client:
            await in_thread(lambda: client.enqueue("q", [b"x"]))
    first, second = tries
    assert first.request_key == second.request_key
    assert (first.repeated, second.repeated) == (None, True)


async def test_a_call_that_could_double_is_not_made_again() -> None:
    async with FakeServer(retryFailedJobs=lambda _: FakeServer.HANG_UP) as server:
        with Client(server.address) as client, pytest.raises(errors.ConnectionLost):
            await in_thread(lambda: client.retry_failed("q", priority=1))
    assert len(server.called("retryFailedJobs")) == 1


async def test_a_server_that_drains_or_is_gone_hands_over_to_the_next() -> None:
    def drains(_: Any) -> Any:
        raise t.PinLaterException(500, "going down", detail="DRAINING", retryable=True)

    gone = FakeServer()
    async with gone:
        address = gone.address
    async with FakeServer(retryFailedJobs=drains) as first, FakeServer(retryFailedJobs=lambda _: 7) as second:
        for others in ([address], [first.address], [address, first.address]):
            for _ in range(4):  # each client has an order of its own
                with Client([*others, second.address]) as client:
                    assert await in_thread(lambda client=client: client.retry_failed("q", priority=1)) == 7  # type: ignore[misc]


async def test_a_server_that_hangs_gets_half_of_the_time_where_there_is_another() -> None:
    never = asyncio.Event()

    async def hang(_: Any) -> Any:
        await never.wait()

    async with FakeServer(getQueueNames=hang) as hanging, FakeServer(getQueueNames=lambda _: ["b"]) as other:
        for _ in range(40):  # each client has an order of its own, until one begins with this one
            with Client([hanging.address, other.address], timeout_ms=400) as client:
                assert await in_thread(client.queue_names) == ["b"]
            if hanging.called("getQueueNames"):
                break
        never.set()
    assert hanging.called("getQueueNames")


async def test_a_connection_that_hangs_costs_its_call_the_deadline_and_the_next_one_nothing() -> None:
    async with FakeServer(getQueueNames=lambda _: ["a"]) as server, Proxy(server.address) as proxy:
        with Client(proxy.address, timeout_ms=300) as client:
            assert await asyncio.gather(*[in_thread(client.queue_names) for _ in range(3)]) == [["a"]] * 3
            proxy.swallow_open()
            with pytest.raises(errors.DeadlineExceeded, match=r"within 0\.3 s"):
                await in_thread(client.queue_names)
            assert await in_thread(client.queue_names) == ["a"]


async def test_closing_ends_a_call_under_way() -> None:
    asked, never = asyncio.Event(), asyncio.Event()

    async def hang(_: Any) -> Any:
        asked.set()
        await never.wait()

    async with FakeServer(getQueueNames=hang) as server:
        client = Client(server.address)
        call = asyncio.create_task(in_thread(client.queue_names))
        await asked.wait()
        await in_thread(client.close)
        with pytest.raises(errors.ConnectionLost):
            await call
        never.set()


async def test_an_original_server_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    async with FakeServer(enqueueJobs=stored) as server:
        with caplog.at_level(logging.WARNING, "pinlater.client"), Client(server.address) as client:
            while not caplog.records:
                await in_thread(lambda: client.enqueue("q", [b"x"]))
            await in_thread(lambda: client.enqueue("q", [b"x"]))
    assert ["original PinLater server" in record.message for record in caplog.records] == [True]


def test_a_call_that_was_interrupted_leaves_its_answer_to_no_other(request: pytest.FixtureRequest) -> None:
    """The signal's handler raises while the answer is on its way; the next call gets the answer to its own request."""

    class Interrupted(BaseException): ...

    def interrupt(*_: object) -> None:
        raise Interrupted

    def names(_: Any) -> list[str]:
        signal.pthread_kill(main, signal.SIGUSR1)
        return ["late"]

    started, main = threading.Event(), threading.get_ident()
    box: dict[str, Any] = {}

    async def serve() -> None:
        async with FakeServer(getQueueNames=names, getJobCount=lambda _: 5) as server:
            box["server"], box["loop"], box["stop"] = server, asyncio.get_running_loop(), asyncio.Event()
            started.set()
            await box["stop"].wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    before = signal.signal(signal.SIGUSR1, interrupt)
    request.addfinalizer(lambda: signal.signal(signal.SIGUSR1, before))
    assert started.wait(10)
    try:
        with Client(box["server"].address) as client:
            with pytest.raises(Interrupted):
                client.queue_names()
            assert client.count("q", JobState.PENDING) == 5
    finally:
        box["loop"].call_soon_threadsafe(box["stop"].set)
        thread.join(10)


async def test_carry_out_runs_the_callers_function_while_the_server_works() -> None:
    asked = threading.Event()
    together = threading.Barrier(2)

    async def answer(_: Any) -> Any:
        await asyncio.to_thread(together.wait, 10)
        return stored(_)

    def meanwhile() -> None:
        together.wait(10)
        asked.set()

    async with FakeServer(enqueueJobs=answer, getServerInfo=lambda _: INFO) as server:
        with Client(server.address) as client:
            call = client.enqueue_call("q", [b"x"])
            assert (await in_thread(lambda: client.carry_out(call, meanwhile))).descriptors == ["q:s1:p1:1"]
    assert asked.is_set()
