"""The clients when servers are killed, networks hang, processes fork and threads close what others use."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import re
import signal
import socket
import threading
import time
import traceback
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import pinlater.client
from pinlater import EnqueueBatcher
from pinlater.client import AsyncClient, Client, Job, JobState, UniqueKey, errors
from pinlater.domain.clock import SystemClock
from pinlater.testing import RealServer
from tests import structs as t
from tests.client.fake_server import FakeServer
from tests.client.scripted import Script
from tests.databases.ports import free_port
from tests.databases.proxy import Proxy
from tests.wire.golden.client_calls import CALLS, ClientCall

INFO = t.ServerInfo("9", [], "memory", 1, 1, 3, 1, 1, 1, 1, 1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with RealServer(tmp_path_factory.mktemp("failures")) as server:
        yield server


async def test_an_enqueue_that_may_have_been_stored_never_ends_with_the_words_that_it_was_not_sent() -> None:
    """The answer to the first try is lost and no server is there for the second."""
    server = FakeServer(getServerInfo=lambda _: INFO, enqueueJobs=lambda _: t.Enqueued(descriptors=["q:s1:p1:1"]))

    def store_and_die(_: Any) -> Any:
        server.stop_listening()
        return FakeServer.HANG_UP

    async with server, AsyncClient(server.address, timeout_ms=1_000, connections=1) as client:
        await client.enqueue("q", [b"x"])
        while not server.called("getServerInfo"):  # whether the server knows request keys
            await asyncio.sleep(0.001)
        assert (await client.server_info()).version == "9"
        server.methods["enqueueJobs"] = store_and_die
        with pytest.raises(errors.ConnectionLost) as raised:
            await client.enqueue("q", [b"x"])
    assert isinstance(raised.value.__cause__, errors.ServerUnreachable)


@pytest.mark.parametrize(
    ("code", "detail", "unique_keys", "repeats"),
    [
        (501, "NO_HEALTHY_SHARDS", [], [None, None, None]),
        (501, "NO_HEALTHY_SHARDS", ["k"], [None, None, None]),
        (502, "SHARD_UNREACHABLE", [], [None, None, None]),
        (502, "SHARD_UNREACHABLE", ["k"], [None, None, None]),
        (502, "SHARD_REFUSED", ["k", "k"], [None, None, None]),
        (502, "REQUEST_TOO_OLD", ["k"], [None, None, None]),
        (502, "SHARD_UNREACHABLE", ["k", "other"], [None, True, True]),
        (502, "OUTCOME_UNKNOWN", ["k"], [None, True, True]),
        (502, None, [], [None, True, True]),
    ],
)
async def test_an_enqueue_is_no_repeat_after_an_answer_that_nothing_was_stored(
    code: int, detail: str | None, unique_keys: list[str], repeats: list[bool | None]
) -> None:
    """For a repeat the server asks all shards, so a single one that is away would refuse it. Jobs with several unique keys are stored
    shard by shard, and an original server says no detail."""
    seen: list[bool | None] = []

    def enqueue(arguments: Any) -> Any:
        seen.append(arguments.request.repeated)
        if len(seen) < 3:
            raise t.PinLaterException(error_code=code, message="away", detail=detail)
        return t.Enqueued(descriptors=["q:s1:p1:1"] * (len(unique_keys) or 1))

    jobs = [Job(b"x", unique=UniqueKey(key)) for key in unique_keys] or [Job(b"x")]
    async with (
        FakeServer(getServerInfo=lambda _: INFO, enqueueJobs=enqueue) as server,
        AsyncClient(server.address) as client,
    ):
        assert (await client.enqueue("q", jobs)).descriptors
    assert seen == repeats


async def test_after_a_lost_answer_a_refusal_that_stored_nothing_changes_nothing() -> None:
    """Once one try may have stored the jobs, all later ones are repeats."""
    seen: list[bool | None] = []
    away = t.PinLaterException(error_code=502, message="away", detail="SHARD_UNREACHABLE")
    outcomes: list[Any] = [away, FakeServer.HANG_UP, away, t.Enqueued(descriptors=["q:s1:p1:1"])]

    def enqueue(arguments: Any) -> Any:
        seen.append(arguments.request.repeated)
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async with (
        FakeServer(getServerInfo=lambda _: INFO, enqueueJobs=enqueue) as server,
        AsyncClient(server.address) as client,
    ):
        await client.enqueue("q", [Job(b"x", unique=UniqueKey("k"))])
    assert seen == [None, None, True, True]


async def test_the_error_of_an_enqueue_with_an_unknown_outcome_begins_with_what_that_means() -> None:
    """The server's text only says what broke. Other calls may be repeated, or say that by themselves."""
    lost = t.PinLaterException(error_code=502, message="(2013) lost; (2002) refused", detail="OUTCOME_UNKNOWN")
    said = (
        "The jobs may be stored; to enqueue them again is safe only with the same request key, or if they have unique keys: "
        "(2013) lost; (2002) refused"
    )

    def refuse(_: Any) -> Any:
        raise lost

    async with (
        FakeServer(getServerInfo=lambda _: INFO, enqueueJobs=refuse, createQueue=refuse) as server,
        AsyncClient(server.address, retries=1) as client,
    ):
        with pytest.raises(errors.OutcomeUnknown) as raised:
            await client.enqueue("q", [b"x"])
        with Client(server.address, retries=1) as blocking, pytest.raises(errors.OutcomeUnknown) as raised_too:
            await asyncio.to_thread(blocking.enqueue, "q", [b"x"])
        with pytest.raises(errors.OutcomeUnknown, match=r"^\(2013\) lost"):
            await client.create_queue("q")
    assert [str(raised.value), raised.value.message, str(raised_too.value)] == [said] * 3


@pytest.mark.parametrize("lost", ["answer", "time"])
async def test_the_error_of_an_enqueue_without_an_answer_says_that_the_jobs_may_be_stored(lost: str) -> None:
    async def enqueue(_: Any) -> Any:
        if lost == "time":
            await asyncio.Event().wait()
        return FakeServer.HANG_UP

    async with (
        FakeServer(getServerInfo=lambda _: INFO, enqueueJobs=enqueue) as server,
        AsyncClient(server.address, retries=0, timeout_ms=300) as client,
    ):
        expected = errors.ConnectionLost if lost == "answer" else errors.DeadlineExceeded
        with pytest.raises(
            expected, match=r"^The jobs may be stored; .*: (Connection to|No answer to enqueue on queue q)"
        ):
            await client.enqueue("q", [b"x"])
        with (
            Client(server.address, retries=0, timeout_ms=300) as blocking,
            pytest.raises(expected, match=r"^The jobs may"),
        ):
            await asyncio.to_thread(blocking.enqueue, "q", [b"x"])


async def test_a_call_that_is_refused_until_its_newest_try_has_no_answer_tells_the_refusal() -> None:
    away = t.PinLaterException(error_code=502, message="shard 2 is away", detail="SHARD_UNREACHABLE", retryable=True)
    outcomes: list[Any] = [away, asyncio.Event().wait()]

    def count(_: Any) -> Any:
        outcome = outcomes.pop(0)
        if outcome is away:
            raise away
        return outcome

    async with FakeServer(getJobCount=count) as server, AsyncClient(server.address, timeout_ms=1_000) as client:
        with pytest.raises(errors.DeadlineExceeded) as raised:
            await client.count("q")
    assert raised.value.message == "No answer to count on queue q within 1 s; the try before: shard 2 is away"


async def test_a_client_that_does_not_wait_says_that_a_lost_enqueue_may_be_stored() -> None:
    """A caller that reads the refusal of a repeat as "nothing was stored" makes a new request, and stores the jobs twice."""
    away = t.PinLaterException(error_code=502, message="away", detail="SHARD_UNREACHABLE", retryable=True)
    outcomes: list[Any] = [FakeServer.HANG_UP]

    def enqueue(_: Any) -> Any:
        if outcomes:
            return outcomes.pop()
        raise away

    async with (
        FakeServer(getServerInfo=lambda _: INFO, enqueueJobs=enqueue) as server,
        AsyncClient(server.address, wait_for_servers=False) as client,
    ):
        with pytest.raises(errors.ConnectionLost) as raised:
            await client.enqueue("q", [b"x"])
    assert isinstance(raised.value.__cause__, errors.ShardConnectionFailed)


@pytest.mark.parametrize("method", ["enqueue", "count"])
async def test_a_call_whose_deadline_passes_after_refusals_says_why_it_was_refused(method: str) -> None:
    def refuse(_: Any) -> Any:
        raise t.PinLaterException(
            error_code=502, message="Shard 2 is unreachable", detail="SHARD_UNREACHABLE", retry_after_ms=60_000
        )

    async with (
        FakeServer(getServerInfo=lambda _: INFO, enqueueJobs=refuse, getJobCount=refuse) as server,
        AsyncClient(server.address, timeout_ms=500) as client,
    ):
        with pytest.raises(errors.ShardConnectionFailed, match="Shard 2 is unreachable"):
            await (client.enqueue("q", [b"x"]) if method == "enqueue" else client.count("q", JobState.PENDING))


async def test_a_connection_that_hangs_costs_its_calls_their_deadline_and_the_next_ones_nothing(
    server: RealServer,
) -> None:
    async with Proxy(server.address) as proxy:
        async with AsyncClient(proxy.address, timeout_ms=300, connections=1) as client:
            await client.create_queue("q")
            proxy.swallow_open()
            answers = await asyncio.gather(*[client.count("q") for _ in range(5)], return_exceptions=True)
            assert {type(answer) for answer in answers} == {errors.DeadlineExceeded}
            assert await client.count("q") == 0
        assert proxy.connections == 2


def test_many_threads_ride_over_a_restart_and_each_job_is_stored_once(tmp_path: Path) -> None:
    with RealServer(tmp_path) as server, Client(server.address, timeout_ms=5_000) as client:
        client.create_queue("q")
        killed, done = threading.Event(), threading.Semaphore(0)

        def enqueue(number: int) -> int:
            for n in range(25):
                key, repeat = f"{number}-{n}", False
                while True:
                    try:
                        client.enqueue("q", [key.encode()], request_key=key, repeat=repeat)
                    except errors.WorldError:
                        repeat = True
                    else:
                        break
                if n == 5:
                    done.release()
                    assert killed.wait(30)
            return number

        with ThreadPoolExecutor(16) as threads:
            calls = [threads.submit(enqueue, number) for number in range(16)]
            for _ in calls:
                assert done.acquire(timeout=30)
            killed.set()
            server.kill()
            server.start()
            assert [call.result(timeout=60) for call in calls] == list(range(16))
        assert client.count("q") == 16 * 25
        seen = {info.body for info in client.scan("q", JobState.PENDING, limit=1000, bodies=True).jobs}
        assert len(seen) == 16 * 25


class StandingClock(SystemClock):
    """Time that can be made to stand still for a thread that asks for it."""

    def __init__(self) -> None:
        self.asked, self.goes_on = threading.Event(), threading.Event()
        self.goes_on.set()
        super().__init__(monotonic=self._now)

    def _now(self) -> float:
        if not self.goes_on.is_set():
            self.asked.set()
            assert self.goes_on.wait(30)
        return time.monotonic()


def test_a_fork_while_another_thread_starts_the_client_harms_neither(server: RealServer) -> None:
    """It starts with its first call, and meanwhile holds what other threads would wait for."""
    clock = StandingClock()
    with Client([server.address, "127.0.0.1:1"], clock=clock) as client, ThreadPoolExecutor(1) as threads:
        clock.goes_on.clear()
        starting = threads.submit(client.create_queue, "fork")
        assert clock.asked.wait(30)

        def call() -> None:
            clock.goes_on.set()
            client.create_queue("fork")

        child = in_a_child(call)
        clock.goes_on.set()
        starting.result(timeout=30)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def in_a_child(work: Callable[[], object]) -> int:
    """Forks; the child does the work and ends at once. Its process id. A child that hangs is ended by the kernel."""
    child = os.fork()
    if child:
        return child
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)
        work()
        os._exit(0)
    except BaseException:  # noqa: BLE001 - the exit code is all that gets out of here
        traceback.print_exc()
        os._exit(1)


@pytest.mark.timeout(180)
def test_forks_while_many_threads_have_calls_in_flight_harm_neither_parent_nor_children(server: RealServer) -> None:
    """Calls in the threads' own connections, calls and a long poll on the client's loop, and a batcher's requests: wherever the fork meets
    them, the parent's go on and the child's begin anew, and each job is stored once and answered to the process that enqueued it."""
    each, children, stop = 20, 12, threading.Event()
    with Client(server.address) as client, EnqueueBatcher(client) as batcher:
        client.create_queue("forks")
        client.create_queue("never")
        stored: list[bytes] = []

        def enqueue(name: str) -> list[bytes]:
            """Until it is told to stop; each call's answer must be its own."""
            bodies: list[bytes] = []
            while not stop.is_set():
                body = f"{name}-{len(bodies)}".encode()
                if len(bodies) % 3 == 2:
                    [descriptor] = client.submit(client.enqueue_call("forks", [body])).result(timeout=60).descriptors
                elif len(bodies) % 3 == 1:
                    descriptor = batcher.enqueue("forks", body).descriptor
                else:
                    [descriptor] = client.enqueue("forks", [body]).descriptors
                assert client.lookup([descriptor], bodies=True)[descriptor].body == body
                bodies.append(body)
            return bodies

        def in_child(name: str) -> None:
            with ThreadPoolExecutor(3) as threads:
                for done in [threads.submit(one, f"{name}-{number}") for number in range(3)]:
                    done.result(timeout=60)

        def one(name: str) -> None:
            for number in range(each // 2):
                client.enqueue("forks", [f"{name}-{number}-direct".encode()])
                batcher.enqueue("forks", f"{name}-{number}-batched".encode())
            assert not client.dequeue("never", wait_ms=1).jobs

        with ThreadPoolExecutor(8) as threads:
            callers = [threads.submit(enqueue, f"parent-{number}") for number in range(6)]
            poll = threads.submit(client.dequeue, "never", wait_ms=60_000)
            forked = []
            for number in range(children):
                before = client.count("forks")
                while client.count("forks") <= before and not any(caller.done() for caller in callers):
                    pass  # the callers are at it
                forked.append(in_a_child(partial(in_child, f"child-{number}")))
            ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in forked]
            stop.set()
            for caller in callers:
                stored += caller.result(timeout=60)
            client.enqueue("never", [b"at last"])
            assert [job.body for job in poll.result(timeout=60).jobs] == [b"at last"]
        assert ended == [0] * children
        bodies = Counter(bodies_of(client, "forks"))
        assert set(bodies.values()) == {1}
        assert set(stored) <= set(bodies)
        assert len(bodies) == len(stored) + children * 3 * each


def bodies_of(client: Client, queue: str) -> Iterator[bytes]:
    """Of all waiting jobs."""
    continuation = "0"
    while continuation != "-1":
        page = client.scan(queue, JobState.PENDING, limit=1_000, bodies=True, paged=True, continuation=continuation)
        yield from (job.body or b"" for job in page.jobs)
        continuation = page.continuation


def test_a_client_that_is_dropped_takes_its_thread_along(server: RealServer) -> None:
    before = set(threading.enumerate())
    client = Client(server.address)
    client.queue_names()
    (thread,) = set(threading.enumerate()) - before
    del client
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()


class Body(str):
    __slots__ = ("__weakref__",)


def test_a_call_that_met_its_deadline_keeps_no_job_once_its_error_is_gone() -> None:
    """Without the garbage collector, which counts objects and not bytes."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = Client(f"127.0.0.1:{silent.getsockname()[1]}", wait_for_servers=False, retries=0, timeout_ms=200)
        gc.disable()
        try:
            job = Job(b"x", custom_status=Body("large"))
            held = weakref.ref(job.custom_status)
            with contextlib.suppress(errors.DeadlineExceeded):
                client.enqueue("q", [job])
                pytest.fail("the server is silent")
            del job
            assert held() is None
        finally:
            gc.enable()
            client.close()


def test_submitted_calls_that_fail_keep_no_jobs_once_their_errors_are_gone() -> None:
    """But for those of one call."""
    with Client(f"127.0.0.1:{free_port()}", wait_for_servers=False, retries=0) as client:

        def submit(body: Body) -> None:
            with contextlib.suppress(errors.ServerUnreachable):
                client.submit(client.enqueue_call("q", [Job(b"x", custom_status=body)])).result(30)
                pytest.fail("no server is there")

        bodies = [Body("large") for _ in range(5)]
        held = [weakref.ref(body) for body in bodies]
        gc.disable()
        try:
            while bodies:
                submit(bodies.pop(0))
            assert sum(body() is not None for body in held) <= 1
        finally:
            gc.enable()


def test_the_names_of_the_package_are_listed() -> None:
    assert set(pinlater.client.__all__) <= set(dir(pinlater.client))


def test_calls_that_meet_a_close_end_every_one_of_them(server: RealServer) -> None:
    for _ in range(5):
        client = Client(server.address)
        client.queue_names()
        begun = threading.Barrier(5)
        futures: list[Future[Any]] = []

        def call(client: Client = client, begun: threading.Barrier = begun, futures: list[Any] = futures) -> None:
            begun.wait()
            with contextlib.suppress(errors.ClientClosed):
                while True:
                    futures.append(client.submit(client.enqueue_call("missing", [b"x"])))

        callers = [threading.Thread(target=call) for _ in range(4)]
        for caller in callers:
            caller.start()
        begun.wait()
        client.close()
        for caller in callers:
            caller.join(10)
        for future in futures:
            with contextlib.suppress(errors.PinLaterError):
                future.result(timeout=10)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.method} {call.note}".strip())
async def test_every_call_is_shown_by_the_name_of_the_method_that_the_user_called(call: ClientCall) -> None:
    script = Script()
    script.away.add("a")
    async with AsyncClient("a", connect=script.connect, timeout_ms=1) as client:
        with pytest.raises(errors.ServerUnreachable) as raised:
            await call.ask(client)
    [shown] = re.findall(r" for (\w+)[ ;]", raised.value.message)
    assert hasattr(client, shown)
