"""The request keys that a client makes lead to one shard for a while, whatever enqueues the jobs: over real sockets, with two owners."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from pinlater.client import AsyncClient, Client
from pinlater.client._affinity import AFFINITY_JOBS
from pinlater.client._servers import parse_address
from pinlater.client._thrift import types
from pinlater.client.batching import AsyncEnqueueBatcher
from pinlater.client.sync_batching import EnqueueBatcher
from pinlater.domain.rendezvous import rendezvous_home
from pinlater.domain.slices import SLICES
from pinlater.worker import Worker
from tests.client.test_following import QUEUE, Servers

SHARDS = ["1", "2"]
STAYS = 4
# A client, and what makes it enqueue a job.
Form = tuple[AsyncClient | Client, Callable[[], Awaitable[Any]]]


class TwoOwners(Servers):
    """Server a owns all queues on shard 1, server b on shard 2. Keeps the enqueues in the order in which they came."""

    def __init__(self) -> None:
        super().__init__("a", "b")
        self.came: list[tuple[str, types.EnqueueRequest]] = []
        for server in self.all:
            server.methods["enqueueJobs"] = self._answering(server.name)

    def _answering(self, name: str) -> Callable[[Any], types.Enqueued]:
        def answer(call: Any) -> types.Enqueued:
            self.came.append((name, call.request))
            return types.Enqueued([f"{QUEUE}:s1:p1:{each}" for each, _ in enumerate(call.request.jobs)])

        return answer

    def owners(self) -> types.QueueOwners:
        servers = [types.OwningServer(server.name, server.address) for server in self.all]
        return types.QueueOwners(
            servers, [types.OwnedShard(shard, True, [int(shard) - 1] * SLICES) for shard in SHARDS]
        )

    async def until_followed(self, form: Form) -> None:
        """Enqueues until the client has reached both owners."""
        client, send = form
        while (owners := client._owners()) is None or not all(
            owners.has_reached(parse_address(server.address)) for server in self.all
        ):
            for _ in range(AFFINITY_JOBS):
                await send()
        self.came.clear()

    @property
    def homes(self) -> list[str]:
        return [rendezvous_home(request.request_key or "", SHARDS) for _, request in self.came]

    @property
    def at_owners(self) -> bool:
        """Whether each enqueue came to the owner of the shard to which its key leads."""
        return all(name == "ab"[int(home) - 1] for (name, _), home in zip(self.came, self.homes, strict=True))


@contextmanager
def one_thread() -> Iterator[Callable[..., Awaitable[Any]]]:
    """What calls a function in the same thread each time."""
    with ThreadPoolExecutor(1) as executor:
        yield lambda function, *arguments: asyncio.get_running_loop().run_in_executor(executor, function, *arguments)


@asynccontextmanager
async def with_async_client(addresses: Any) -> AsyncIterator[Form]:
    async with AsyncClient(addresses) as client:
        yield client, lambda: client.enqueue(QUEUE, [b"x"])


@asynccontextmanager
async def with_client(addresses: Any) -> AsyncIterator[Form]:
    with Client(addresses) as client, one_thread() as in_thread:
        yield client, lambda: in_thread(client.enqueue, QUEUE, [b"x"])


@asynccontextmanager
async def with_async_batcher(addresses: Any) -> AsyncIterator[Form]:
    async with AsyncClient(addresses) as client, AsyncEnqueueBatcher(client) as batcher:
        yield client, lambda: batcher.enqueue(QUEUE, b"x")


@asynccontextmanager
async def with_batcher(addresses: Any) -> AsyncIterator[Form]:
    with Client(addresses) as client, EnqueueBatcher(client) as batcher, one_thread() as in_thread:
        yield client, lambda: in_thread(batcher.enqueue, QUEUE, b"x")


@asynccontextmanager
async def with_task(addresses: Any) -> AsyncIterator[Form]:
    async with AsyncClient(addresses) as client:
        worker = Worker(client)

        @worker.task(QUEUE)
        async def send(number: int) -> None: ...

        yield client, lambda: send.enqueue_async(1)


@pytest.mark.parametrize("form", [with_async_client, with_client, with_async_batcher, with_batcher, with_task])
async def test_successive_enqueues_go_to_the_owner_of_one_shard(form: Any) -> None:
    async with TwoOwners() as servers, form(servers.addresses) as (client, send), asyncio.timeout(30):
        await servers.until_followed((client, send))
        for _ in range(STAYS * AFFINITY_JOBS):
            await send()
        homes = servers.homes
        assert servers.at_owners
        assert len(homes) == STAYS * AFFINITY_JOBS
        assert len({request.request_key for _, request in servers.came}) == len(homes)
        assert sum(before != after for before, after in itertools.pairwise(homes)) < len(homes) / 8


async def test_a_key_that_the_caller_gives_stays_as_it_is_and_goes_where_it_leads() -> None:
    async with TwoOwners() as servers, AsyncClient(servers.addresses) as client, asyncio.timeout(30):
        await servers.until_followed((client, lambda: client.enqueue(QUEUE, [b"x"])))
        keys = [f"mine {number}" for number in range(40)]
        for key in keys:
            await client.enqueue(QUEUE, [b"x"], request_key=key)
        assert [request.request_key for _, request in servers.came] == keys
        assert set(servers.homes) == set(SHARDS)
        assert servers.at_owners
