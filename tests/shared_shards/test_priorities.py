"""Priority holds over two shards of a store that two servers share: see `tests/sharding/test_priorities.py`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from pinlater.client import Ack, Client, Job, QueueConfig
from pinlater.domain.descriptor import parse_descriptor
from pinlater.server.sharding.heads import SEEN_S_MAX
from pinlater.testing.real_server import RealServer
from tests.sharding.priority_oracle import PriorityOracle
from tests.shared_shards.serving import place_of, wait_until

# Clocks of servers and of the test, in whole milliseconds.
_FRESH_MS = int(SEEN_S_MAX * 1000) + 100
_LASTS_S = 8.0


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture(params=["mysql", "redis"])
def clients(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Client]]:
    """One of each of two servers on the shards 1 and 2."""
    place = place_of(request.param, tmp_path, request)
    with ExitStack() as running:
        servers = [running.enter_context(RealServer(tmp_path, *place.options, store=place.store)) for _ in range(2)]
        yield [running.enter_context(Client(server.address)) for server in servers]


class ServedPriorities:
    """Enqueues, failures and dequeues by two clients, one call at a time."""

    def __init__(self, clients: list[Client]) -> None:
        self.oracle = PriorityOracle()
        self._clients = clients
        self._dice = Random(3)
        self._in_hand: list[tuple[str, int]] = []

    def run_for(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            client = self._dice.choice(self._clients)
            self._dice.choices([self._enqueue, self.dequeue, self._fail], [4, 4, 1])[0](client)
            time.sleep(self._dice.choice([0.0, 0.0, 0.05, 0.2]))  # else heads are seen all the time

    def _enqueue(self, client: Client) -> None:
        priority, delay_ms = self._dice.randrange(1, 4), self._dice.choice([0, 0, 0, 300, 1_500])
        number = self._dice.choice([1, 10, 20])
        due_ms = now_ms() + delay_ms
        stored = client.enqueue("q", [Job(b"x", priority, due_ms, attempts_allowed=100)] * number)
        for descriptor in stored.descriptors:
            self.oracle.waits(descriptor, priority, max(now_ms(), due_ms))

    def dequeue(self, client: Client) -> int:
        began_ms = now_ms()
        jobs = client.dequeue("q", limit=self._dice.choice([1, 10, 20])).jobs
        self.oracle.given([job.descriptor for job in jobs], began_ms)
        self._in_hand += [(job.descriptor, parse_descriptor(job.descriptor).priority) for job in jobs]
        return len(jobs)

    def _fail(self, client: Client) -> None:
        if self._in_hand:
            descriptor, priority = self._in_hand.pop(self._dice.randrange(len(self._in_hand)))
            delay_ms = self._dice.choice([0, 400])
            due_ms = now_ms() + delay_ms
            client.ack("q", [Ack(descriptor, succeeded=False, retry_delay_ms=delay_ms)])
            self.oracle.waits(descriptor, priority, max(now_ms(), due_ms))


def test_no_job_is_handed_out_while_a_better_one_has_waited_for_longer_than_heads_are_known_on_two_shards(
    clients: list[Client],
) -> None:
    """Also once one shard is no partition any more and jobs are left there."""
    clients[0].create_queue("q")
    load = ServedPriorities(clients)
    for partitions in (2, 1):
        clients[0].configure_queue("q", QueueConfig(partitions=partitions))
        load.run_for(_LASTS_S / 2)
    wait_until(lambda: not load.dequeue(clients[1]) and len(load.oracle) == 0)
    assert load.oracle.handed_out > 100
    assert load.oracle.beyond(_FRESH_MS) == []
