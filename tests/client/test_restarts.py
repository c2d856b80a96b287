"""Clients whose servers are all away: for a restart, or for good."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pinlater.client import AsyncClient, Checkpoint, Client, JobState, errors
from pinlater.domain.clock import SystemClock
from pinlater.testing import RealServer
from pinlater.worker import Worker
from tests.client.scripted import Script

_OUTAGE_S = 2.0


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that refuses connections, and that no other program gets meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def test_a_restart_of_the_only_server_raises_nothing_in_producers(tmp_path: Path) -> None:
    with RealServer(tmp_path) as server, Client(server.address, timeout_ms=60_000) as client:
        client.create_queue("q")
        killed, back, begun = threading.Event(), threading.Event(), threading.Semaphore(0)

        def produce(name: str) -> list[bytes]:
            bodies: list[bytes] = []
            while not bodies or not back.is_set():
                bodies.append(f"{name}-{len(bodies)}".encode())
                client.enqueue("q", [bodies[-1]])
                if len(bodies) == 5:
                    begun.release()
                    assert killed.wait(30)
            return bodies

        async def produce_async() -> list[bytes]:
            bodies: list[bytes] = []
            async with AsyncClient(server.address, timeout_ms=60_000) as client:
                while not bodies or not back.is_set():
                    bodies.append(f"async-{len(bodies)}".encode())
                    await client.enqueue("q", [bodies[-1]])
                    if len(bodies) == 5:
                        begun.release()
                        assert await asyncio.to_thread(killed.wait, 30)
            return bodies

        with ThreadPoolExecutor(5) as threads:
            producers = [threads.submit(produce, f"sync-{number}") for number in range(4)]
            producers.append(threads.submit(asyncio.run, produce_async()))
            for _ in producers:
                assert begun.acquire(timeout=30)
            server.kill()
            killed.set()
            threading.Event().wait(_OUTAGE_S)
            server.start()
            back.set()
            sent = [body for producer in producers for body in producer.result(timeout=60)]
        stored = Counter(job.body for job in client.scan("q", JobState.PENDING, limit=1000, bodies=True).jobs)
        assert stored == Counter(sent)


def test_calls_that_are_safe_to_repeat_wait_for_the_server(tmp_path: Path) -> None:
    with RealServer(tmp_path) as server, Client(server.address, timeout_ms=60_000) as client:
        client.create_queue("q")
        client.enqueue("q", [b"x"])
        [job] = client.dequeue("q").jobs
        server.kill()
        with ThreadPoolExecutor(3) as threads:
            saved = threads.submit(client.checkpoint, "q", [Checkpoint(job.descriptor, job.token, new_body=b"y")])
            counted = threads.submit(client.count, "q")
            polled = threads.submit(client.dequeue, "q", wait_ms=100)
            threading.Event().wait(_OUTAGE_S)
            server.start()
            assert [result.applied for result in saved.result(timeout=30)] == [True]
            assert counted.result(timeout=30) == 0
            assert not polled.result(timeout=30).jobs


@pytest.mark.parametrize("sync", [True, False])
def test_without_any_server_the_error_comes_at_the_deadline_and_names_the_servers(closed_port: int, sync: bool) -> None:
    servers = [f"127.0.0.1:{closed_port}", f"localhost:{closed_port}"]

    async def enqueue_async() -> None:
        async with AsyncClient(servers, timeout_ms=700) as client:
            began = asyncio.get_running_loop().time()
            try:
                await client.enqueue("q", [b"x"])
            finally:
                assert asyncio.get_running_loop().time() - began >= 0.69

    def enqueue() -> None:
        with Client(servers, timeout_ms=700) as client:
            client.enqueue("q", [b"x"])

    with pytest.raises(errors.ServerUnreachable) as raised:
        enqueue() if sync else asyncio.run(enqueue_async())
    text = str(raised.value)
    assert "within 0.7 s for enqueue on queue q" in text
    assert raised.value.__cause__ is None  # the text names the last try
    assert f"tried 127.0.0.1:{closed_port}, localhost:{closed_port}" in text
    assert text.endswith("Connection refused")


@pytest.mark.parametrize("sync", [True, False])
def test_an_error_names_the_call_that_the_user_made_and_not_the_one_that_prepares_it(
    closed_port: int, *, sync: bool
) -> None:
    """Before its first enqueue a task asks the server what it is, and the client before it retries jobs of all priorities."""
    with Client(f"127.0.0.1:{closed_port}", timeout_ms=100) as client:
        worker = Worker()

        @worker.task("mails")
        def send() -> None: ...

        with (
            worker.redirected(client, AsyncClient, SystemClock()),
            pytest.raises(errors.ServerUnreachable, match="for enqueue on queue mails;"),
        ):
            send.enqueue() if sync else asyncio.run(send.enqueue_async())
        with pytest.raises(errors.ServerUnreachable, match="for retry_failed on queue mails;"):
            client.retry_failed("mails")
        with pytest.raises(errors.ServerUnreachable, match="for pause_queue on queue mails;"):
            client.pause_queue("mails")
        with pytest.raises(errors.ServerUnreachable, match="for queue_names;"):
            client.queue_names()


async def test_a_client_may_be_told_not_to_wait_for_servers(closed_port: int) -> None:
    """The client's timeout is longer than the test's."""
    async with AsyncClient(f"127.0.0.1:{closed_port}", timeout_ms=600_000, wait_for_servers=False) as client:
        with pytest.raises(errors.ServerUnreachable):
            await client.queue_names()
        waiting = client.sharing(wait_for_servers=True)
        assert waiting is not client


async def test_many_calls_that_wait_for_a_server_try_no_more_often_than_a_bounded_number_of_rounds() -> None:
    script = Script()
    script.away.add("a")
    async with AsyncClient("a:1", timeout_ms=1_000, connect=script.connect) as client:
        ends = await asyncio.gather(*(client.enqueue("q", [b"x"]) for _ in range(300)), return_exceptions=True)
    assert {type(end) for end in ends} == {errors.ServerUnreachable}
    assert 2 <= len(script.tried) <= 25
