"""A whole server on several shards: it starts without one of them, says which it lacks, and changes its map."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from pinlater.domain.errors import StoreFull
from pinlater.domain.queue import QueueConfig
from pinlater.server.config.settings import Settings
from pinlater.server.config.store import StoreLocation
from pinlater.server.features.status.status import Status
from pinlater.server.http.settings import HttpSettings
from pinlater.server.main import file_watch
from pinlater.server.main.app import App
from pinlater.server.sharding.reload import DesiredShard
from pinlater.server.storage.commands import InsertJobs, ListQueues, create_queues
from pinlater.server.storage.sqlite.memory import MemoryShard
from pinlater.server.thrift.settings import ThriftSettings
from pinlater.wire.generated.structs import EnqueueRequest, Job
from tests.databases.ports import free_port
from tests.sharding.faulty import FaultyShard

SETTINGS = replace(
    Settings(),
    store=StoreLocation("memory"),
    thrift=ThriftSettings(host="127.0.0.1", port=0),
    http=HttpSettings(host="127.0.0.1", port=0),
)


class FaultyShards(dict[str, FaultyShard]):
    def desired(self, *names: str) -> list[DesiredShard]:
        return [DesiredShard(name, lambda name=name: self[name].as_shard()) for name in names]  # type: ignore[misc]


@pytest.fixture
def stores(monkeypatch: pytest.MonkeyPatch) -> FaultyShards:
    stores = FaultyShards({name: FaultyShard(MemoryShard(name)) for name in "123"})
    monkeypatch.setattr(file_watch, "embedded", lambda settings: stores.desired("1", "2"))
    return stores


@pytest.fixture
async def server(stores: FaultyShards) -> AsyncIterator[App]:
    app = App(SETTINGS)
    await app.start()
    yield app
    await app.stop(0)


async def page(app: App, path: str) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", app.http.port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    return answer


async def test_a_server_is_ready_while_one_shard_is_and_says_which_are_not(server: App, stores: FaultyShards) -> None:
    assert (await page(server, "/readyz")).endswith("ready\n")
    stores["2"].dead = "connection refused"
    await server.core.shard_monitor.ping_all()
    answer = await page(server, "/readyz")
    assert answer.startswith("HTTP/1.1 200")
    assert answer.endswith("ready; shard 2 is unreachable: connection refused\n")
    stores["1"].dead = "no route"
    await server.core.shard_monitor.ping_all()
    answer = await page(server, "/readyz")
    assert answer.startswith("HTTP/1.1 503")
    assert "shard 1 is unreachable: no route; shard 2 is unreachable: connection refused" in answer


async def test_a_server_with_a_full_shard_is_ready_and_says_so(server: App, stores: FaultyShards) -> None:
    """Its claims and acks go on, and only an enqueue shows that there is space again."""
    await server.core.service.queues.create_queue("q")
    for store in stores.values():
        store.fails(InsertJobs, error=StoreFull.of("used up"))
    with pytest.raises(StoreFull):
        await server.core.service.enqueuing.enqueue(EnqueueRequest("q", [Job(b"x")]))
    answer = await page(server, "/readyz")
    assert answer.startswith("HTTP/1.1 200")
    full = StoreFull.of("used up").message
    assert answer.endswith(f"ready; shard 1 refuses enqueues: {full}; shard 2 refuses enqueues: {full}\n")


async def test_a_server_starts_without_a_shard_that_is_gone(stores: FaultyShards) -> None:
    stores["1"].dead = "connection refused"
    app = App(SETTINGS)
    await app.start()
    assert "shard 1 is unreachable: connection refused" in await page(app, "/readyz")
    assert 'pinlater_shard_healthy{shard="1"} 0.0' in await page(app, "/metrics")
    await app.stop(0)


async def test_the_address_for_other_servers_is_logged_as_the_status_names_it(
    stores: FaultyShards, caplog: pytest.LogCaptureFixture
) -> None:
    for store in stores.values():
        store.capabilities = store.capabilities._replace(shared=True)
    app = App(replace(SETTINGS, host="127.0.0.1"))
    with caplog.at_level(logging.INFO, "pinlater.server.main.app"):
        await app.start()
    try:
        [line] = [record for record in caplog.records if record.message == "other servers reach this one"]
        assert (await app.core.service.of(Status).cluster()).address == line.__dict__["address"]
    finally:
        await app.stop(0)


async def test_a_taken_port_for_other_servers_is_named_with_its_setting(stores: FaultyShards) -> None:
    for store in stores.values():
        store.capabilities = store.capabilities._replace(shared=True)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        app = App(replace(SETTINGS, host="127.0.0.1", peer_port=port))
        with pytest.raises(
            OSError, match=f"The listener for other servers can't listen on 127.0.0.1 port {port}: "
        ) as told:
            await app.start()
    assert str(told.value).endswith("(the setting peer_port chooses another port, as does --set peer_port=PORT)")


async def test_a_server_that_can_not_listen_leaves_no_socket_open(stores: FaultyShards) -> None:
    """It listens for the other servers, and serves pages, before it finds that its Thrift port is taken."""
    for store in stores.values():
        store.capabilities = store.capabilities._replace(shared=True)
    peer_port = free_port()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        app = App(
            replace(
                SETTINGS,
                host="127.0.0.1",
                thrift=ThriftSettings(host="127.0.0.1", port=taken.getsockname()[1]),
                peer_port=peer_port,
            )
        )
        with pytest.raises(OSError, match="Thrift can't listen"):
            await app.start()
    await asyncio.sleep(0)  # the loop closes a transport's socket in its next turn
    for port in (peer_port, app.http.port):
        with socket.socket() as free:
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            free.bind(("127.0.0.1", port))
    assert [store.closed for store in (stores["1"], stores["2"])] == [1, 1]


@pytest.mark.parametrize("part", ["core.Service", "app.Cluster", "app.thrift_server"])
async def test_a_server_that_can_not_be_assembled_closes_its_shards(
    part: str, stores: FaultyShards, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError("no tracing")

    monkeypatch.setattr(f"pinlater.server.main.{part}", broken)
    with pytest.raises(ValueError, match="no tracing"):
        await App(SETTINGS).start()
    assert [store.closed for store in (stores["1"], stores["2"])] == [1, 1]


async def test_queues_that_a_shard_lacks_are_made_at_the_start(stores: FaultyShards) -> None:
    """Made while it was away, by a server that is gone."""
    await stores["2"].submit(create_queues(["q"], 0))
    app = App(SETTINGS)
    await app.start()
    assert [queue.name for queue in await stores["1"].within.submit(ListQueues())] == ["q"]
    await app.stop(0)


async def test_the_map_of_a_running_server_changes(server: App, stores: FaultyShards) -> None:
    await server.core.service.queues.create_queue("q")
    change = await server.core.change_shards(stores.desired("1", "2", "3"))
    assert change.added == ["3"]
    await server.core.service.queues.configure_queue("q", QueueConfig(partitions=3))
    found: set[str] = set()
    while len(found) < 3:
        [descriptor] = (await server.core.service.enqueuing.enqueue(EnqueueRequest("q", [Job(b"x")]))).descriptors
        found.add(descriptor.split(":")[1])
    assert 'pinlater_shard_takes_enqueues{shard="3"} 1.0' in await page(server, "/metrics")


async def test_a_shard_that_holds_shorter_bodies_changes_what_the_server_takes(
    server: App, stores: FaultyShards
) -> None:
    stores["3"].capabilities = stores["3"].capabilities._replace(body_bytes_max=1_000)
    before = (await server.core.service.of(Status).server_info()).max_body_bytes
    await server.core.change_shards(stores.desired("1", "2", "3"))
    assert (await server.core.service.of(Status).server_info()).max_body_bytes == 1_000 < before
