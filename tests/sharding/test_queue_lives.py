"""Queues that come and go over several shards and servers: an answered delete stays, answered settings hold, and none passes from a
deleted queue to the next of its name, however long a server stands still and whichever shard is away."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Coroutine, Sequence
from functools import reduce
from random import Random
from typing import Any

import pytest

from pinlater.domain.errors import OutcomeUnknown, PinLaterError, QueueNotFound, RequestTooOld
from pinlater.domain.queue import Life, Queue, QueueConfig
from pinlater.server.storage.commands import ConfigureQueue, DeleteQueues, ListQueues, MergeQueues, create_queues
from tests.sharding.faulty import CallFault, FaultyShard, Kind
from tests.sharding.sharded_server import PASSWORD, ShardedServer, on_shards, run_on_shards
from tests.sharding.test_queue_settings import come_back, go_away

NAMES = ("1", "2", "3")
QUEUES = ("a", "b")
CONFIG = QueueConfig(max_backlog=7)


async def another_server(server: ShardedServer) -> ShardedServer:
    """On the same shards, with links of its own to them."""
    other = ShardedServer(server.clock)
    other.stores = {name: FaultyShard(server.store(name).within) for name in NAMES}
    await other.open([other.desired(name) for name in NAMES])
    await other.service.queue_cache.refresh()
    return other


async def close(other: ShardedServer) -> None:
    for store in other.stores.values():
        store.release()
    await other.close()


async def rows(server: ShardedServer, queue: str = "q") -> list[Queue]:
    """As the shards have it."""
    lists = [await server.store(name).within.submit(ListQueues()) for name in NAMES]
    return [row for found in lists for row in found if row.name == queue]


async def bring_back(server: ShardedServer, name: str) -> None:
    """The server has had the shard out of use, and tries it now."""
    server.lanes(name).put_out_of_use("test")
    server.lanes(name).health.suspect()
    await server.core.shard_monitor.look()


async def until_met(server: ShardedServer, fault: CallFault) -> None:
    await asyncio.wait_for(fault.met.wait(), 60)
    await server.turns()


@pytest.mark.parametrize("again", [False, True])
def test_a_server_that_brings_a_shard_up_to_date_does_not_bring_back_what_is_deleted_meanwhile(again: bool) -> None:
    """It stands still between its look at the others and what it makes on the shard."""

    async def scenario(server: ShardedServer) -> None:
        other = await another_server(server)
        await server.service.queues.set_paused("q", paused=True)
        still = other.store("1").hangs(ListQueues)
        await bring_back(other, "1")
        await until_met(other, still)
        server.clock.advance(ms=1_000)
        await server.service.queues.delete_queue("q", PASSWORD)
        if again:
            await server.service.queues.create_queue("q")
        still.release()
        await other.core.shard_monitor.probes_done()
        assert other.lanes("1").healthy
        assert len(await rows(server)) == (3 if again else 0)
        assert not any(row.paused for row in await rows(server))
        await close(other)

    run_on_shards(scenario, shards=NAMES)


@on_shards(shards=NAMES)
async def test_old_settings_that_a_server_has_in_hand_do_not_reach_a_queue_that_was_made_again(
    server: ShardedServer,
) -> None:
    """It gives them to a shard that lacked them."""
    other = await another_server(server)
    server.store("1").fails(ConfigureQueue)
    with pytest.raises(PinLaterError):
        await server.service.queues.set_paused("q", paused=True)
    await other.service.queue_cache.refresh()
    still = other.store("1").hangs(ConfigureQueue, MergeQueues)
    refreshing = asyncio.ensure_future(other.service.queue_cache.refresh())
    await until_met(other, still)
    await server.service.queues.delete_queue("q", PASSWORD)
    await server.service.queues.create_queue("q")
    still.release()
    await refreshing
    for _ in range(3):
        await server.service.queue_cache.refresh()
    assert [row.paused for row in await rows(server)] == [False] * 3
    await close(other)


@on_shards(shards=NAMES)
async def test_a_task_brings_back_no_deleted_queue_at_a_server_that_lacks_a_shard_and_has_not_heard_of_the_deletion(
    server: ShardedServer,
) -> None:
    """A program that asks for the queue at that moment gets it, since a shard that is away might have deleted it before."""
    other = await another_server(server)
    other.lanes("3").put_out_of_use("test")
    await server.service.queues.delete_queue("q", PASSWORD)
    server.clock.advance(ms=10)
    with pytest.raises(QueueNotFound, match="deleted within the last day"):
        await other.service.queues.create_queue("q", for_task=True)
    assert await rows(server) == []
    await other.service.queues.create_queue("q")
    assert len(await rows(server)) == 2
    await close(other)


@on_shards(shards=NAMES)
async def test_a_create_that_stood_still_brings_back_nothing(server: ShardedServer) -> None:
    """Its caller has given up, and another server has made and deleted the queue since."""
    other = await another_server(server)
    still = other.store("1").hangs(MergeQueues)
    making = asyncio.ensure_future(other.service.queues.create_queue("new"))
    await until_met(other, still)
    server.clock.advance(ms=4_000)
    await server.service.queues.create_queue("new")
    await server.service.queues.delete_queue("new", PASSWORD)
    server.clock.advance(ms=4_000)
    still.release()
    with pytest.raises(OutcomeUnknown):
        await making
    assert await rows(server, "new") == []
    await close(other)


@on_shards(shards=NAMES)
async def test_a_delete_says_that_a_shard_kept_the_queue_which_went_away_before_its_second_try(
    server: ShardedServer,
) -> None:
    """Another server with a clock that is ahead has made the queue: the first try deletes it from no shard."""
    ahead = Life(server.clock.now_ms() + 10_000)
    for name in NAMES:
        await server.store(name).within.submit(create_queues(["new"], server.clock.now_ms(), life=ahead))
    first_try = server.store("2").hangs(DeleteQueues)
    deleting = asyncio.ensure_future(server.service.queues.delete_queue("new", PASSWORD))
    await until_met(server, first_try)
    server.lanes("1").put_out_of_use("test")
    first_try.release()
    with pytest.raises(PinLaterError, match="deleted from the others"):
        await deleting
    assert len(await rows(server, "new")) == 1


@on_shards(shards=NAMES)
async def test_a_delete_that_stood_still_while_its_password_was_checked_deletes_nothing(server: ShardedServer) -> None:
    """Its caller has given up, and another server has made the queue again since."""
    other = await another_server(server)
    going_on = asyncio.Event()

    async def check(password: str) -> bool:
        await going_on.wait()
        return password == PASSWORD

    other.core.passwords.check = check  # type: ignore[method-assign]
    deleting = asyncio.ensure_future(other.service.queues.delete_queue("q", PASSWORD))
    await other.turns()
    server.clock.advance(ms=1)
    await server.service.queues.delete_queue("q", PASSWORD)
    await server.service.queues.create_queue("q")
    server.clock.advance(ms=10_000)
    going_on.set()
    with pytest.raises(RequestTooOld):
        await deleting
    assert len(await rows(server)) == 3
    await close(other)


@on_shards(shards=NAMES)
async def test_a_create_that_stood_still_while_it_looked_for_what_there_is_makes_nothing(server: ShardedServer) -> None:
    """It reads the queues where it seems that there are too many."""
    other = await another_server(server)
    other.service.queue_cache.queues_max = 1
    await server.service.queues.delete_queue("q", PASSWORD)
    still = other.store("1").hangs(ListQueues)
    making = asyncio.ensure_future(other.service.queues.create_queue("new"))
    await other.turns()
    server.clock.advance(ms=1_000)
    await until_met(other, still)
    await server.service.queues.create_queue("new")
    await server.service.queues.delete_queue("new", PASSWORD)
    server.clock.advance(ms=10_000)
    still.release()
    with pytest.raises(RequestTooOld):
        await making
    assert await rows(server, "new") == []
    await close(other)


@on_shards(shards=NAMES)
async def test_a_delete_that_stood_still_leaves_the_queue_that_was_made_since(server: ShardedServer) -> None:
    other = await another_server(server)
    still = other.store("1").hangs(DeleteQueues)
    deleting = asyncio.ensure_future(other.service.queues.delete_queue("q", PASSWORD))
    await until_met(other, still)
    server.clock.advance(ms=1)
    await server.service.queues.delete_queue("q", PASSWORD)
    await server.service.queues.create_queue("q")
    await server.service.queues.set_paused("q", paused=True)
    server.clock.advance(ms=10_000)
    still.release()
    with pytest.raises(OutcomeUnknown):
        await deleting
    assert [row.paused for row in await rows(server)] == [True] * 3
    await close(other)


@on_shards(shards=NAMES)
async def test_a_pause_that_stood_still_changes_nothing(server: ShardedServer) -> None:
    """It had not looked yet which queue there is, and which settings."""
    other = await another_server(server)
    still = other.store("1").hangs(ListQueues)
    pausing = asyncio.ensure_future(other.service.queues.set_paused("q", paused=True))
    await until_met(other, still)
    server.clock.advance(ms=5_001)
    still.release()
    with pytest.raises(RequestTooOld):
        await pausing
    assert [row.paused for row in await rows(server)] == [False] * 3
    await close(other)


@on_shards(shards=NAMES)
async def test_a_delete_at_once_after_a_create_and_a_create_at_once_after_a_delete_count(server: ShardedServer) -> None:
    """In one millisecond, and where the clock of the server before was ahead."""
    other = await another_server(server)
    ahead_ms = server.clock.now_ms() + 3_600_000
    for store in server.stores.values():
        await store.within.submit(DeleteQueues(["q"], ahead_ms))
    for asked in (server, other, server):
        await asked.service.queues.create_queue("q")
        await asked.service.queues.set_paused("q", paused=True)
        assert [row.paused for row in await rows(server)] == [True] * 3
        await asked.service.queues.delete_queue("q", PASSWORD)
        assert await rows(server) == []
    await close(other)


@on_shards(shards=NAMES)
async def test_making_a_queue_that_is_there_changes_nothing(server: ShardedServer) -> None:
    """Also by a server that does not know it, while the shards that have it are away."""
    other = await another_server(server)
    await server.service.queues.set_paused("q", paused=True)
    await server.service.queues.configure_queue("q", CONFIG)
    before = await rows(server)
    server.clock.advance(ms=1_000)
    await server.service.queues.create_queue("q")
    assert await rows(server) == before
    other.service.queue_cache.remove("q")
    for name in "12":
        other.lanes(name).put_out_of_use("test")
    await other.service.queues.create_queue("q")
    for _ in range(2):
        await server.service.queue_cache.refresh()
    assert {(row.paused, row.config) for row in await rows(server)} == {(True, CONFIG)}
    assert len({row.life for row in await rows(server)}) == 1
    await close(other)


@on_shards(shards=NAMES)
async def test_a_shard_that_was_away_from_delete_to_create_has_no_setting_of_the_former_queue(
    server: ShardedServer,
) -> None:
    """The delete fails and says so."""
    await server.service.queues.set_paused("q", paused=True)
    await server.service.queues.configure_queue("q", CONFIG)
    await go_away(server, "1")
    with pytest.raises(PinLaterError, match="deleted from the others"):
        await server.service.queues.delete_queue("q", PASSWORD)
    await server.service.queues.create_queue("q")
    await come_back(server, "1")
    assert {(row.paused, row.config) for row in await rows(server)} == {(False, QueueConfig())}
    assert not (await server.service.queues.queue_config("q")).paused


# --- anything, in any order -------------------------------------------------------------------------------------------------------

UNKNOWN = "unknown"
# A call that has stood still for so long takes back nothing that was answered since.
LONG_MS = 6_000


class Belief:
    """What the answers so far say of one queue; `UNKNOWN` where a call failed on the way."""

    def __init__(self) -> None:
        self.exists: Any = False
        self.paused: Any = False
        self.config: Any = QueueConfig()
        self.deletes = self.creates = 0  # answered ones that changed something for certain

    def forget(self) -> None:
        self.exists = self.paused = self.config = UNKNOWN


class Standing:
    """A call of a client that stands still in its server."""

    def __init__(self, kind: str, belief: Belief, fault: CallFault, call: asyncio.Task[None], now_ms: int) -> None:
        self.kind, self.belief, self.fault, self.call, self.began_ms = kind, belief, fault, call, now_ms
        self.deletes, self.creates = belief.deletes, belief.creates

    def harmless(self, now_ms: int) -> bool:
        """Whether what was answered since must hold."""
        answered = self.belief.creates > self.creates if self.kind == "delete" else self.belief.deletes > self.deletes
        return answered and now_ms - self.began_ms > LONG_MS


class ThreeServers:
    """Three servers on three shards."""

    def __init__(self, server: ShardedServer, servers: list[ShardedServer], seed: int) -> None:
        self.server, self.servers, self.random = server, servers, Random(seed)
        self.beliefs = {name: Belief() for name in QUEUES}
        self.standing: list[Standing] = []
        self.looking: list[tuple[CallFault, asyncio.Task[None]]] = []
        self.number = 0

    async def step(self) -> None:
        self.server.clock.advance(ms=self.random.randint(1, 30))
        acts = {
            "call": 12,
            "away": 3,
            "back": 5,
            "fails": 2,
            "look": 3,
            "stand": 3,
            "look still": 3,
            "go on": 4,
            "time": 2,
        }
        act = self.random.choices(list(acts), list(acts.values()))[0]
        server = self.random.choice(self.servers)
        name = self.random.choice(NAMES)
        match act:
            case "call":
                await self._call(server)
            case "away":
                server.store(name).dead = "connection refused"
                if self.random.random() < 0.8:
                    server.lanes(name).put_out_of_use("test")
            case "back":
                server.store(name).dead = None
                await self._probe(server)
            case "fails":
                kinds: Sequence[Kind] = (MergeQueues, DeleteQueues, ConfigureQueue, MergeQueues)
                server.store(name).fails(self.random.choice(kinds), done_first=self.random.random() < 0.5)
            case "look":
                await self._through(quietly(server.service.queue_cache.refresh()))
            case "stand":
                await self._stand_still(server, name)
            case "look still":
                await self._look_still(server, name)
            case "go on":
                await self._go_on()
            case _:
                self.server.clock.advance(ms=self.random.choice([1_000, 8_000, 3_600_000]))

    def _plan(self, server: ShardedServer) -> tuple[str, Belief, Coroutine[Any, Any, None], Any]:
        queue, service = self.random.choice(QUEUES), server.service
        self.number += 1
        paused, config = self.random.random() < 0.5, QueueConfig(max_backlog=self.number)
        kind = self.random.choice(["create", "create", "delete", "pause", "configure"])
        belief = self.beliefs[queue]
        match kind:
            case "create":
                return kind, belief, service.queues.create_queue(queue), None
            case "delete":
                return kind, belief, service.queues.delete_queue(queue, PASSWORD), None
            case "pause":
                return kind, belief, service.queues.set_paused(queue, paused=paused), paused
            case _:
                return kind, belief, service.queues.configure_queue(queue, config), config

    async def _through(self, call: Awaitable[None]) -> None:
        """Carries it out to its end; time goes by where it waits."""
        task = asyncio.ensure_future(call)
        await self.server.turns()
        while not task.done():
            self.server.clock.advance(ms=20)
            await self.server.turns()
            await asyncio.sleep(0)
        await task

    async def _call(self, server: ShardedServer) -> None:
        kind, belief, call, value = self._plan(server)
        try:
            await self._through(call)
        except PinLaterError:
            self._failed(kind, belief)
            return
        match kind:
            case "create":
                belief.creates += belief.exists is False
                belief.exists = True
            case "delete":
                belief.exists, belief.paused, belief.config = False, False, QueueConfig()
                belief.deletes += 1
            case "pause":
                belief.exists, belief.paused = True, value
            case _:
                belief.exists, belief.config = True, value

    @staticmethod
    def _failed(kind: str, belief: Belief) -> None:
        match kind:
            case "create" if belief.exists is False:
                belief.exists = UNKNOWN
            case "delete":
                belief.forget()
            case "pause":
                belief.paused = UNKNOWN
            case "configure":
                belief.config = UNKNOWN

    async def _stand_still(self, server: ShardedServer, name: str) -> None:
        """A call that a client makes and gives up."""
        kind, belief, call, _ = self._plan(server)
        commands: dict[str, Kind] = {"create": MergeQueues, "delete": DeleteQueues}
        fault = server.store(name).hangs(commands.get(kind, ConfigureQueue), ListQueues)
        task = asyncio.ensure_future(quietly(call))
        await server.turns()
        fault.left = 0  # others pass
        self._failed(kind, belief)
        self.standing.append(Standing(kind, belief, fault, task, self.server.clock.now_ms()))

    async def _look_still(self, server: ShardedServer, name: str) -> None:
        """The server reads the queues, and stands still before it acts on them."""
        other = self.random.choice(NAMES)
        fault = server.store(name).hangs(ListQueues, MergeQueues, ConfigureQueue)
        brings = self.random.random() < 0.5
        task = asyncio.ensure_future(
            quietly(self._bring_back(server, other) if brings else server.service.queue_cache.refresh())
        )
        await server.turns()
        fault.left = 0
        self.looking.append((fault, task))

    async def _bring_back(self, server: ShardedServer, name: str) -> None:
        await bring_back(server, name)
        await server.core.shard_monitor.probes_done()

    async def _probe(self, server: ShardedServer) -> None:
        for name in NAMES:
            if not server.lanes(name).healthy and server.store(name).dead is None:
                server.lanes(name).health.suspect()
        await server.core.shard_monitor.look()
        await server.turns()

    async def _go_on(self) -> None:
        if self.looking:
            fault, _ = self.looking.pop(self.random.randrange(len(self.looking)))
            fault.release()
        if self.standing:
            await self._release(self.standing.pop(self.random.randrange(len(self.standing))))
        await self.server.turns(80)

    async def _release(self, standing: Standing) -> None:
        if not standing.harmless(self.server.clock.now_ms()):
            self._failed(standing.kind, standing.belief)
            if standing.kind == "create":
                standing.belief.forget()
        standing.fault.release()
        await self._through(standing.call)

    async def settle(self) -> None:
        """All goes on, all shards are back, and every server has looked."""
        for fault, _ in self.looking:
            fault.release()
        for standing in self.standing:
            await self._release(standing)
        for server in self.servers:
            for name in NAMES:
                server.store(name).dead = None
                server.store(name).forget_faults()
        await self.server.turns(200)
        for _ in range(20):
            for server in self.servers:
                await self._probe(server)
            await self.server.turns()
            self.server.clock.advance(ms=1_000)
        for server in self.servers * 2:
            await self._through(server.service.queue_cache.refresh())

    async def check(self) -> None:
        for queue, belief in self.beliefs.items():
            found = await rows(self.server, queue)
            if belief.exists is not UNKNOWN:
                assert bool(found) is belief.exists, (queue, found)
            if not found:
                continue
            newest = reduce(Queue.newest, found)
            assert {row._replace(life=newest.life) for row in found} == {newest}, found
            if belief.exists is True:
                assert belief.paused in (UNKNOWN, newest.paused), (queue, newest)
                assert belief.config in (UNKNOWN, newest.config), (queue, newest)


async def accept(password: str) -> bool:
    return password == PASSWORD


async def quietly(call: Coroutine[Any, Any, None]) -> None:
    with contextlib.suppress(PinLaterError):
        await call


@pytest.mark.parametrize("seed", range(40))
def test_answers_about_queues_hold_while_servers_stand_still_and_shards_are_unreachable(seed: int) -> None:
    async def scenario(server: ShardedServer) -> None:
        servers = [server, await another_server(server), await another_server(server)]
        for each in servers:
            each.core.passwords.check = accept  # type: ignore[method-assign]  # the real one is slow by design
        world = ThreeServers(server, servers, seed)
        for _ in range(4):
            for _ in range(25):
                await world.step()
            await world.settle()
            await world.check()
            world.looking.clear()
            world.standing.clear()
        for each in servers[1:]:
            await close(each)

    run_on_shards(scenario, shards=NAMES)
