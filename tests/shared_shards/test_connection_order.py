"""The order of answers on a connection while a server carries some of its requests out itself and sends others to their owner."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from pinlater.client import ClusterStatus
from pinlater.domain.slices import SLICES, slice_of
from pinlater.testing.real_server import RealServer
from pinlater.wire.generated import structs as types
from tests.shared_shards.serving import place_of, wait_until
from tests.shared_shards.test_cluster_status import Pair, seen_by
from tests.thrift_server.conftest import Client

_ROUNDS = 25


@pytest.fixture
def pair(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Two servers on one Redis shard, each of which owns half of its slices."""
    place = place_of("redis", tmp_path, request)
    store = place.url(place.password)
    with ExitStack() as running:
        one, two = [running.enter_context(RealServer(tmp_path, *place.options, store=store)) for _ in range(2)]
        wait_until(
            lambda: _is_shared_out(seen_by(one)) and seen_by(one).shards[0].owners == seen_by(two).shards[0].owners
        )
        yield one, two


def _is_shared_out(status: ClusterStatus) -> bool:
    owners = status.shards[0].owners
    reached = [server.address for server in status.servers if server.usable and server.heard]
    return [owners.count(address) for address in reached] == [SLICES // 2] * 2


async def test_pipelined_requests_for_queues_of_two_owners_take_effect_and_are_answered_in_order(pair: Pair) -> None:
    """As a client of the original sends them: without keys and without knowing of owners."""
    seen = seen_by(pair[0])
    owners = {f"q{i}": seen.shards[0].owners[slice_of(f"q{i}")] for i in range(99)}
    own = next(queue for queue, owner in owners.items() if owner == seen.address)
    others = next(queue for queue, owner in owners.items() if owner != seen.address)
    host, port = pair[0].address.split(":")
    client = Client(*await asyncio.open_connection(host, int(port)))
    for queue in (own, others):
        await client.call("createQueue", name=queue)

    bodies = [b"%d" % number for number in range(_ROUNDS)]
    seqids = count()
    for body in bodies:
        for queue in (own, others):
            jobs = [types.Job(body)]
            client.send("enqueueJobs", next(seqids), request=types.EnqueueRequest(queue, jobs))
            client.send("dequeueJobs", next(seqids), request=types.DequeueRequest(queue, 1))
    replies = [await client.receive() for _ in range(4 * _ROUNDS)]
    client.close()

    assert [reply.seqid for reply in replies] == list(range(4 * _ROUNDS))
    claimed = [list(reply.value.jobs.values()) for reply in replies if reply.seqid % 2]
    assert claimed == [[body] for body in bodies for _ in (own, others)], "each dequeue gets the job enqueued before it"
    forwarded = {each.kind: each.items_sent for each in seen_by(pair[0]).forwarded}
    assert forwarded["insert"] > 0
    assert forwarded["claim"] > 0
