"""Enqueues of plain code that ride together: from many threads, or handed in by one; nothing handed in is dropped in silence."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pinlater.client import Client, EnqueueBatcher, Job, Placed, errors
from pinlater.testing import RealServer
from tests import structs as t
from tests.client.fake_server import FakeServer
from tests.client.test_batching import BAD_JOBS, INFO, Name, Spoilt, sizes, storing


@contextmanager
def batching(server: FakeServer, client: Client | None = None, **options: Any) -> Iterator[EnqueueBatcher]:
    """A batcher whose leaving does not wait: the fake server answers on the test's own loop."""
    client = client or Client(server.address)
    try:
        yield EnqueueBatcher(client, **options)
    finally:
        client.close()


async def answers_to(submitted: list[Future[Placed]]) -> list[Any]:
    async with asyncio.timeout(30):
        return await asyncio.gather(*map(asyncio.wrap_future, submitted), return_exceptions=True)


async def asked(server: FakeServer, times: int = 1) -> None:
    """Returns when this number of enqueues has arrived."""
    async with asyncio.timeout(30):
        while len(server.called("enqueueJobs")) < times:
            await asyncio.sleep(0.001)


async def test_jobs_of_one_thread_share_requests_and_each_gets_its_own_answer() -> None:
    gate = asyncio.Event()
    async with FakeServer(enqueueJobs=storing(gate=gate), getServerInfo=lambda _: INFO) as server:
        with batching(server, in_flight_max=1) as batcher:
            submitted = [batcher.submit("q", b"%d" % n) for n in range(601)]
            await asked(server)
            gate.set()
            placed = await answers_to(submitted)
    assert [one.descriptor.partition(":")[0] for one in placed] == [str(n) for n in range(601)]
    assert sizes(server) == [1, 500, 100]


async def test_threads_share_it() -> None:
    async with FakeServer(enqueueJobs=storing(), getServerInfo=lambda _: INFO) as server:
        with batching(server) as batcher, ThreadPoolExecutor(16) as threads:
            loop = asyncio.get_running_loop()
            calls = [loop.run_in_executor(threads, batcher.enqueue, f"q{n % 2}", b"%d" % n) for n in range(400)]
            async with asyncio.timeout(30):
                placed = await asyncio.gather(*calls)
    assert [one.descriptor.partition(":")[0] for one in placed] == [str(n) for n in range(400)]
    assert sum(sizes(server)) == 400


async def test_a_refused_job_harms_no_other_job_of_its_batch() -> None:
    async with FakeServer(enqueueJobs=storing(poison=b"bad"), getServerInfo=lambda _: INFO) as server:
        with batching(server) as batcher:
            bodies = [b"%d" % n for n in range(20)] + [b"bad", b"twin"]
            answers = await answers_to([batcher.submit("q", Job(body)) for body in bodies])
    assert [type(answer) for answer in answers if not isinstance(answer, Placed)] == [errors.BodyTooLarge]
    assert isinstance(answers[20], errors.CallerError)
    assert (answers[21].existing, answers[0].existing) == (True, False)
    assert len(sizes(server)) < 15


@pytest.mark.parametrize("bad", BAD_JOBS, ids=repr)
async def test_a_job_that_cant_be_sent_is_refused_at_submit(bad: Any) -> None:
    gate = asyncio.Event()
    async with FakeServer(enqueueJobs=storing(gate=gate), getServerInfo=lambda _: INFO) as server:
        with batching(server, in_flight_max=1) as batcher:
            others = [batcher.submit("q", b"%d" % n) for n in range(50)]
            with pytest.raises((TypeError, errors.CallerError)):
                batcher.submit("q", bad)
            others += [batcher.submit("q", b"%d" % n) for n in range(50)]
            gate.set()
            placed = await answers_to(others)
    assert [type(one) for one in placed] == [Placed] * 100


async def test_a_job_that_turns_bad_before_it_is_sent_harms_no_other_job_of_its_batch() -> None:
    headers, gate = Spoilt(good="good"), asyncio.Event()
    async with FakeServer(enqueueJobs=storing(gate=gate), getServerInfo=lambda _: INFO) as server:
        with batching(server, in_flight_max=1) as batcher:
            jobs = [Job(b"%d" % n, headers=headers if n == 100 else None) for n in range(200)]
            submitted = [batcher.submit("q", job) for job in jobs]
            await asked(server)
            headers.spoil()
            gate.set()
            answers = await answers_to(submitted)
    assert [n for n, answer in enumerate(answers) if not isinstance(answer, Placed)] == [100]


async def test_a_missing_queue_is_told_to_all_that_wait_for_it() -> None:
    gate = asyncio.Event()

    async def missing(_: Any) -> None:
        await gate.wait()
        raise t.PinLaterException(413, "no such queue")

    async with FakeServer(enqueueJobs=missing) as server:
        with batching(server, in_flight_max=1) as batcher:
            submitted = [batcher.submit("q", b"x") for _ in range(9)]
            gate.set()
            answers = await answers_to(submitted)
    assert {type(answer) for answer in answers} == {errors.QueueNotFound}
    assert len(sizes(server)) <= 2


async def test_a_full_batcher_blocks_a_thread_and_raises_on_an_event_loop() -> None:
    gate = asyncio.Event()
    async with FakeServer(enqueueJobs=storing(gate=gate), getServerInfo=lambda _: INFO) as server:
        with batching(server, waiting_max=2, in_flight_max=1) as batcher:
            submitted = [batcher.submit("q", b"%d" % n) for n in range(3)]
            with pytest.raises(errors.TooManyWaiting):
                batcher.submit("q", b"more")
            late = asyncio.create_task(asyncio.to_thread(batcher.enqueue, "q", b"late"))
            await asked(server)
            gate.set()
            assert (await late).descriptor.startswith("late:")
            assert len(await answers_to(submitted)) == 3


async def test_a_job_cancelled_while_it_waits_is_not_sent() -> None:
    gate = asyncio.Event()
    async with FakeServer(enqueueJobs=storing(gate=gate), getServerInfo=lambda _: INFO) as server:
        with batching(server, in_flight_max=1) as batcher:
            first, *waiting = [batcher.submit("q", b"%d" % n) for n in range(4)]
            assert (first.cancel(), waiting[1].cancel()) == (False, True)
            gate.set()
            await answers_to([first, waiting[0], waiting[2]])
    assert sizes(server) == [1, 2]


async def test_flush_and_close_wait_for_what_was_handed_in_before() -> None:
    gate = asyncio.Event()
    async with FakeServer(enqueueJobs=storing(gate=gate), getServerInfo=lambda _: INFO) as server:
        with batching(server, in_flight_max=1) as batcher:
            submitted = [batcher.submit("q", b"x") for _ in range(5)]
            flushing = asyncio.create_task(asyncio.to_thread(batcher.flush))
            await asked(server)
            assert not flushing.done()
            gate.set()
            await flushing
            assert all(one.done() for one in submitted)
            last = batcher.submit("q", b"x")
            await asyncio.to_thread(batcher.close)
            assert last.done()
            with pytest.raises(errors.ClientClosed):
                batcher.submit("q", b"x")


async def test_a_closed_client_fails_all_submitted_jobs() -> None:
    never = asyncio.Event()
    async with FakeServer(enqueueJobs=storing(gate=never), getServerInfo=lambda _: INFO) as server:
        client = Client(server.address)
        with batching(server, client, in_flight_max=1) as batcher:
            submitted = [batcher.submit("q", b"%d" % n) for n in range(5)]
            await asked(server)
            await asyncio.to_thread(client.close)
            answers = await answers_to(submitted)
            assert all(isinstance(answer, errors.PinLaterError) for answer in answers)
            await asyncio.to_thread(batcher.flush)


class InterruptedOnce(Client):
    """Ctrl-C meets its first `submit`."""

    interrupted = False

    def submit(self, call: Any) -> Any:
        if self.interrupted:
            return super().submit(call)
        self.interrupted = True
        raise KeyboardInterrupt


async def test_after_an_interrupted_submit_the_next_job_is_stored_and_nothing_is_left() -> None:
    async with FakeServer(enqueueJobs=storing(), getServerInfo=lambda _: INFO) as server:
        with batching(server, InterruptedOnce(server.address)) as batcher:
            queue = Name("q")
            held = weakref.ref(queue)
            with pytest.raises(KeyboardInterrupt):
                batcher.submit(queue, b"x")
            (placed,) = await answers_to([batcher.submit(queue, b"y")])
            assert placed.descriptor.startswith("y:")
            del queue
            server.calls.clear()
            async with asyncio.timeout(30):
                while held() is not None:
                    await asyncio.sleep(0.001)
                    gc.collect()


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with RealServer(tmp_path_factory.mktemp("batching")) as server:
        yield server


def test_submitted_jobs_are_stored_although_the_program_ends(real: RealServer, tmp_path: Path) -> None:
    program = tmp_path / "ends.py"
    program.write_text(
        "import sys\nfrom pinlater import Client, EnqueueBatcher\n"
        "batcher = EnqueueBatcher(Client(sys.argv[1]))\n"
        "for n in range(3_000): batcher.submit('ends', b'%d' % n)\n"
    )
    with Client(real.address) as client:
        client.create_queue("ends")
        subprocess.run([sys.executable, program, real.address], check=True, timeout=30)
        assert client.count("ends") == 3_000


@pytest.mark.parametrize("threads", [True, False], ids=["", "Python starts no thread any more, as 3.12 does"])
def test_functions_of_atexit_that_were_registered_before_the_import_store_jobs(
    real: RealServer, tmp_path: Path, threads: bool
) -> None:
    """They run last. Without threads, a batcher can't send: the job's future says what to do."""
    program = tmp_path / "late.py"
    program.write_text(
        "import atexit, sys, threading\n"
        "def refuse(thread): raise RuntimeError('no new thread')\n"
        "def last():\n"
        f"    if not {threads}: threading.Thread.start = refuse\n"
        "    client.enqueue('late', [b'2'])\n"
        "    with Client(sys.argv[1]) as another: another.enqueue('late', [b'3'])\n"
        "    print(batcher.submit('late', b'4').exception())\n"
        "atexit.register(last)\n"
        "from pinlater import Client, EnqueueBatcher\n"
        "client = Client(sys.argv[1])\n"
        "batcher = EnqueueBatcher(client)\n"
        "client.enqueue('late', [b'1'])\n"
    )
    with Client(real.address) as client:
        client.create_queue("late")
        before = client.count("late")
        ran = subprocess.run([sys.executable, program, real.address], check=True, timeout=30, capture_output=True)
        assert client.count("late") - before == (4 if threads else 3)
    assert ran.stderr == b""
    assert ran.stdout.startswith(b"None" if threads else b"The program ends: import pinlater's names before")


# What a child of multiprocessing does; it ends right after.
IN_A_CHILD = {
    "a batcher of its own": "hand_in(EnqueueBatcher(Client(address)), 3_000)",
    "the parent's batcher": "hand_in(OF_PARENT or EnqueueBatcher(Client(address)), 3_000)",
    "it ends by an exception": "hand_in(EnqueueBatcher(Client(address)), 3_000); raise SystemExit(3)",
    "a thread goes on": "hand_in_later(EnqueueBatcher(Client(address)), 3_000)",
    "a pool of threads goes on": "ThreadPoolExecutor(1).submit(hand_in, EnqueueBatcher(Client(address)), 3_000)",
}
PROGRAM = """
import multiprocessing, sys, threading
from concurrent.futures import ThreadPoolExecutor
from pinlater import Client, EnqueueBatcher

OF_PARENT = None

def hand_in(batcher, count):
    for n in range(count): batcher.submit(sys.argv[3], b"%d" % n)

def hand_in_later(batcher, count):
    main = threading.main_thread()
    threading.Thread(target=lambda: (main.join(), hand_in(batcher, count))).start()

def child(address):
    CHILD

if __name__ == "__main__":
    method, address = sys.argv[1:3]
    context = multiprocessing.get_context(method)
    OF_PARENT = EnqueueBatcher(Client(address))
    OF_PARENT.enqueue(sys.argv[3], b"of the parent")
    process = context.Process(target=child, args=(address,))
    process.start()
    process.join()
"""


@pytest.mark.parametrize("does", IN_A_CHILD)
@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_submitted_jobs_of_a_multiprocessing_child_are_stored_although_it_ends(
    real: RealServer, tmp_path: Path, method: str, does: str
) -> None:
    """Such a child runs no function of `atexit` as it ends."""
    program = tmp_path / "children.py"
    program.write_text(PROGRAM.replace("CHILD", IN_A_CHILD[does]))
    with Client(real.address) as client:
        queue = f"{method}_{list(IN_A_CHILD).index(does)}"
        client.create_queue(queue)
        subprocess.run([sys.executable, program, method, real.address, queue], check=True, timeout=60)
        assert client.count(queue) == 3_001


def test_a_forked_child_sends_what_it_hands_in_itself(real: RealServer) -> None:
    with Client(real.address) as client, EnqueueBatcher(client, in_flight_max=1) as batcher:
        client.create_queue("forks")
        going_on = threading.Event()
        busy = ThreadPoolExecutor(1).submit(_keep_busy, batcher, going_on)
        child = os.fork()
        if not child:
            try:
                batcher.enqueue("forks", b"child")
                batcher.flush()
                os._exit(0)
            except BaseException:  # noqa: BLE001 - the exit code is all that gets out of here
                os._exit(1)
        _, status = os.waitpid(child, 0)
        going_on.set()
        assert os.waitstatus_to_exitcode(status) == 0
        sent = busy.result()
        batcher.flush()
        assert client.count("forks") == sent + 1


def _keep_busy(batcher: EnqueueBatcher, until: threading.Event) -> int:
    sent = 0
    while not until.is_set() or not sent:
        batcher.submit("forks", b"parent")
        sent += 1
    return sent
