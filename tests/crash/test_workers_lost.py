"""Workers that die, sleep past their claim, or hang up in mid-request."""

from __future__ import annotations

import signal
import socket
import struct
import time
from collections.abc import Callable

import pytest

from bench import frames
from bench.servers import PinLaterServer
from pinlater.simulation.history import ALREADY_FINAL, APPLIED, STALE_CLAIM, SUCCEEDED
from tests.crash.load_clients import QUEUE
from tests.crash.wire_client import Job, WireClient
from tests.crash.worker_process import WorkerProcess

pytestmark = pytest.mark.crash

DEADLINE_SECONDS = 30.0


def claim_until(client: WireClient, wanted: int) -> tuple[list[Job], int]:
    """Claims until that many jobs were handed out; also how many answers it took."""
    jobs: list[Job] = []
    answers, deadline = 0, time.monotonic() + DEADLINE_SECONDS
    while len(jobs) < wanted:
        assert time.monotonic() < deadline, f"only {len(jobs)} of {wanted} jobs came back"
        found = client.claim(QUEUE, wanted, wait_ms=1_000)
        answers += bool(found)
        jobs += found
    return jobs, answers


def test_a_killed_workers_jobs_come_back_one_attempt_poorer(server: PinLaterServer, client: WireClient) -> None:
    client.enqueue(QUEUE, [f"job {number}" for number in range(20)], attempts=5, claim_timeout_ms=700)
    with WorkerProcess(server.port, QUEUE, 20) as worker:
        held = worker.claimed()
        assert {job.attempts_remaining for job in held} == {5}
        worker.process.send_signal(signal.SIGKILL)
        jobs, _ = claim_until(client, 20)
    assert {job.descriptor for job in jobs} == {job.descriptor for job in held}
    assert {job.attempts_remaining for job in jobs} == {4}


def test_a_thousand_jobs_of_a_dead_worker_come_back_spread(server: PinLaterServer, client: WireClient) -> None:
    """In small batches over the sweep's interval: one long poll that would take all of them at once never gets all of them."""
    for start in range(0, 1_000, 500):
        client.enqueue(QUEUE, [f"job {start + number}" for number in range(500)], claim_timeout_ms=2_000)
    with WorkerProcess(server.port, QUEUE, 1_000) as worker:
        held = worker.claimed()
        assert len(held) == 1_000
        worker.process.send_signal(signal.SIGKILL)
        jobs, answers = claim_until(client, 1_000)
    assert {job.descriptor for job in jobs} == {job.descriptor for job in held}
    assert len(jobs) == 1_000, "a job was handed out twice"
    assert answers > 1, "all thousand came back in one instant"


def test_a_stopped_workers_ack_is_refused_and_it_is_told_whose_the_job_is(
    server: PinLaterServer, client: WireClient
) -> None:
    """SIGSTOP past the claim, SIGCONT."""
    (descriptor,) = client.enqueue(QUEUE, ["body"], claim_timeout_ms=700)
    with WorkerProcess(server.port, QUEUE, 1) as zombie:
        assert [job.descriptor for job in zombie.claimed()] == [descriptor]
        zombie.process.send_signal(signal.SIGSTOP)
        (mine,), _ = claim_until(client, 1)
        zombie.process.send_signal(signal.SIGCONT)
        (outcome,) = zombie.go_on()
        assert outcome.outcome == STALE_CLAIM
        assert ":test:" in outcome.holder, "the zombie isn't told who holds the job now"
    assert [each.outcome for each in client.ack(QUEUE, [(descriptor, mine.token, True)])] == [APPLIED]


def test_a_stopped_workers_ack_of_a_job_that_another_has_finished_is_already_final(
    server: PinLaterServer, client: WireClient
) -> None:
    (descriptor,) = client.enqueue(QUEUE, ["body"], claim_timeout_ms=700)
    with WorkerProcess(server.port, QUEUE, 1) as zombie:
        zombie.claimed()
        zombie.process.send_signal(signal.SIGSTOP)
        (mine,), _ = claim_until(client, 1)
        client.ack(QUEUE, [(descriptor, mine.token, True)])
        zombie.process.send_signal(signal.SIGCONT)
        assert [each.outcome for each in zombie.go_on()] == [ALREADY_FINAL]
    assert client.lookup([descriptor])[descriptor].state == SUCCEEDED


def connection(server: PinLaterServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=30)


def hang_up(connection: socket.socket) -> None:
    """An orderly close."""
    connection.close()


def break_off(connection: socket.socket) -> None:
    """A reset, as of a process that crashed or a middlebox that lost its table."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


ENDINGS = pytest.mark.parametrize("end", [hang_up, break_off])


@ENDINGS
def test_half_a_request_does_nothing(
    server: PinLaterServer, client: WireClient, end: Callable[[socket.socket], None]
) -> None:
    """At any place of the frame; other connections never notice."""
    frame = frames.enqueue(QUEUE, [b"never"])
    for size in (1, 3, 4, 5, 20, len(frame) // 2, len(frame) - 1):
        broken = connection(server)
        broken.sendall(frame[:size])
        end(broken)
        assert client.count(QUEUE, 0) == 0


@ENDINGS
def test_a_waiting_dequeue_that_hangs_up_takes_no_job_with_it(
    server: PinLaterServer, client: WireClient, end: Callable[[socket.socket], None]
) -> None:
    """Claimed for the dead client, it would be gone for ten minutes."""
    for number in range(10):
        waiting = connection(server)
        waiting.sendall(frames.dequeue(QUEUE, 1, wait_ms=60_000))
        client.count(QUEUE, 0)  # a round trip, so that the wait is likely parked; if not, the next test's case
        end(waiting)
        (descriptor,) = client.enqueue(QUEUE, [f"job {number}"], attempts=3)
        (job,), _ = claim_until(client, 1)
        assert (job.descriptor, job.attempts_remaining) == (descriptor, 3)
        client.ack(QUEUE, [(job.descriptor, job.token, True)])


@ENDINGS
def test_a_claim_whose_answer_cannot_be_written_is_released_unspent(
    server: PinLaterServer, client: WireClient, end: Callable[[socket.socket], None]
) -> None:
    """The server is stopped while the request and the hang-up arrive, so it claims for a client that is certainly gone."""
    for number in range(5):
        (descriptor,) = client.enqueue(QUEUE, [f"job {number}"], attempts=3)
        gone = connection(server)
        server.signal(signal.SIGSTOP)
        gone.sendall(frames.dequeue(QUEUE, 1))
        end(gone)
        server.signal(signal.SIGCONT)
        (job,), _ = claim_until(client, 1)
        assert (job.descriptor, job.attempts_remaining) == (descriptor, 3)
        client.ack(QUEUE, [(job.descriptor, job.token, True)])


@ENDINGS
def test_an_enqueue_that_hangs_up_before_its_answer_is_stored_whole_or_not_at_all(
    server: PinLaterServer, client: WireClient, end: Callable[[socket.socket], None]
) -> None:
    """Either is right; half of it, or a job that is counted but never handed out, is not."""
    frame = frames.enqueue(QUEUE, [b"one", b"two", b"three"])
    for _ in range(20):
        hasty = connection(server)
        hasty.sendall(frame)
        end(hasty)
    stored = client.count(QUEUE, 0)
    bodies: list[str] = []
    while found := client.claim(QUEUE, 100, wait_ms=200):
        bodies += [job.body for job in found]
        client.ack(QUEUE, [(job.descriptor, job.token, True) for job in found])
    assert len(bodies) >= stored
    assert bodies.count("one") == bodies.count("two") == bodies.count("three")
