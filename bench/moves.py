"""What moves when servers that ZooKeeper coordinates come and go, on a Redis: `python -m bench.moves [--kills 50]`.

Roll-out: four servers are replaced one after the other, as on Kubernetes, while jobs are enqueued and done. Kills: one of the four is
killed, and the others own its slices some time after that. One more server counts the moves; it has the role `enqueue`, so it owns nothing.
It is no row of `python -m bench`, because the kills take minutes.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from rich.console import Console

from pinlater.client import Ack, Client
from pinlater.domain.errors import PinLaterError
from pinlater.domain.slices import SLICES
from pinlater.testing.real_server import RealServer
from tests.databases.servers import DatabaseServers
from tests.shared_shards.real_cluster import address_among_servers, owners, share_all, until

_SERVERS, _SESSION_S = 4, 2.0


class SteadyJobs(threading.Thread):
    """Enqueues jobs at the servers that a file names, and does them. `done_at`: when each was picked up. `errors`: those of its calls."""

    def __init__(self, servers: Path) -> None:
        super().__init__()
        self._servers = servers
        self._ends = threading.Event()
        self.done_at: list[float] = []
        self.errors: list[str] = []

    def run(self) -> None:
        with Client(self._servers) as client:
            client.ensure_queue("q")
            while not self._ends.wait(0.01):
                try:
                    client.enqueue("q", [b"x"])
                    jobs = client.dequeue("q", limit=10).jobs
                    client.ack("q", [Ack(job.descriptor, token=job.token) for job in jobs])
                except PinLaterError as error:
                    self.errors.append(repr(error))
                else:
                    self.done_at += [time.monotonic()] * len(jobs)

    def end(self) -> None:
        """Ends after the job in hand."""
        self._ends.set()
        self.join()


def roll_out(servers: list[RealServer], counts: RealServer, start: Callable[[], RealServer], names: Path) -> str:
    """Replaces each server by a new one. Returns what happened meanwhile."""
    _tell_clients(names, servers)
    jobs = SteadyJobs(names)
    jobs.start()
    until(lambda: len(jobs.done_at) > 0)
    before, began_s = _moves(counts), time.monotonic()
    for old in list(servers):
        servers.append(start())
        until(partial(share_all, servers))
        servers.remove(old)
        _tell_clients(names, servers)
        old.stop()
        until(partial(share_all, servers))
    took_s = time.monotonic() - began_s
    jobs.end()
    tenths = Counter(int((at - began_s) / took_s * 10) for at in jobs.done_at)
    return (
        f"roll-out of {_SERVERS} servers in {took_s:.1f} s: {(_moves(counts) - before) / SLICES:.2f} times all slices moved; "
        f"jobs picked up in its tenths: {[tenths[tenth] for tenth in range(10)]}; errors of clients: {len(jobs.errors)} {jobs.errors[:3]}"
    )


def kills(servers: list[RealServer], counts: RealServer, number: int) -> str:
    """Kills a server each time, and starts it again. Returns how long the others took to own all."""
    dice, took = random.Random(1), list[float]()
    for _ in range(number):
        killed = dice.choice(servers)
        others = {address_among_servers(server) for server in servers if server is not killed}
        killed.kill()
        took.append(until(partial(_own_all, others, counts)))
        killed.start()
        until(partial(share_all, servers))
    ratios = [each / (_SESSION_S + 1) for each in took]
    return (
        f"{number} kills: others owned all after {statistics.median(took):.2f} s (median), {max(took):.2f} s (longest); over session "
        f"time-out and a second: {statistics.median(ratios):.2f}, {max(ratios):.2f}; above 1: {sum(each > 1 for each in ratios)}"
    )


def _own_all(servers: set[str], sees: RealServer) -> bool:
    return owners(sees).keys() == servers


def _tell_clients(names: Path, servers: Sequence[RealServer]) -> None:
    new = names.with_suffix(".new")
    new.write_text("".join(f"{server.address}\n" for server in servers))
    new.replace(names)


def _moves(server: RealServer) -> int:
    with Client(server.address) as client:
        return client.cluster().moves


def main() -> None:
    """Prints the counts."""
    parser = argparse.ArgumentParser(prog="python -m bench.moves", description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    arguments = parser.parse_args()
    say = Console(width=160).print
    with DatabaseServers() as databases, tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        store = f"redis://{databases.start_redis().address}/0"
        ensemble = databases.make_zookeeper(3).start()
        settings = {
            "cluster.coordinator": "zookeeper",
            "cluster.zookeeper": f"{ensemble.address}/moves",
            "cluster.session_timeout_s": str(_SESSION_S),
            "console": "false",
        }
        words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]

        def start(*options: str) -> RealServer:
            return stack.enter_context(RealServer(folder, *words, *options, store=store))

        counts, servers = start("--role", "enqueue"), [start() for _ in range(_SERVERS)]
        until(partial(share_all, servers))
        say(roll_out(servers, counts, start, Path(folder) / "servers"), markup=False)
        say(kills(servers, counts, arguments.kills), markup=False)


if __name__ == "__main__":
    main()
