"""`python -m tests.soak --hours 8`: cycles of mixed load on one file; after each its promises are checked, and memory and space shown.

Between two cycles everything is drained, so that each has a verdict of its own and the records don't grow for hours. Within a cycle
the server is killed, restarted in an orderly way, or stopped for a while, or left in peace. Ends with 1 at the first broken promise,
or when the server's memory after a cycle goes beyond the bound.
"""

from __future__ import annotations

import argparse
import secrets
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from bench.servers import PinLaterServer, pinlater_server
from pinlater.simulation.history import check
from tests.crash.kill_rounds import SETTINGS, drain, final_states
from tests.crash.load_clients import QUEUE, LoadClients
from tests.crash.wire_client import WireClient

# Finished jobs go soon, so that the file's space must be used again and the file must stop growing.
SHORT_LIVES = {"PINLATER_JOBS_SUCCEEDED_TTL_MS": "600000", "PINLATER_JOBS_FAILED_TTL_MS": "600000"}


@dataclass(frozen=True, slots=True)
class Cycle:
    """What one cycle showed."""

    jobs: int
    broken: list[str]
    events: list[str]
    memory_mb: float
    file_mb: float
    enqueue_p99_ms: float

    def line(self) -> str:
        """For the log."""
        return (
            f"{self.jobs} jobs, {len(self.broken)} broken promises, {self.memory_mb:.0f} MB memory, "
            f"{self.file_mb:.0f} MB file, enqueue p99 {self.enqueue_p99_ms:.0f} ms, {' '.join(self.events)}"
        )


def kill(server: PinLaterServer, _: Random) -> None:
    """kill -9 and a new start."""
    server.kill()
    server.start()


def restart(server: PinLaterServer, _: Random) -> None:
    """SIGTERM, the drain, and a new start."""
    code = server.stop()
    assert code == 0, f"SIGTERM ended with {code}"
    server.start()


def freeze(server: PinLaterServer, dice: Random) -> None:
    """Stopped for up to a second, as by a busy machine."""
    server.signal(signal.SIGSTOP)
    threading.Event().wait(dice.uniform(0.05, 1.0))
    server.signal(signal.SIGCONT)


def peace(_server: PinLaterServer, _: Random) -> None:
    """Nothing."""


EVENTS: tuple[Callable[[PinLaterServer, Random], None], ...] = (kill, restart, freeze, peace, peace, peace)


def run_cycle(server: PinLaterServer, store: Path, seed: int, seconds: float) -> Cycle:
    """Load and events for `seconds`, a drain, a verdict."""
    dice, pause = Random(seed), threading.Event()
    clients = LoadClients(lambda: server.port, seed, jobs_max=1_000_000)
    events: list[str] = []
    clients.start()
    try:
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            pause.wait(dice.uniform(0.5, 5.0))
            event = dice.choice(EVENTS)
            event(server, dice)
            events.append(event.__name__)
        clients.stop_producing()
        drain(server)
    finally:
        clients.stop()
    history = clients.recorder.history()
    broken = [str(each) for each in check(history, final_states(server, history.seen()))] + clients.unexpected
    latency = server.stats().get("metrics", {}).get("PinLaterService.enqueueJobs_msec", {})
    p99_ms = float(latency.get("p99", 0.0))
    return Cycle(len(history.acknowledged()), broken, events, server.memory_mb(), store.stat().st_size / 1e6, p99_ms)


def main() -> None:
    """Cycles until the time is over."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--cycle-seconds", type=float, default=60.0)
    parser.add_argument("--memory-mb-max", type=float, default=300.0)
    parser.add_argument("--dir", type=Path, default=Path("var/soak"))
    options = parser.parse_args()
    options.dir.mkdir(parents=True, exist_ok=True)
    store, seed, number = options.dir / "store.db", secrets.randbelow(2**31), 0
    print(f"seed {seed}", flush=True)
    ends = time.monotonic() + options.hours * 3_600
    with pinlater_server(store, log=options.dir / "server.log", env={**SETTINGS, **SHORT_LIVES}) as server:
        with WireClient(server.port) as client:
            client.create_queue(QUEUE)
        while time.monotonic() < ends:
            number += 1
            cycle = run_cycle(server, store, seed + number, options.cycle_seconds)
            print(f"cycle {number}: {cycle.line()}", flush=True)
            if cycle.broken:
                raise SystemExit("BROKEN:\n" + "\n".join(cycle.broken[:50]))
            if cycle.memory_mb > options.memory_mb_max:
                raise SystemExit(f"memory {cycle.memory_mb:.0f} MB is over {options.memory_mb_max:.0f} MB")


if __name__ == "__main__":
    main()
