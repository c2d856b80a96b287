"""What tests ask of several real servers on one shard."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from pinlater.client import Ack, Client
from pinlater.domain.slices import SLICES
from pinlater.testing.real_server import RealServer

_DEADLINE_S = 40.0


def owners(server: RealServer) -> dict[str, int]:
    """How many slices each server owns, as this one sees it."""
    with Client(server.address) as client:
        [shard] = client.cluster().shards
    return {owner: shard.owners.count(owner) for owner in set(shard.owners)}


def address_among_servers(server: RealServer) -> str:
    with Client(server.address) as client:
        return client.cluster().address


def until(condition: Callable[[], bool], within_s: float = _DEADLINE_S) -> float:
    """Polls until the condition holds. Returns how long that took, in seconds."""
    began_s = time.monotonic()
    while not condition():
        assert time.monotonic() - began_s < within_s
        time.sleep(0.02)
    return time.monotonic() - began_s


def share_all(servers: Sequence[RealServer]) -> bool:
    """Whether these servers own all slices in equal shares, and know it."""
    expected = {address_among_servers(server) for server in servers}
    seen = [owners(server) for server in servers]
    return all(
        each.keys() == expected and sum(each.values()) == SLICES and max(each.values()) - min(each.values()) <= 1
        for each in seen
    )


def work(servers: Sequence[RealServer], jobs: int = 20) -> None:
    """Enqueues and runs jobs over each of the servers; fails at the first error."""
    for server in servers:
        with Client(server.address) as client:
            client.ensure_queue("q")
            client.enqueue("q", [b"x"] * jobs)
            done = 0
            while done < jobs:
                claimed = client.dequeue("q", limit=jobs, wait_ms=5_000).jobs
                assert claimed
                client.ack("q", [Ack(job.descriptor, token=job.token) for job in claimed])
                done += len(claimed)
