"""The machine's wall clock jumps by an hour, either way, while jobs are held, waiting and not yet due."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from bench.servers import PinLaterServer
from pinlater.simulation.history import APPLIED, IN_PROGRESS, PENDING
from tests.crash.kill_rounds import SETTINGS, SWEEP_MS
from tests.crash.load_clients import QUEUE
from tests.crash.test_workers_lost import claim_until
from tests.crash.wire_client import WireClient

pytestmark = pytest.mark.crash

HOUR_SECONDS = 3_600
LONG_MS = 600_000
JUMPS = pytest.mark.parametrize("jump_seconds", [HOUR_SECONDS, -HOUR_SECONDS], ids=["ahead", "back"])


class JumpingServer(NamedTuple):
    """A server and the file that sets its wall clock."""

    server: PinLaterServer
    clock: Path

    def jump(self, seconds: int) -> None:
        """From now on the wall clock is off by so much. The file is replaced whole, so that no reader sees half of it."""
        new = self.clock.with_suffix(".new")
        new.write_text(str(seconds))
        new.rename(self.clock)


@pytest.fixture
def jumping(tmp_path: Path) -> Iterator[JumpingServer]:
    """A server on a file, its clock right for now."""
    clock = tmp_path / "clock"
    clock.write_text("0")
    command = [sys.executable, "-m", "tests.crash.jumping_clock", str(clock), "serve"]
    command += ["--store", f"sqlite:{tmp_path / 'store.db'}", "--thrift-port", "0", "--http-port", "0"]
    with PinLaterServer(command, log=tmp_path / "server.log", env=SETTINGS) as server:
        with WireClient(server.port) as client:
            client.create_queue(QUEUE)
        yield JumpingServer(server, clock)


def several_sweeps(client: WireClient) -> None:
    """Lets the sweeper come round some times: a short claim made now has to time out."""
    client.enqueue(QUEUE, ["marker"], claim_timeout_ms=2 * SWEEP_MS, attempts=10)
    (held,) = client.claim(QUEUE, 1)
    (again,), _ = claim_until(client, 1)
    assert again.descriptor == held.descriptor
    client.ack(QUEUE, [(again.descriptor, again.token, True)])


@JUMPS
def test_a_jump_neither_ends_nor_prolongs_a_claim(jumping: JumpingServer, jump_seconds: int) -> None:
    """Its holder's ack counts; a short claim still times out when its time is over."""
    with WireClient(jumping.server.port, "test") as client:
        (long_one,) = client.enqueue(QUEUE, ["long"], claim_timeout_ms=LONG_MS)
        (held,) = client.claim(QUEUE, 1)
        jumping.jump(jump_seconds)
        several_sweeps(client)
        assert client.lookup([long_one])[long_one].state == IN_PROGRESS
        assert [each.outcome for each in client.ack(QUEUE, [(long_one, held.token, True)])] == [APPLIED]


@JUMPS
def test_a_jump_moves_no_due_time(jumping: JumpingServer, jump_seconds: int) -> None:
    """A retry that was to wait ten minutes still waits; one due in a moment comes in a moment."""
    with WireClient(jumping.server.port, "test") as client:
        (slow, soon) = client.enqueue(QUEUE, ["slow", "soon"])
        tokens = {job.descriptor: job.token for job in client.claim(QUEUE, 2)}
        client.ack(QUEUE, [(slow, tokens[slow], False)], delay_ms=LONG_MS)
        client.ack(QUEUE, [(soon, tokens[soon], False)], delay_ms=500)
        jumping.jump(jump_seconds)
        (job,), _ = claim_until(client, 1)
        assert job.descriptor == soon
        assert client.claim(QUEUE, 1) == []
        assert client.lookup([slow])[slow].state == PENDING


@JUMPS
def test_a_server_started_after_a_jump_goes_on(jumping: JumpingServer, jump_seconds: int) -> None:
    """The killed server's waiting jobs are handed out, and new jobs get new names."""
    with WireClient(jumping.server.port) as client:
        before = client.enqueue(QUEUE, [f"before {number}" for number in range(10)])
    jumping.server.kill()
    jumping.jump(jump_seconds)
    jumping.server.start()
    with WireClient(jumping.server.port) as client:
        after = client.enqueue(QUEUE, [f"after {number}" for number in range(10)])
        assert not set(before) & set(after)
        assert len(client.lookup([*before, *after])) == 20
        jobs, _ = claim_until(client, 10)
        assert {job.descriptor for job in jobs} <= set(before) | set(after)
