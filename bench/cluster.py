"""The rows about clusters: what a job costs all servers and databases together, on four servers with four shards over one with one.

CPU time and batches, no rates: on a small machine the processes of a cluster share the cores of one server. The load is spread evenly, as
clients that know all servers spread it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from typing import NamedTuple

from bench.benchmark_run import BODY, LOAD_SECONDS_MAX, QUEUE, BenchmarkRun
from bench.load import BenchmarkPlan, Report, queue_names
from bench.raw_client import RawClient
from bench.results import RowResult, median_of
from bench.servers import PinLaterServer, ServerFailed, serve
from pinlater.client import Client
from pinlater.domain.slices import slice_of

CONNECTIONS = 128
SERVERS, SHARDS = 4, 4
QUEUES = 64
_SETTLED_SECONDS_MAX = 60.0
_LOOK_SECONDS = 0.1
# Ownership has moved to where it stays when nothing has changed for so long.
_CALM_SECONDS = 3.0


class Cost(NamedTuple):
    """Of one job: microseconds of CPU of all servers and of all databases; and how many jobs one call of a lane to a store carried."""

    server_us: float
    database_us: float
    jobs_per_call: float


def cluster(place: BenchmarkRun) -> RowResult:
    """Enqueues and claims one a request: over one server, over four that know nothing of each other, and with as many connections each.

    The servers apart show what the machine takes for running four of them at once: a cluster on top of that costs what it forwards.
    """
    return _spread_evenly(place, "cluster", 1)


def cluster_queues(place: BenchmarkRun) -> RowResult:
    """The same, with the connections spread over 64 queues."""
    return _spread_evenly(place, "cluster_queues", QUEUES)


def _spread_evenly(place: BenchmarkRun, name: str, queues: int) -> RowResult:
    runs: list[dict[str, float]] = []
    for _ in range(max(1, place.sizes.repeats - 2)):
        run: dict[str, float] = {}
        for work in ("enqueue", "claim"):
            one = _cost(place, work, CONNECTIONS, servers=1, shards=1, queues=queues)
            apart = _cost(place, work, CONNECTIONS, servers=1, shards=1, clusters=SERVERS, queues=queues)
            four = _cost(place, work, CONNECTIONS, servers=SERVERS, shards=SHARDS, queues=queues)
            more = _cost(place, work, CONNECTIONS * SERVERS, servers=SERVERS, shards=SHARDS, queues=queues)
            run |= {
                f"{work}_server_us": one.server_us,
                f"{work}_server_ratio": four.server_us / one.server_us,
                f"{work}_server_apart_ratio": four.server_us / apart.server_us,
                f"{work}_database_us": one.database_us,
                f"{work}_database_ratio": four.database_us / max(0.01, one.database_us),
                f"{work}_database_apart_ratio": four.database_us / max(0.01, apart.database_us),
                f"{work}_jobs_per_call": one.jobs_per_call,
                f"{work}_jobs_per_call_of_four": four.jobs_per_call,
                f"{work}_jobs_per_call_ratio": more.jobs_per_call / one.jobs_per_call,
            }
        runs.append(run)
    among = "one queue" if queues == 1 else f"{queues} queues"
    title = (
        f"{SERVERS} servers on {SHARDS} shards over one on one, {CONNECTIONS} connections, {among}, one job a request"
    )
    return RowResult(name, title, place.goals(name), median_of(runs), runs=list(runs))


def cluster_owners(place: BenchmarkRun) -> RowResult:
    """The same for clients that know who owns the queue and send each call there, as our own do; enqueues have request keys.

    Compared with clients that spread their connections evenly, on the same servers; and both on servers that share one shard. Here all
    servers get requests from the same four loads, also the one server, since it matters how many requests come in one turn of a loop.
    """
    runs: list[dict[str, float]] = []
    for _ in range(max(1, place.sizes.repeats - 2)):
        run: dict[str, float] = {}
        for work in ("enqueue with key", "claim"):
            name = work.split(" ", maxsplit=1)[0]
            one = _cost(place, work, CONNECTIONS, servers=1, shards=1, loads=SERVERS)
            apart = _cost(place, work, CONNECTIONS, servers=1, shards=1, clusters=SERVERS, loads=SERVERS)
            even = _cost(place, work, CONNECTIONS, servers=SERVERS, shards=SHARDS, loads=SERVERS)
            knowing = _cost(place, work, CONNECTIONS, servers=SERVERS, shards=SHARDS, loads=SERVERS, knowing=True)
            even_on_one = _cost(place, work, CONNECTIONS, servers=SERVERS, shards=1, loads=SERVERS)
            knowing_on_one = _cost(place, work, CONNECTIONS, servers=SERVERS, shards=1, loads=SERVERS, knowing=True)
            run |= {
                f"{name}_server_us": one.server_us,
                f"{name}_server_ratio": knowing.server_us / one.server_us,
                f"{name}_server_apart_ratio": knowing.server_us / apart.server_us,
                f"{name}_even_server_ratio": even.server_us / one.server_us,
                f"{name}_database_ratio": knowing.database_us / max(0.01, one.database_us),
                f"{name}_even_database_ratio": even.database_us / max(0.01, one.database_us),
                f"{name}_one_shard_server_ratio": knowing_on_one.server_us / one.server_us,
                f"{name}_one_shard_even_server_ratio": even_on_one.server_us / one.server_us,
                f"{name}_one_shard_database_ratio": knowing_on_one.database_us / max(0.01, one.database_us),
                f"{name}_one_shard_even_database_ratio": even_on_one.database_us / max(0.01, one.database_us),
            }
        runs.append(run)
    title = f"{SERVERS} servers on {SHARDS} shards over one on one, clients that know the owners, one job a request"
    return RowResult("cluster_owners", title, place.goals("cluster_owners"), median_of(runs), runs=list(runs))


def forwarded(place: BenchmarkRun) -> RowResult:
    """Enqueues and claims one a request, over two servers on a shard: the owner's CPU a job, if all requests arrive at the other server,
    over that if they arrive at the owner.
    """
    runs: list[dict[str, float]] = []
    for _ in range(max(1, place.sizes.repeats - 2)):
        run: dict[str, float] = {}
        for work in ("enqueue", "claim"):
            local, far = _owner_us(place, work, at_owner=True), _owner_us(place, work, at_owner=False)
            run |= {f"{work}_local_us": local, f"{work}_forwarded_us": far, f"{work}_owner_ratio": far / local}
        runs.append(run)
    title = f"the owner's CPU for a forwarded job over a local one, {CONNECTIONS} connections, one job a request"
    return RowResult("forwarded", title, place.goals("forwarded"), median_of(runs), runs=list(runs))


def _owner_us(place: BenchmarkRun, work: str, *, at_owner: bool) -> float:
    """Microseconds a job."""
    with _cluster(place, 2, 1, first=0) as running:
        owner_port = next(iter(_owner_ports(running).values()))
        owner, other = sorted(running, key=lambda server: server.port != owner_port)
        asked = owner if at_owner else other
        if work == "claim":
            with RawClient(owner.port) as client:
                client.enqueue_many(QUEUE, BODY, place.sizes.claim_jobs_single)
        place.stores.rest()
        cpu = owner.cpu_seconds()
        [report] = _load([replace(_plan(place, asked, work, CONNECTIONS), warmup_seconds=0.0)])
        return (owner.cpu_seconds() - cpu) / report.jobs * 1e6


def _cost(
    place: BenchmarkRun,
    work: str,
    connections: int,
    *,
    servers: int,
    shards: int,
    clusters: int = 1,
    loads: int | None = None,
    knowing: bool = False,
    queues: int = 1,
) -> Cost:
    """On this many clusters side by side, with the connections shared out over all servers.

    `loads`: processes with connections to all servers; None: one for each server. `knowing`: clients go to the owners of the queue.
    """
    with ExitStack() as stack:
        running: list[PinLaterServer] = []
        for number in range(clusters):
            running += stack.enter_context(_cluster(place, servers, shards, first=number * shards, queues=queues))
        if work == "claim":
            for server in running:
                with RawClient(server.port) as client:
                    for queue in queue_names(QUEUE, queues):
                        client.enqueue_many(
                            queue, BODY, max(10, place.sizes.claim_jobs_single // len(running) // queues)
                        )
        owners = _owner_ports(running) if knowing else {}
        place.stores.rest()
        before = [_carried(server, work) for server in running]
        cpu, database_cpu = sum(server.cpu_seconds() for server in running), place.stores.cpu_seconds()
        plans = [
            replace(
                _plan(place, running[0] if loads else running[number], work, connections // (loads or len(running))),
                warmup_seconds=0.0,
                ports=[server.port for server in running] if loads else (),
                owner_ports=owners,
                first_connection=number * connections // (loads or len(running)),
                queues=queues,
            )
            for number in range(loads or len(running))
        ]
        reports = _load(plans)
        jobs = sum(report.jobs for report in reports)
        server_s = sum(server.cpu_seconds() for server in running) - cpu
        database_s = place.stores.cpu_seconds() - database_cpu
        after = [_carried(server, work) for server in running]
    calls = sum(b[0] - a[0] for a, b in zip(before, after, strict=True))
    carried = sum(b[1] - a[1] for a, b in zip(before, after, strict=True))
    return Cost(server_s / jobs * 1e6, database_s / jobs * 1e6, carried / max(1, calls))


def _owner_ports(running: Sequence[PinLaterServer]) -> dict[str, int]:
    """By partition of the queue, where its owner is, as a client learns it."""
    ports: dict[str, int] = {}
    for server in running:
        with Client(f"127.0.0.1:{server.port}") as client:
            status, [queue] = client.cluster(), client.queue_stats(QUEUE)
        owners = {shard.name: shard.owners[slice_of(QUEUE)] for shard in status.shards}
        owned = [shard for shard in queue.partitions if owners[shard] == status.address]
        ports |= dict.fromkeys(owned, server.port)
    return ports


@contextmanager
def _cluster(
    place: BenchmarkRun, servers: int, shards: int, *, first: int, queues: int = 1
) -> Iterator[list[PinLaterServer]]:
    """Servers on shards of their own, on the database servers from the one of that number on."""
    store = (
        place.mysql.spread(shards, servers=shards, first=first)
        if place.stores.kind == "mysql"
        else place.redis.spread(shards, first=first)
    )
    with _servers(place, store.arguments, servers, queues) as running:
        yield running
    store.remove()


@contextmanager
def _servers(place: BenchmarkRun, arguments: Sequence[str], count: int, queues: int) -> Iterator[list[PinLaterServer]]:
    """Servers on one store that know each other and have shared what they own."""
    profiles = [place.folder / f"profile{n}.txt" for n in range(count)] if place.profile else []
    with ExitStack() as stack:
        running = [
            stack.enter_context(
                serve(
                    *arguments,
                    "--set",
                    "host=127.0.0.1",
                    *place.server_arguments,
                    log=place.folder / f"server{n}.log",
                    module=("bench.profiled", str(profiles[n])) if profiles else ("pinlater",),
                )
            )
            for n in range(count)
        ]
        with RawClient(running[0].port) as client:
            for queue in queue_names(QUEUE, queues):
                client.create_queue(queue)
        wait_until_settled(running)
        yield running
        for server in running:
            server.stop()
    for profile in profiles:
        place.say(profile.read_text())


def wait_until_settled(running: Sequence[PinLaterServer]) -> None:
    """Returns once they know each other and no slice has moved for a while."""
    deadline, pause = time.monotonic() + _SETTLED_SECONDS_MAX, threading.Event()
    owned: list[str] = []
    since = time.monotonic()
    while True:
        now = [server.get("/server_info") for server in running]
        known = [len([each for each in json.loads(page)["members"] if each["address"]]) for page in now]
        moved = [json.dumps(json.loads(page).get("owners")) for page in now]
        if moved != owned or min(known) < len(running):
            owned, since = moved, time.monotonic()
        if time.monotonic() - since >= _CALM_SECONDS:
            return
        if time.monotonic() > deadline:
            raise ServerFailed("the servers did not settle")
        pause.wait(_LOOK_SECONDS)


def _load(plans: Sequence[BenchmarkPlan]) -> list[Report]:
    """Carries out the plans at the same time; all of a load counts, its beginning too."""
    loads = [
        subprocess.Popen([sys.executable, "-m", "bench.load"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in plans
    ]
    for load, plan in zip(loads, plans, strict=True):
        assert load.stdin is not None
        load.stdin.write(json.dumps(asdict(plan)))
        load.stdin.close()
    reports = []
    for load in loads:
        assert load.stdout is not None
        text = load.stdout.read()
        if load.wait(LOAD_SECONDS_MAX):
            raise RuntimeError("a load failed")
        reports.append(Report(**json.loads(text)))
    refused = [report.first_refusal for report in reports if report.refused]
    if refused:
        raise RuntimeError(f"requests were refused, first: {refused[0]}")
    return reports


def _plan(place: BenchmarkRun, server: PinLaterServer, work: str, connections: int) -> BenchmarkPlan:
    plan = place.plan(server, work, connections, 1)
    if work != "claim":
        return plan
    return replace(plan, seconds=60.0, jobs_max=int(place.sizes.claim_jobs_single * 0.8 / SERVERS))


def _carried(server: PinLaterServer, work: str) -> tuple[float, float]:
    """How often a lane of this work has called its store, and how many requests these calls carried."""
    lane = "claim" if work == "claim" else "insert"
    gauges = server.stats()["gauges"]
    return (
        sum(value for name, value in gauges.items() if name.startswith(f"lane-calls-{lane} ")),
        sum(value for name, value in gauges.items() if name.startswith(f"lane-requests-{lane} ")),
    )
