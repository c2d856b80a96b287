"""kill -9 of the server at random moments under load, on the same file again and again. `make crash` does it for hours."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest

from bench.servers import PinLaterServer
from pinlater.simulation.history import IN_PROGRESS, SUCCEEDED, PromiseKind
from tests.crash.kill_rounds import run_kill_rounds
from tests.crash.load_clients import QUEUE
from tests.crash.wire_client import WireClient

pytestmark = pytest.mark.crash


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
