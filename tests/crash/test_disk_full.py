"""A disk that fills up under the server: a file system of a few megabytes, made for the test."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from bench.servers import PinLaterServer
from pinlater.client import BulkAction, BulkOrder, BulkRun, BulkState, Client, Job, JobState
from pinlater.domain.job_filter import JobFilter
from tests.crash.conftest import ServerMaker
from tests.crash.load_clients import QUEUE
from tests.crash.wire_client import GONE, WireClient, refusal_of
from tests.databases.disk import NoSmallDisk, SmallDisk

pytestmark = pytest.mark.crash

ENQUEUE_REJECTED = 430
BODY = "x" * 50_000
T = TypeVar("T")
Refusal = tuple[int, str, bool]
"""Code, detail, retryable."""
FULL_SECONDS_MAX = 30.0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A file system of 16 MB. Needs the right to mount one."""
    try:
        disk = SmallDisk(tmp_path / "disk", 16)
    except NoSmallDisk as missing:
        pytest.skip(str(missing))
    try:
        yield disk
    finally:
        disk.remove()


def ask(call: Callable[[], T]) -> tuple[T | None, Refusal | None]:
    """The answer, or the refusal; no answer at all is an error, for a full disk must not cost a connection."""
    try:
        return call(), None
    except GONE as error:
        refusal = refusal_of(error)
        if refusal is None:
            raise
        return None, refusal


def enqueue_until_full(client: WireClient) -> tuple[dict[str, str], Refusal]:
    """Enqueues until the server refuses; what it accepted, and how it refused."""
    accepted: dict[str, str] = {}
    deadline = time.monotonic() + FULL_SECONDS_MAX
    while time.monotonic() < deadline:
        body = f"{len(accepted)}{BODY}"
        descriptors, refusal = ask(partial(client.enqueue, QUEUE, [body]))
        if descriptors is None:
            assert refusal is not None
            return accepted, refusal
        accepted[descriptors[0]] = body
    raise AssertionError(f"{len(accepted)} jobs went into a disk that can't hold them")


def enqueue_at_last(client: WireClient, body: str) -> str:
    """Enqueues as soon as the server takes it again."""
    deadline = time.monotonic() + FULL_SECONDS_MAX
    while True:
        descriptors, refusal = ask(lambda: client.enqueue(QUEUE, [body]))
        if descriptors is not None:
            return descriptors[0]
        assert time.monotonic() < deadline, f"there is space again, but still {refusal}"


def run_all(client: WireClient) -> dict[str, str]:
    """Claims and acks everything that waits; the bodies by descriptor."""
    bodies: dict[str, str] = {}
    while jobs := client.claim(QUEUE, 50):
        for job in jobs:
            assert job.descriptor not in bodies
            bodies[job.descriptor] = job.body
        outcomes = client.ack(QUEUE, [(job.descriptor, job.token, True) for job in jobs])
        assert {each.outcome for each in outcomes} == {0}
    return bodies


def test_a_full_disk_refuses_enqueues_loses_nothing_and_recovers(
    small_disk: SmallDisk, start_server: ServerMaker
) -> None:
    """ENQUEUE_REJECTED with STORE_FULL; no restart is needed."""
    server = start_server(small_disk.folder / "store.db")
    with WireClient(server.port) as client:
        small_disk.fill(leave_bytes=3_000_000)
        accepted, refusal = enqueue_until_full(client)
        assert refusal == (ENQUEUE_REJECTED, "STORE_FULL", True)
        assert accepted, "the disk was full from the start, so nothing was shown"
        assert client.lookup(list(accepted)).keys() == accepted.keys(), "reading needs no space"
        with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/metrics", timeout=10) as answer:
            assert b'pinlater_shard_full{shard="1"} 1.0' in answer.read()
        small_disk.free()
        last = enqueue_at_last(client, "after")
        assert run_all(client) == accepted | {last: "after"}


def test_jobs_accepted_on_a_full_disk_survive_a_kill(small_disk: SmallDisk, start_server: ServerMaker) -> None:
    """Killed while the disk is full, started again when there is space."""
    server = start_server(small_disk.folder / "store.db")
    small_disk.fill(leave_bytes=2_000_000)
    with WireClient(server.port) as client:
        accepted, _ = enqueue_until_full(client)
    server.kill()
    small_disk.free()
    restarted: PinLaterServer = server.start()
    with WireClient(restarted.port) as client:
        assert run_all(client) == accepted


def test_acks_refused_by_a_full_disk_can_be_repeated(small_disk: SmallDisk, start_server: ServerMaker) -> None:
    """Such an ack fails as retryable; no other worker gets the job."""
    server = start_server(small_disk.folder / "store.db")
    with WireClient(server.port) as client:
        client.enqueue(QUEUE, [f"job {number}" for number in range(500)])
        jobs = client.claim(QUEUE, 500)
        acks = [(job.descriptor, job.token, True) for job in jobs]
        small_disk.fill()
        enqueue_until_full(client)
        outcomes, refusal = ask(lambda: client.ack(QUEUE, acks))
        if outcomes is None:
            assert refusal is not None
            assert refusal[1:] == ("STORE_FULL", True)
            small_disk.free()
            enqueue_at_last(client, "after")
            outcomes = client.ack(QUEUE, acks)
        assert {each.outcome for each in outcomes} == {0}


def test_a_bulk_run_waits_while_the_disk_is_full_and_then_changes_each_job_once(
    small_disk: SmallDisk, start_server: ServerMaker
) -> None:
    """It neither ends nor counts a change that could not be stored."""
    server = start_server(small_disk.folder / "store.db")
    with Client(f"127.0.0.1:{server.port}", retries=0) as client:
        names = [name for _ in range(6) for name in client.enqueue(QUEUE, [Job(b"x" * 100)] * 500).descriptors]
        order = BulkOrder(QUEUE, BulkAction.DELETE, JobFilter(JobState.PENDING), jobs_per_second=500.0, for_good=True)
        run = client.start_bulk_run(order)
        seen = bulk_run_once(client, lambda now: now.changed > 0)
        small_disk.fill()
        with WireClient(server.port) as filling:
            enqueue_until_full(filling)
        before = bulk_run_once(client, lambda now: now.changed >= seen.changed)
        refused_until = time.monotonic() + 3.0
        while time.monotonic() < refused_until:
            assert bulk_run_once(client, lambda _: True).ended_ms is None, "it has ended on a full disk"
            time.sleep(0.05)
        assert before.changed < len(names)
        small_disk.free()
        ended = bulk_run_once(client, lambda now: now.ended_ms is not None)
        assert (ended.id, ended.state, ended.changed) == (run.id, BulkState.DONE, len(names))
        assert not client.lookup(names)
        ends = [entry for entry in client.audit(operation="bulkRun").entries if run.id in entry.arguments]
        assert [entry.jobs for entry in ends] == [len(names)]


def test_a_bulk_run_that_keeps_copies_ends_or_waits_on_a_full_disk_and_what_it_deleted_comes_back(
    small_disk: SmallDisk, start_server: ServerMaker
) -> None:
    server = start_server(small_disk.folder / "store.db")
    with Client(f"127.0.0.1:{server.port}", retries=0) as client:
        names = [name for _ in range(6) for name in client.enqueue(QUEUE, [Job(b"x" * 100)] * 500).descriptors]
        client.start_bulk_run(BulkOrder(QUEUE, BulkAction.DELETE, JobFilter(JobState.PENDING), jobs_per_second=200.0))
        bulk_run_once(client, lambda now: now.changed > 0)
        small_disk.fill()
        with WireClient(server.port) as filling:
            enqueue_until_full(filling)
        try:
            ended = bulk_run_once(client, lambda now: now.ended_ms is not None, seconds=10.0)
        except TimeoutError:  # the disk takes not even the row that says how far the run is: it waits for space
            small_disk.free()
            ended = bulk_run_once(client, lambda now: now.ended_ms is not None)
            assert (ended.state, ended.changed) == (BulkState.DONE, ended.looked)
        else:
            assert ended.state is BulkState.FAILED
            assert "delete for good" in ended.detail
        assert len(client.lookup(names)) == len(names) - ended.changed
        small_disk.free()
        with WireClient(server.port) as freed:
            enqueue_at_last(freed, "after")
        undo = client.undo_bulk_run(QUEUE, ended.id)
        deadline = time.monotonic() + FULL_SECONDS_MAX
        while any(run.ended_ms is None for run in client.bulk_runs(QUEUE)):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        [done] = [run for run in client.bulk_runs(QUEUE) if run.id == undo.id]
        assert (done.state, done.changed) == (BulkState.DONE, ended.changed)
        assert len(client.lookup(names)) == len(names)


def bulk_run_once(
    client: Client, condition: Callable[[BulkRun], bool], *, seconds: float = FULL_SECONDS_MAX
) -> BulkRun:
    """The only run of the queue once the condition holds. Raises `TimeoutError`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        [now] = client.bulk_runs(QUEUE)
        if condition(now):
            return now
        time.sleep(0.05)
    raise TimeoutError(str(now))
