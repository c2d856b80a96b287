"""Where the enqueues of one turn of the event loop go: those of one queue to one shard, in one call."""

from __future__ import annotations

import asyncio
from collections import Counter

from pinlater.domain.slices import SLICES
from pinlater.server.sharding.shard_lanes import WHOLE_UP_TO_ELSEWHERE
from pinlater.server.storage.commands import InsertJobs
from tests.sharding.sharded_server import ShardedServer, on_shards, shards_of

TURNS = 40
ENQUEUES = WHOLE_UP_TO_ELSEWHERE  # of more, a lane takes half into its first call


async def enqueue_together(server: ShardedServer, *queues: str) -> dict[str, Counter[str]]:
    """Enqueues jobs to each queue in one turn; how many went to which shard."""
    calls = {queue: [server.enqueue(b"x", queue=queue) for _ in range(ENQUEUES)] for queue in queues}
    answers = await asyncio.gather(*(asyncio.gather(*of_queue) for of_queue in calls.values()))
    return {
        queue: Counter(shard for each in answer for shard in shards_of(each))
        for queue, answer in zip(calls, answers, strict=True)
    }


def inserts(server: ShardedServer) -> int:
    return sum(store.calls[InsertJobs] for store in server.stores.values())


@on_shards()
async def test_enqueues_of_one_turn_to_one_queue_are_one_call_to_one_shard(server: ShardedServer) -> None:
    used = set[str]()
    for _ in range(TURNS):
        before = inserts(server)
        stored = await enqueue_together(server, "q")
        assert list(stored["q"].values()) == [ENQUEUES]
        assert inserts(server) == before + 1
        used.update(stored["q"])
    assert used == {"1", "2", "3"}


@on_shards()
async def test_enqueues_of_one_turn_to_several_queues_go_to_a_shard_for_each(server: ShardedServer) -> None:
    await server.service.queues.create_queue("r")
    apart = 0
    for _ in range(TURNS):
        stored = await enqueue_together(server, "q", "r")
        assert [len(shards) for shards in stored.values()] == [1, 1]
        apart += stored["q"] != stored["r"]
    assert 0 < apart < TURNS


@on_shards()
async def test_enqueues_go_to_a_shard_where_this_server_owns_the_queue(server: ShardedServer) -> None:
    for name in ("1", "2", "3"):
        server.lanes(name).route([None] * SLICES, [name == "2"] * SLICES)
    for _ in range(TURNS):
        assert await enqueue_together(server, "q") == {"q": Counter({"2": ENQUEUES})}
