"""kill -9 of the server at random moments under load, on the same file again and again. `make crash` does it for hours."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest

from bench.servers import PinLaterServer, pinlater_server
from pinlater.simulation.history import IN_PROGRESS, PENDING, SUCCEEDED, PromiseKind
from tests.crash.kill_rounds import SETTINGS, final_states, run_kill_rounds
from tests.crash.killed_in_transaction import KILLED
from tests.crash.load_clients import QUEUE
from tests.crash.wire_client import GONE, Job, WireClient

pytestmark = pytest.mark.crash
JOBS = 300


def test_no_promise_is_broken_by_kills_under_load(tmp_path: Path) -> None:
    """Nothing acknowledged is lost or undone, nothing is handed out twice, nothing is stuck; each failed attempt is in a group, once."""
    seed = int(os.environ.get("CRASH_SEED") or secrets.randbelow(2**31))
    rounds = int(os.environ.get("CRASH_ROUNDS") or 4)
    verdict = run_kill_rounds(tmp_path, rounds=rounds, seed=seed)
    assert not verdict.violations, f"CRASH_SEED={seed}\n{verdict.text()}"
    assert not verdict.unexpected, f"CRASH_SEED={seed}\n{verdict.text()}"
    assert verdict.history.acknowledged(), "the load did nothing, so nothing was shown"
    assert verdict.history.claims, "nothing was claimed, so nothing was shown"
    assert verdict.failures_counted == verdict.failed_attempts, f"CRASH_SEED={seed}\n{verdict.text()}"
    assert verdict.failed_attempts, "nothing failed, so nothing was shown"


def test_the_harness_finds_a_server_that_answers_before_it_stores(tmp_path: Path) -> None:
    """The same run, with a store that writes a moment after its answer."""
    verdict = run_kill_rounds(tmp_path, rounds=3, seed=1, module=("tests.crash.lying_server",))
    assert PromiseKind.LOST in {each.kind for each in verdict.violations}, verdict.text()


def test_a_claim_outlives_its_server(server: PinLaterServer) -> None:
    with WireClient(server.port) as client:
        (descriptor,) = client.enqueue(QUEUE, ["body"])
        (job,) = client.claim(QUEUE, 1)
    server.kill()
    server.start()
    with WireClient(server.port) as client:
        assert client.lookup([descriptor])[descriptor].state == IN_PROGRESS
        assert client.claim(QUEUE, 1) == []
        assert [each.outcome for each in client.ack(QUEUE, [(job.descriptor, job.token, True)])] == [0]
        assert client.lookup([descriptor])[descriptor].state == SUCCEEDED


@pytest.mark.parametrize("when", ["waiting", "joined"])
def test_an_ack_whose_transaction_waits_for_a_claim_is_neither_answered_nor_stored_before_its_commit(
    tmp_path: Path, when: str
) -> None:
    """Workers that wait take jobs of one key in turn, until the server is killed between an ack and its COMMIT."""
    server = pinlater_server(
        tmp_path / "store.db",
        log=tmp_path / "server.log",
        env={**SETTINGS, KILLED: when},
        module=("tests.crash.killed_in_transaction",),
    )
    acked: list[str] = []
    in_hand: list[Job] = []

    def work() -> None:
        with WireClient(server.port) as client, suppress(*GONE):
            while True:
                for job in client.claim(QUEUE, 1, wait_ms=1_000):
                    in_hand.append(job)
                    client.ack(QUEUE, [(job.descriptor, job.token, True)])
                    in_hand.remove(job)
                    acked.append(job.descriptor)

    with server:
        with WireClient(server.port) as client:
            client.create_queue(QUEUE)
            jobs = client.enqueue(QUEUE, ["body"] * JOBS, ordering_keys=["key"] * JOBS)
        workers = [Thread(target=work) for _ in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
            assert not worker.is_alive(), "no transaction waited for a claim"
        server.kill()
        server.start()
        left = len(jobs) - len(acked)
        states = final_states(server, set(jobs))
        assert [states[job] for job in jobs] == [SUCCEEDED] * len(acked) + [IN_PROGRESS] + [PENDING] * (left - 1)
        [held] = in_hand
        assert held.descriptor == jobs[len(acked)]
        with WireClient(server.port) as client:
            assert client.claim(QUEUE, 1) == []
            assert [each.outcome for each in client.ack(QUEUE, [(held.descriptor, held.token, True)])] == [0]
            assert [job.descriptor for job in client.claim(QUEUE, 2)] == [jobs[len(acked) + 1]]
