"""kill -9 of the server under load, again and again on the same file, and the verdict over what the clients saw."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from bench.servers import PinLaterServer, pinlater_server
from pinlater.simulation.history import IN_PROGRESS, PENDING, History, Violation, check
from tests.crash.load_clients import QUEUE, LoadClients
from tests.crash.wire_client import Info, WireClient

SWEEP_MS = 200
DRAIN_SECONDS_MAX = 90.0
LOOKUP_CHUNK = 1_000
SETTINGS: Mapping[str, str] = {"PINLATER_MAINTENANCE_SWEEP_INTERVAL_MS": str(SWEEP_MS)}
"""Environment of every server here: sweeps often, so that a time-out is over soon."""


@dataclass(frozen=True, slots=True)
class KillRoundsResult:
    """What a run showed."""

    violations: list[Violation]
    history: History
    unexpected: list[str]
    refusals: Counter[tuple[int, str, bool]]
    drain_seconds: float
    failed_attempts: int  # by the jobs themselves
    failures_counted: int  # in groups

    def text(self) -> str:
        """For a failed test, or the end of `make crash`."""
        lost = sum(each.descriptors is None for each in self.history.enqueues)
        facts = (
            f"{len(self.history.acknowledged())} jobs enqueued and answered, {lost} enqueues without an answer, "
            f"{len(self.history.claims)} claims, {len(self.history.acks)} acks, drained in {self.drain_seconds:.1f} s, "
            f"{self.failed_attempts} failed attempts and {self.failures_counted} in groups"
        )
        listed = [f"{each.kind.name} {each.descriptor} {each.text}" for each in self.violations[:20]]
        return "\n".join([facts, *listed, *self.unexpected, *(str(each) for each in self.refusals.items())])


def run_kill_rounds(
    folder: Path,
    *,
    rounds: int,
    seed: int,
    pause_seconds: tuple[float, float] = (0.05, 0.8),
    module: Sequence[str] = ("pinlater",),
    say: Callable[[str], None] = lambda _: None,
) -> KillRoundsResult:
    """`rounds` kills at random moments, then a drain. `module` is the command to run, where it isn't the real one."""
    dice = Random(seed)
    server = pinlater_server(folder / "store.db", log=folder / "server.log", env=SETTINGS, module=module)
    pause = threading.Event()
    with server:
        with WireClient(server.port) as client:
            client.create_queue(QUEUE)
        clients = LoadClients(lambda: server.port, seed, jobs_max=1_000 + 2_000 * rounds)
        clients.start()
        try:
            for number in range(rounds):
                pause.wait(dice.uniform(*pause_seconds))
                server.kill()
                server.start()
                say(f"killed {number + 1} of {rounds}")
            pause.wait(dice.uniform(*pause_seconds))
            clients.stop_producing()
            drained = drain(server)
        finally:
            clients.stop()
        history = clients.recorder.history()
        final = final_jobs(server, history.seen())
        with WireClient(server.port) as client:
            counted = client.failures(QUEUE)
    return KillRoundsResult(
        check(history, {descriptor: job.state for descriptor, job in final.items()}),
        history,
        clients.unexpected,
        Counter(clients.refusals),
        drained,
        sum(job.attempts_allowed - job.attempts_remaining for job in final.values()),
        counted,
    )


def drain(server: PinLaterServer) -> float:
    """Waits until nothing waits and nothing is held; returns the seconds it took. What never ends is left to the checker."""
    started = time.monotonic()
    pause = threading.Event()
    with WireClient(server.port) as client:
        while time.monotonic() - started < DRAIN_SECONDS_MAX:
            if not client.count(QUEUE, PENDING) and not client.count(QUEUE, IN_PROGRESS):
                break
            pause.wait(0.1)
    return time.monotonic() - started


def final_states(server: PinLaterServer, descriptors: set[str]) -> dict[str, int]:
    """The state of each, as a lookup tells it now."""
    return {descriptor: job.state for descriptor, job in final_jobs(server, descriptors).items()}


def final_jobs(server: PinLaterServer, descriptors: set[str]) -> dict[str, Info]:
    """What a lookup tells of each now."""
    ordered, jobs = sorted(descriptors), dict[str, Info]()
    with WireClient(server.port) as client:
        for start in range(0, len(ordered), LOOKUP_CHUNK):
            jobs.update(client.lookup(ordered[start : start + LOOKUP_CHUNK]))
    return jobs
