"""`/metrics` and the status of the cluster count the claims that a server answers from memory, on each kind of shard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pinlater.client import Client
from pinlater.testing.real_server import RealServer
from tests.shared_shards.serving import metrics, place_of, wait_until


@pytest.fixture(params=["sqlite", "mysql", "redis"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RealServer]:
    if request.param == "sqlite":
        running = RealServer(tmp_path)
    else:
        place = place_of(request.param, tmp_path, request)
        running = RealServer(tmp_path, *place.options, store=place.store)
    with running:
        yield running


def test_polls_of_an_empty_queue_that_memory_answers_are_counted(server: RealServer) -> None:
    """A server remembers of the queues that it owns, which it does some moments after its start."""
    with Client(server.address) as client:
        client.create_queue("emails")

        def are_counted() -> bool:
            for _ in range(5):
                assert not client.dequeue("emails").jobs
            return max(metrics(server, "pinlater_store_claims_from_memory").values()) > 0

        wait_until(are_counted)
        counted = sum(metrics(server, "pinlater_store_claims_from_memory").values())
        memories = [shard.details.memory for shard in client.cluster().shards if shard.details is not None]
        assert sum(memory.claims for memory in memories if memory is not None) == counted
        assert [(memory.jobs, memory.size_bytes) for memory in memories if memory is not None] == [(0, 0)] * len(
            memories
        )
