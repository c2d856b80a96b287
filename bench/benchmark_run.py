"""Where a benchmark run works: its folder, its sizes, and how it starts servers and loads."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench import bare
from bench.goals import goals_of
from bench.load import BODY_BYTES, BenchmarkPlan, Report
from bench.mysql_stores import MysqlStores
from bench.raw_client import RawClient
from bench.redis_stores import RedisStores
from bench.results import Goal
from bench.servers import PinLaterServer, serve, wire_server
from bench.stores import BenchmarkStore, BenchmarkStores
from pinlater.console.pages.shared_answers import SHARED_MS

BODY = b"x" * BODY_BYTES
QUEUE = "bench"
LOAD_SECONDS_MAX = 300


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything. The defaults are `make bench`'s."""

    repeats: int = 5
    seconds: float = 2.5
    warmup_seconds: float = 0.5
    bare_seconds: float = 1.0
    claim_jobs_single: int = 60_000
    claim_jobs_batched: int = 200_000
    steady_rate: float = 10_000
    steady_seconds: float = 8.0
    backlog: int = 1_000_000
    pickups: int = 500
    idle_waits: int = 1_000
    idle_seconds: float = 5.0
    idle_shards_seconds: float = 20.0
    garbage: int = 1_000_000
    memory_jobs: int = 100_000
    quiet_seconds: float = 5.0
    callers: tuple[int, ...] = (1, 8, 64, 512)
    busy_jobs: int = 20_000
    worker_jobs: int = 100_000
    client_calls: int = 10_000
    console_queues: int = 2_000
    console_rate: float = 500
    console_seconds: float = 10.0
    browsers: int = 20
    page_pause_s: float = SHARED_MS / 1000 + 0.05  # between two looks at a page, so that they share nothing


QUICK = Sizes(
    repeats=1,
    seconds=0.2,
    warmup_seconds=0.0,
    bare_seconds=0.05,
    claim_jobs_single=200,
    claim_jobs_batched=4_000,  # two for each connection, or those that get none end the load
    steady_rate=200,
    steady_seconds=0.3,
    backlog=1_000,
    pickups=5,
    idle_waits=20,
    idle_seconds=0.2,
    idle_shards_seconds=0.5,
    garbage=2_000,
    memory_jobs=500,
    quiet_seconds=0.2,
    callers=(1, 16),
    busy_jobs=200,
    worker_jobs=500,
    client_calls=20,
    console_queues=5,
    console_rate=50,
    console_seconds=0.5,
    page_pause_s=0.0,
    browsers=2,
)
# In Redis all of it is in memory, some 900 bytes for one of each kind.
FULL_BACKLOG = {"sqlite": 5_000_000, "mysql": 10_000_000, "redis": 2_000_000}


@dataclass(slots=True)
class MeasuredRun:
    """One load's report with what the server spent on it."""

    report: Report
    server_cpu_share: float
    database_cpu_share: float = 0.0

    def cpu_per_job(self) -> float:
        """Seconds of the server's CPU for each job."""
        return self.server_cpu_share / self.report.rate

    def facts(self, prefix: str) -> dict[str, float]:
        """The figures of it, named."""
        latency = self.report.latency_ms or {}
        return {
            f"{prefix}_rate": self.report.rate,
            **{f"{prefix}_{name}_ms": value for name, value in latency.items()},
            f"{prefix}_server_cpu": self.server_cpu_share,
            f"{prefix}_load_cpu": self.report.load_cpu_share,
            **({f"{prefix}_database_cpu": self.database_cpu_share} if self.database_cpu_share else {}),
        }


@dataclass(slots=True)
class BenchmarkRun:
    """One run of the benchmark."""

    folder: Path
    stores: BenchmarkStores
    sizes: Sizes = field(default_factory=Sizes)
    say: Callable[[str], None] = print
    server_arguments: tuple[str, ...] = ()
    profile: bool = False
    _flush_ms: float | None = None

    @property
    def log(self) -> Path:
        """What the servers say goes here."""
        return self.folder / "server.log"

    @property
    def mysql(self) -> MysqlStores:
        """The stores, for a row that is only measured on MySQL."""
        assert isinstance(self.stores, MysqlStores)
        return self.stores

    @property
    def redis(self) -> RedisStores:
        """The stores, for a row that is only measured on Redis."""
        assert isinstance(self.stores, RedisStores)
        return self.stores

    def goals(self, row: str) -> list[Goal]:
        """What the row must reach on this store."""
        return goals_of(self.stores.kind, row, flush_ms=self.flush_ms())

    @contextmanager
    def wire(self) -> Iterator[PinLaterServer]:
        """The reference: the same server in front of nothing."""
        with wire_server(log=self.log) as server:
            yield server

    @contextmanager
    def pinlater(
        self, store: BenchmarkStore | None = None, *arguments: str, counts: Path | None = None, partitions: int = 1
    ) -> Iterator[PinLaterServer]:
        """The service on a store (a new one for None, removed afterwards), with its queue made, which has this number of `partitions`.

        `counts`: where a server that counts its store calls writes them on SIGUSR1.
        """
        mine = store or self.stores.new()
        profile = self.folder / "profile.txt"
        module: tuple[str, ...] = ("pinlater",)
        if counts is not None:
            module = ("bench.counted", str(counts))
        elif self.profile:
            module = ("bench.profiled", str(profile))
        arguments = (*mine.arguments, *self.server_arguments, *arguments)
        with serve(*arguments, log=self.log, module=module) as server:
            with RawClient(server.port) as client:
                client.create_queue(QUEUE, partitions)
            yield server
            server.stop()
        if module[0] == "bench.profiled":
            self.say(profile.read_text())
        if store is None:
            mine.remove()

    @contextmanager
    def storeless(self) -> Iterator[PinLaterServer]:
        """Another reference: the service on its memory, which costs next to nothing."""
        with serve("--store", "memory", log=self.log) as server:
            with RawClient(server.port) as client:
                client.create_queue(QUEUE)
            yield server

    def load(self, server: PinLaterServer, plan: BenchmarkPlan, *, rested: bool = False) -> MeasuredRun:
        """Runs the load in a process of its own beside the server, once the databases are at rest."""
        if not rested:
            self.stores.rest()
        cpu, database_cpu = server.cpu_seconds(), self.stores.cpu_seconds()
        process = subprocess.run(
            [sys.executable, "-m", "bench.load"],
            input=json.dumps(asdict(plan)),
            capture_output=True,
            text=True,
            check=False,
            timeout=LOAD_SECONDS_MAX,
        )
        if process.returncode:
            raise RuntimeError(f"the load failed:\n{process.stderr[-2000:]}\nserver:\n{server.output()[-2000:]}")
        report = Report(**json.loads(process.stdout))
        seconds = plan.warmup_seconds + report.seconds
        share = (server.cpu_seconds() - cpu) / seconds
        database_share = (self.stores.cpu_seconds() - database_cpu) / seconds
        if report.refused:
            raise RuntimeError(f"{report.refused} requests refused, first: {report.first_refusal}")
        return MeasuredRun(report, share, database_share)

    def plan(self, server: PinLaterServer, kind: str, connections: int, jobs_per_request: int) -> BenchmarkPlan:
        """A closed-loop plan of the usual length."""
        return BenchmarkPlan(
            server.port,
            QUEUE,
            kind,
            connections,
            jobs_per_request,
            seconds=self.sizes.seconds,
            warmup_seconds=self.sizes.warmup_seconds,
        )

    def bare(self, rows_per_commit: int) -> float:
        """Rows a second of the bare loop, now."""
        return self.stores.bare(rows_per_commit, self.sizes.bare_seconds)

    def flush_ms(self) -> float:
        """What a flush costs here; measured once a run."""
        if self._flush_ms is None:
            self._flush_ms = bare.flush_cost_ms(self.folder / "flush.dat", 20 if self.sizes.repeats == 1 else 500)
        return self._flush_ms
