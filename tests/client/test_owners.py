"""Which server a call goes to, and when a client asks who owns queues and connects to owners, by a clock that stands still."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pinlater.client import Ack, AckBatch, AsyncClient, Checkpoint, Claim, Job, UniqueKey
from pinlater.client.errors import UnknownMethod
from pinlater.domain.clock import ManualClock
from pinlater.domain.rendezvous import rendezvous_home, rendezvous_order
from pinlater.domain.slices import SLICES
from pinlater.wire.generated import structs as types
from tests.client.scripted import AskedServer, Script, lost, settle

QUEUE = "emails"
INFO = types.ServerInfo("1", [], "memory", 1, 2, 3, 4, 5, 6, 7, 8)
# A client chooses another owner among several after calls about this number of jobs.
MANY = 128
Call = Callable[[AsyncClient], Awaitable[Any]]


def owners(shards: Mapping[str, str], *, servers: Iterable[str] = (), takers: Iterable[str] | None = None) -> Any:
    """Each shard with one owner of all its slices, '' for none: `{"one": "a"}`. `takers`: the shards that take enqueues; all without it."""
    ids = sorted({*servers, *shards.values()} - {""})
    owned = [
        types.OwnedShard(name, takers is None or name in takers, [ids.index(owner) if owner else -1] * SLICES)
        for name, owner in shards.items()
    ]
    return types.QueueOwners([types.OwningServer(each, f"{each}:9010") for each in ids], owned)


class FollowedCluster:
    """Servers whose ids are their hosts, and a client of them."""

    def __init__(self, known: Any, servers: Any = ("a", "b", "c"), **options: Any) -> None:
        self.known = known
        self.clock = ManualClock()
        self.script = Script(
            enqueueJobs=lambda asked: types.Enqueued(["emails:s1:p1:1"] * len(asked.request.jobs)),
            dequeueJobs=lambda _: types.DequeueResponse(),
            ackJobs=self._outcomes,
            checkpointJobsFenced=self._outcomes,
            heartbeatClaims=self._outcomes,
            releaseJobs=self._outcomes,
            createQueue=lambda _: None,
            getServerInfo=self._info,
            getQueueOwners=lambda _: self.known,
        )
        options = {"request_keys": False, "connections": 1, **options}
        self.client = AsyncClient(servers, connect=self.script.connect, clock=self.clock, **options)

    @staticmethod
    def _outcomes(_: AskedServer) -> list[types.AckResult]:
        return [types.AckResult("emails:s1:p1:1", 0)]

    @staticmethod
    def _info(asked: AskedServer) -> types.ServerInfo:
        return types.ServerInfo(
            **{**{name: getattr(INFO, name) for name in INFO.__struct_fields__}, "server_id": asked.server}
        )

    async def __aenter__(self) -> FollowedCluster:
        await self.client.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()

    async def call(self, times: int = 1, call: Call | None = None) -> list[str]:
        """Makes calls; unless a test says another one, each is a reason to choose another owner. Returns the servers that got them."""
        before = len(self.script.asked)
        for _ in range(times):
            await (call or dequeue(limit=MANY))(self.client)
        quiet = ("getServerInfo", "getQueueOwners")
        return [one.server for one in self.script.asked[before:] if one.method not in quiet]

    async def followed(self) -> None:
        """Makes calls until the client has had time to learn who owns what, and to connect to the owners."""
        for _ in range(6):
            await self.call(8)
            await settle()
            self.clock.advance(seconds=0.2)

    async def asks_in(self, seconds: float, step_s: float = 0.25) -> list[float]:
        """When, from now on, the client asks who owns what, if it makes calls all the time."""
        began_s, found = self.clock.monotonic(), []
        while (now_s := self.clock.monotonic() - began_s) <= seconds:
            before = self.script.count_of("getQueueOwners").total()
            await self.call()
            await settle()
            if self.script.count_of("getQueueOwners").total() > before:
                found.append(now_s)
            self.clock.advance(seconds=step_s)
        return found


def dequeue(*acked: str, limit: int = 1) -> Call:
    acks = AckBatch(QUEUE, [Ack(f"{QUEUE}:s{shard}:p1:1") for shard in acked]) if acked else None
    return lambda client: client.dequeue(QUEUE, limit, acks=acks)


def enqueue(key: str | None = None, unique: str = "", queue: str = QUEUE, repeat: bool = False) -> Call:
    job = Job(b"x", unique=UniqueKey(unique) if unique else None)
    return lambda client: client.enqueue(queue, [job], request_key=key, repeat=repeat)


# --- which way ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.ack(QUEUE, [Ack(f"{QUEUE}:s3:p1:1", False)]),
        lambda client: client.ack(QUEUE, [Ack(f"{QUEUE}:s3:p1:1"), Ack(f"{QUEUE}:s2:p1:1")]),
        lambda client: client.checkpoint(QUEUE, [Checkpoint(f"{QUEUE}:s3:p1:1")]),
        lambda client: client.heartbeat(QUEUE, [Claim(f"{QUEUE}:s3:p1:1", "t")]),
        lambda client: client.release(QUEUE, [Claim(f"{QUEUE}:s3:p1:1", "t")]),
    ],
    ids=["ack", "acks of two shards", "checkpoint", "heartbeat", "release"],
)
async def test_a_call_about_jobs_goes_to_the_owner_of_the_first_ones_shard(call: Call) -> None:
    async with FollowedCluster(owners({"1": "a", "2": "b", "3": "c"})) as cluster:
        await cluster.followed()
        assert set(await cluster.call(10, call)) == {"c"}


async def test_one_in_eight_dequeues_with_acks_goes_where_other_dequeues_go() -> None:
    async with FollowedCluster(owners({"1": "a", "2": "b"})) as cluster:
        await cluster.followed()
        got = await cluster.call(640, dequeue("2", limit=MANY))
    assert got.count("a") in range(20, 61)  # half of an eighth
    assert got.count("a") + got.count("b") == 640


async def test_a_repeat_and_a_call_that_any_server_takes_as_cheaply_go_to_no_owner_in_particular() -> None:
    async with FollowedCluster(owners({"1": "c"}), connections=3) as cluster:
        await cluster.followed()
        assert set(await cluster.call(9)) == {"c"}
        assert set(await cluster.call(9, enqueue("k", repeat=True))) == {"a", "b", "c"}
        assert set(await cluster.call(9, lambda client: client.create_queue(QUEUE))) == {"a", "b", "c"}


@pytest.mark.parametrize("kind", ["request key", "unique key"])
async def test_a_keyed_enqueue_goes_to_the_owner_of_the_shard_where_servers_store_it(kind: str) -> None:
    shards = {"one": "a", "two": "b", "three": "c"}
    keys = [str(number) for number in range(50)]
    async with FollowedCluster(owners(shards)) as cluster:
        await cluster.followed()
        got = {key: await cluster.call(1, enqueue(*(("k", key) if kind == "unique key" else (key,)))) for key in keys}
    assert got == {key: [shards[rendezvous_home(key, list(shards))]] for key in keys}


async def test_calls_for_a_queue_go_to_the_owners_of_its_partitions() -> None:
    """One partition unless the server says more; a unique key leads to the first of them."""
    shards = {"one": "a", "two": "b", "three": "c"}
    known = owners(shards)
    known.partitions = {"wide": 2, "widest": 9}
    async with FollowedCluster(known) as cluster:
        for key in range(40):
            await cluster.call(1, enqueue(str(key), queue="widest"))
            await settle()
            cluster.clock.advance(seconds=0.2)
        for queue, number in (("narrow", 1), ("wide", 2), ("widest", 3)):
            homes = [shards[shard] for shard in rendezvous_order(queue, tuple(shards))[:number]]
            plain = [await cluster.call(1, enqueue(str(key), queue=queue)) for key in range(50)]
            unique = [await cluster.call(1, enqueue("k", str(key), queue)) for key in range(50)]
            assert {server for [server] in plain} == set(homes)
            assert {server for [server] in unique} == {homes[0]}


async def test_a_shard_that_only_drains_is_no_home() -> None:
    async with FollowedCluster(owners({"one": "a", "two": "b"}, takers=["two"])) as cluster:
        await cluster.followed()
        assert {(await cluster.call(1, enqueue(str(key))))[0] for key in range(20)} == {"b"}


async def test_calls_that_any_owner_takes_stay_with_one_and_go_to_all_in_the_long_run() -> None:
    async with FollowedCluster(owners({"one": "a", "two": "b", "three": "c"})) as cluster:
        await cluster.followed()
        stays = []
        for _ in range(200):
            [server] = set(await cluster.call(4, dequeue(limit=MANY // 4)))
            stays.append(server)
    assert min(map(stays.count, "abc")) > 40


async def test_few_calls_stay_with_an_owner_for_a_second() -> None:
    async with FollowedCluster(owners({"one": "a", "two": "b"})) as cluster:
        await cluster.followed()
        found = set[str]()
        for _ in range(20):
            found.update(await cluster.call(1, dequeue()))
            cluster.clock.advance(seconds=1)
    assert found == {"a", "b"}


async def test_a_call_for_a_shard_without_an_owner_goes_anywhere() -> None:
    async with FollowedCluster(owners({"1": "a", "2": ""})) as cluster:
        await cluster.followed()
        assert len(await cluster.call(20)) == 20
        assert len(await cluster.call(5, lambda client: client.ack(QUEUE, [Ack(f"{QUEUE}:s2:p1:1")]))) == 5


@pytest.mark.parametrize(
    "odd",
    [
        types.QueueOwners([types.OwningServer("a", "a:9010")], [types.OwnedShard("1", True, [0])]),
        types.QueueOwners([], []),
    ],
    ids=["another number of slices", "no servers"],
)
async def test_an_answer_that_a_client_does_not_understand_says_nothing(odd: Any) -> None:
    async with FollowedCluster(odd) as cluster:
        await cluster.followed()
        assert cluster.script.servers_of("getServerInfo") == []


async def test_a_server_that_left_the_list_gets_no_calls(tmp_path: Path) -> None:
    listed = tmp_path / "servers"
    listed.write_text("a\nb\n")
    async with FollowedCluster(owners({"1": "b"}), listed) as cluster:
        await cluster.followed()
        assert set(await cluster.call(4)) == {"b"}
        listed.write_text("a\nc\n")
        cluster.clock.advance(seconds=2)
        assert "b" not in await cluster.call(20)


# --- when it asks -------------------------------------------------------------------------------------------------------------


async def test_a_client_of_few_calls_asks_nothing() -> None:
    async with FollowedCluster(owners({"1": "a"})) as cluster:
        for asks in (0, 1):
            await cluster.call(4)
            await settle()
            assert cluster.script.count_of("getQueueOwners").total() == asks


async def test_it_asks_again_after_some_time_and_later_where_servers_share_nothing() -> None:
    async with FollowedCluster(owners({"1": "a"})) as cluster:
        await cluster.followed()
        [first, *_] = await cluster.asks_in(30)
        assert 10 < first <= 25
        cluster.known = types.QueueOwners([], [])
        await cluster.asks_in(30)
        assert await cluster.asks_in(150, step_s=10) == []
        assert await cluster.asks_in(300, step_s=10)


async def test_a_failed_ask_is_repeated_soon_and_then_less_often() -> None:
    async with FollowedCluster(None) as cluster:
        cluster.script.methods["getQueueOwners"] = lost
        await cluster.call(8)
        asks = await cluster.asks_in(120)
    waits = [after - before for before, after in pairwise(asks)]
    assert waits[0] < 2.5
    assert waits[-1] > 10
    assert max(waits) <= 26


async def test_a_server_that_cannot_say_is_asked_again_after_some_minutes() -> None:
    async with FollowedCluster(None, ("a", "b")) as cluster:
        cluster.script.methods["getQueueOwners"] = lambda _: UnknownMethod("")
        await cluster.call(8)
        assert not [at_s for at_s in await cluster.asks_in(240, step_s=5) if at_s > 100]
        assert await cluster.asks_in(400, step_s=5)


async def test_the_loss_of_an_owner_is_a_reason_to_ask_within_moments() -> None:
    async with FollowedCluster(owners({"1": "a", "2": "b"})) as cluster:
        await cluster.followed()
        assert set(await cluster.call(20)) == {"a", "b"}
        before = cluster.script.count_of("getQueueOwners").total()
        cluster.script.away.add("a")
        for key in range(20):
            await cluster.call(1, enqueue(str(key)))  # made again if its answer is lost
        cluster.clock.advance(seconds=2)
        await cluster.call(1, enqueue("last"))
        await settle()
        assert cluster.script.count_of("getQueueOwners").total() == before + 1


# --- where it connects --------------------------------------------------------------------------------------------------------


async def test_an_owner_that_cannot_be_reached_is_tried_again_after_a_time_that_grows() -> None:
    async with FollowedCluster(owners({"1": "a"}), "b", follow_owners=True) as cluster:
        cluster.script.away.add("a")
        tries: list[float] = []
        await cluster.call(8)
        for _ in range(1_600):
            before = cluster.script.tried.count("a")
            await cluster.call()
            await settle()
            if cluster.script.tried.count("a") > before:
                tries.append(cluster.clock.monotonic())
            cluster.clock.advance(seconds=0.2)
    waits = [after - before for before, after in pairwise(tries)]
    assert waits == pytest.approx(sorted(waits), abs=1)
    assert waits[0] < 2
    assert 59 < waits[-1] < 62


async def test_a_client_with_a_list_connects_to_no_other_server() -> None:
    async with FollowedCluster(owners({"1": "c"}), ("a", "b")) as cluster:
        await cluster.followed()
        assert set(cluster.script.tried) == {"a", "b"}  # perhaps one of them is c, under another name


async def test_a_test_run_that_refuses_servers_by_an_error_of_its_own_loses_no_call() -> None:
    """The pytest plugin refuses all servers but those of the run."""
    async with FollowedCluster(owners({"1": "c"}), "a", follow_owners=True) as cluster:
        cluster.script.refused = RuntimeError("not a server of this test run")
        cluster.script.away.add("c")
        await cluster.followed()
        assert "c" in cluster.script.tried
        assert set(await cluster.call(5)) == {"a"}


async def test_a_client_that_may_learn_of_servers_connects_to_where_they_say_they_are() -> None:
    async with FollowedCluster(owners({"1": "c"}), "a", follow_owners=True) as cluster:
        await cluster.followed()
        assert await cluster.call(2) == ["c", "c"]


async def test_it_keeps_a_bounded_number_of_owners() -> None:
    hosts = [f"h{number}" for number in range(100)]
    async with FollowedCluster(owners({host: host for host in hosts}), hosts) as cluster:
        for _ in range(10):
            await cluster.call(200)
            await settle()
            cluster.clock.advance(seconds=0.2)
        assert len(set(cluster.script.servers_of("getServerInfo"))) == 16
