"""The row about the CPU of a request that stores little: of the wire, and of a job that shares its call with no other."""

from __future__ import annotations

from dataclasses import replace

from bench.benchmark_run import BenchmarkRun, MeasuredRun
from bench.results import RowResult, median_of
from bench.servers import PinLaterServer, constant_server

CONNECTIONS = 64


def wire_cost(place: BenchmarkRun) -> RowResult:
    """Server CPU of an enqueue: of the wire over that of constant answers, at 64 connections; of the service over the wire's, at one.

    With one connection no two jobs share a turn of the loop or a call of the store.
    """
    runs: list[dict[str, float]] = []
    for _ in range(place.sizes.repeats):
        with constant_server(log=place.log) as server:
            floor = _enqueues(place, server, CONNECTIONS)
        with place.wire() as server:
            wire, lone_wire = _enqueues(place, server, CONNECTIONS), _enqueues(place, server, 1)
        with place.pinlater() as server:
            lone = _enqueues(place, server, 1)
        with place.storeless() as server:
            lone_memory = _enqueues(place, server, 1)
        runs.append(
            {
                "floor_us": floor.cpu_per_job() * 1e6,
                "wire_us": wire.cpu_per_job() * 1e6,
                "wire_floor_ratio": wire.cpu_per_job() / floor.cpu_per_job(),
                "lone_wire_us": lone_wire.cpu_per_job() * 1e6,
                "lone_us": lone.cpu_per_job() * 1e6,
                "lone_ratio": lone.cpu_per_job() / lone_wire.cpu_per_job(),
                "lone_memory_ratio": lone_memory.cpu_per_job() / lone_wire.cpu_per_job(),
            }
        )
    title = f"server CPU of an enqueue: the wire over constant answers, {CONNECTIONS} connections; one connection over the wire"
    return RowResult("wire_cost", title, place.goals("wire_cost"), median_of(runs), runs=list(runs))


def _enqueues(place: BenchmarkRun, server: PinLaterServer, connections: int) -> MeasuredRun:
    return place.load(server, replace(place.plan(server, "enqueue", connections, 1), warmup_seconds=0.0))
