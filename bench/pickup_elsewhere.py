"""The row about two servers on the same shards: a worker waits at one, its job is enqueued at the other.

Servers wake each other over their connections; without one, a server finds the job when it looks, about once a second. To have none, both
advertise an address where nothing listens.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.benchmark_run import BenchmarkRun
from bench.results import RowResult, median_of
from bench.servers import PinLaterServer, ServerFailed
from bench.waiting import handler_pickups, named, wire_pickups

# Loopback too, but not where servers listen.
_NOWHERE = ("--set", "advertised_address=127.0.0.2")
_MEET_SECONDS_MAX = 30.0
_LOOK_SECONDS = 0.02


def pickup_elsewhere(place: BenchmarkRun) -> RowResult:
    """To the handler of the worker at the other server, and to a bare client there; a few without wakes, which take long."""
    count = place.sizes.pickups
    runs = []
    for _ in range(max(1, place.sizes.repeats - 2)):
        with _two_servers(place) as (taker, giver):
            bare = wire_pickups(taker, giver, count)
            handled = handler_pickups(taker, giver, count)
        with _two_servers(place, *_NOWHERE) as (taker, giver):
            unreachable = wire_pickups(taker, giver, max(3, count // 10))
        runs.append(named("pickup", handled) | named("wire_client", bare) | named("unreachable", unreachable))
    title = (
        "idle pickup on another server of the same shards than took the enqueue; where servers can't reach each other"
    )
    return RowResult("pickup_elsewhere", title, place.goals("pickup_elsewhere"), median_of(runs), runs=list(runs))


@contextmanager
def _two_servers(place: BenchmarkRun, *arguments: str) -> Iterator[tuple[PinLaterServer, PinLaterServer]]:
    """On one store, and each knows of the other."""
    store = place.stores.new()
    with place.pinlater(store, *arguments) as one, place.pinlater(store, *arguments) as other:
        deadline, pause = time.monotonic() + _MEET_SECONDS_MAX, threading.Event()
        while not (_knows_two(one) and _knows_two(other)):
            if time.monotonic() > deadline:
                raise ServerFailed("servers of the same shards don't know each other")
            pause.wait(_LOOK_SECONDS)
        yield one, other
    store.remove()


def _knows_two(server: PinLaterServer) -> bool:
    members = json.loads(server.get("/server_info"))["members"]
    return sum(1 for member in members if member["address"]) == 2
