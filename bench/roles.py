"""What roles isolate, on Redis: `python -m bench.roles [--pairs 20] [--seconds 5]`.

Lags: the loop of a server for enqueues, which answers a steady few of them, while the server for dequeues beside it is saturated, over the
same while that is idle. Latencies: p99 of steady enqueues while as many connections dequeue as fast as they can, with the roles `enqueue`
and `dequeue` over two servers with the role `all`; beside them the CPU time of both servers by claimed job. Each pair is measured in one
sitting, in turns; the ratio is the median of the pairs.

On a machine with two cores the first server of a pair and the enqueues have one core, and the second server and the dequeues have the
other one, as if they were machines. Redis is on the core where it disturbs the measured side less: for lags on the second one, for
latencies on the first one. The server whose lags are measured goes before all other programs if this runs as root; latencies have in them
what else runs on the machine. It is no row of `python -m bench`, because only many pairs tell something.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from bench.benchmark_run import BODY, QUEUE
from bench.cluster import wait_until_settled
from bench.load import BenchmarkPlan, Report
from bench.raw_client import RawClient
from bench.redis_stores import RedisStores
from bench.servers import PinLaterServer, serve

_RATE, _ENQUEUERS, _DEQUEUERS = 200.0, 8, 64
_JOBS_A_SECOND = 12_000  # more than a server hands out
_WARMUP_S = 1.0
_LOOKS_TOO_FEW = 50


class Cores(NamedTuple):
    """Of the first server and the enqueues, and of the second server and the dequeues."""

    first: set[int]
    second: set[int]

    @classmethod
    def of_the_machine(cls) -> Cores:
        every = sorted(os.sched_getaffinity(0))
        half = len(every) // 2
        return cls(set(every[:half]), set(every[half:])) if half else cls(set(every), set(every))


class RoleRun(NamedTuple):
    """The enqueues, when they began and ended, without the warm-up, and the CPU time of both servers, with it, by job claimed after it."""

    enqueues: Report
    began: float
    ended: float
    cpu_us: float


@dataclass(frozen=True)
class ServerPair:
    """Two servers of one shard."""

    first: PinLaterServer
    second: PinLaterServer
    are_all: bool
    cores: Cores

    def run(self, seconds: float, *, dequeues: bool) -> RoleRun:
        """Enqueues for so long."""
        if dequeues:
            with RawClient(self.first.port) as client:
                client.enqueue_many(QUEUE, BODY, int(_JOBS_A_SECOND * (seconds + _WARMUP_S)))
        ports = [self.first.port, self.second.port] if self.are_all else []
        plan = BenchmarkPlan(self.first.port, QUEUE, warmup_seconds=_WARMUP_S, ports=ports)
        enqueues = replace(plan, connections=_ENQUEUERS, rate=_RATE, seconds=seconds)
        before_s = self._cpu_s()
        loads = [_start(enqueues, self.cores.first)]
        if dequeues:
            claims = replace(plan, port=self.second.port, kind="claim", connections=_DEQUEUERS, seconds=seconds + 0.5)
            loads.append(_start(claims, self.cores.second))
        report, *others = [_end(load) for load in loads]
        ended = time.monotonic()
        if any(each.empty > _DEQUEUERS for each in others):
            raise RuntimeError("the dequeues found no jobs, so the servers were not saturated")
        claimed = sum(each.jobs for each in others)
        return RoleRun(report, ended - seconds, ended, (self._cpu_s() - before_s) * 1e6 / max(1, claimed))

    def _cpu_s(self) -> float:
        return self.first.cpu_seconds() + self.second.cpu_seconds()


def _start(plan: BenchmarkPlan, cores: set[int]) -> subprocess.Popen[str]:
    load = subprocess.Popen(
        [sys.executable, "-m", "bench.load"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    os.sched_setaffinity(load.pid, cores)
    assert load.stdin is not None
    load.stdin.write(json.dumps(asdict(plan)))
    load.stdin.close()
    return load


def _end(load: subprocess.Popen[str]) -> Report:
    assert load.stdout is not None
    said = load.stdout.read()
    load.stdout.close()
    if load.wait(300):
        raise RuntimeError("a load failed")
    report = Report(**json.loads(said))
    if report.refused:
        raise RuntimeError(f"requests were refused, first: {report.first_refusal}")
    return report


@contextmanager
def _pair(
    stores: RedisStores, folder: Path, roles: Sequence[str], cores: Cores, database: set[int]
) -> Iterator[ServerPair]:
    """New servers on a new store. The loop lags of each are in its file when they have stopped."""
    store = stores.new()
    _pin(store.server.pid, database)
    servers = []
    for number, (role, core) in enumerate(zip(roles, cores, strict=True)):
        words = (*store.arguments, "--role", role, "--set", "host=127.0.0.1")
        module = ("bench.loop_lags", str(folder / f"lags{number}.json"))
        servers.append(serve(*words, log=folder / f"server{number}.log", module=module).start())
        _pin(servers[-1].pid, core)
    try:
        with RawClient(servers[0].port) as client:
            client.create_queue(QUEUE)
        wait_until_settled(servers)
        yield ServerPair(servers[0], servers[1], roles[0] == "all", cores)
    finally:
        for server in servers:
            server.stop()
    store.remove()


def _pin(process: int, cores: set[int]) -> None:
    """With all of its threads."""
    for thread in _threads(process):
        os.sched_setaffinity(thread, cores)


def _threads(process: int) -> list[int]:
    return [int(path.name) for path in Path(f"/proc/{process}/task").iterdir()]


def _put_first(process: int) -> None:
    """Before all other programs, where that is allowed: these would be what is measured. The process works little."""
    for thread in _threads(process):
        with suppress(PermissionError):
            os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(1))


def _p99(values: Sequence[float]) -> float:
    assert len(values) >= _LOOKS_TOO_FEW, f"only {len(values)} looks"
    return sorted(values)[int(len(values) * 0.99)]


def _between(lags: dict[str, list[float]], kind: str, begin: float, end: float) -> list[float]:
    return [value for at, value in zip(lags["at"], lags[kind], strict=True) if begin <= at < end]


def _said(ratios: Sequence[float]) -> str:
    quarters = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else [ratios[0]] * 3
    return (
        f"median {statistics.median(ratios):.2f}, quartiles {quarters[0]:.2f} to {quarters[2]:.2f}, {len(ratios)} pairs"
    )


def lags(stores: RedisStores, folder: Path, pairs: int, seconds: float, cores: Cores) -> list[str]:
    """The lines that say how much later the enqueue server's loop is while the other server is saturated."""
    spans: list[tuple[tuple[float, float], tuple[float, float]]] = []
    with _pair(stores, folder, ("enqueue", "dequeue"), cores, cores.second) as pair:
        _put_first(pair.first.pid)
        for _ in range(pairs):
            idle, busy = (pair.run(seconds, dequeues=dequeues) for dequeues in (False, True))
            spans.append(((idle.began, idle.ended), (busy.began, busy.ended)))
    kept: dict[str, Any] = json.loads((folder / "lags0.json").read_text())
    lines = []
    for kind, meaning in (("lag", "loop lag"), ("cpu", "part of it that is the server's own CPU time")):
        found = [[_p99(_between(kept, kind, *span)) * 1e3 for span in both] for both in spans]
        idle_ms, busy_ms = ([each[which] for each in found] for which in (0, 1))
        lines.append(
            f"p99 of the {meaning}: {statistics.median(busy_ms):.3f} ms beside a saturated server, "
            f"{statistics.median(idle_ms):.3f} ms beside an idle one; ratio: {_said([busy / idle for idle, busy in found])}; "
            f"of the medians {statistics.median(busy_ms) / statistics.median(idle_ms):.2f}"
        )
    return lines


def latencies(stores: RedisStores, folder: Path, pairs: int, seconds: float, cores: Cores) -> list[str]:
    """The lines that say how long enqueues take beside dequeues."""
    found: list[tuple[float, float]] = []
    cpu: list[float] = []
    for number in range(pairs):
        p99, cpu_us = {}, {}
        both = [("enqueue", "dequeue"), ("all", "all")]
        for roles in both if number % 2 else reversed(both):
            with _pair(stores, folder, roles, cores, cores.first) as pair:
                run = pair.run(seconds, dequeues=True)
                p99[roles], cpu_us[roles] = (run.enqueues.latency_ms or {})["p99"], run.cpu_us
        apart, joined = both
        found.append((p99[apart], p99[joined]))
        cpu.append(cpu_us[apart] / cpu_us[joined])
    roles_ms, all_ms = ([each[which] for each in found] for which in (0, 1))
    return [
        f"p99 of enqueues beside dequeues: {statistics.median(roles_ms):.2f} ms with roles, {statistics.median(all_ms):.2f} ms with all; "
        f"ratio: {_said([apart / joined for apart, joined in found])}; "
        f"of the medians {statistics.median(roles_ms) / statistics.median(all_ms):.2f}",
        f"CPU time of both servers by claimed job, roles over all: {_said(cpu)}",
    ]


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.roles", description=__doc__)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--only", choices=["lags", "latencies"])
    arguments = parser.parse_args()
    cores, say = Cores.of_the_machine(), Console(width=160).print
    with tempfile.TemporaryDirectory() as folder, RedisStores(Path(folder)) as stores:
        for measure in (lags, latencies):
            if arguments.only in (None, measure.__name__):
                for line in measure(stores, Path(folder), arguments.pairs, arguments.seconds, cores):
                    say(line, markup=False, highlight=False)


if __name__ == "__main__":
    main()
