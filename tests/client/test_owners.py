"""What a client knows of owners, with a clock that stands still: which call goes where, and when it asks and connects again."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from pinlater.client import Ack, AckBatch, Checkpoint, Claim, Job, UniqueKey, _calls
from pinlater.client._affinity import AFFINITY_JOBS
from pinlater.client._client_call import ClientCall
from pinlater.client._owner_table import Aim, OwnerTable, aim_of, owner_table
from pinlater.client._owners import SERVERS_MAX, KnownOwners
from pinlater.client._servers import FixedServers, ServerAddress, ServerSource
from pinlater.client._thrift import types
from pinlater.domain.rendezvous import rendezvous_home, rendezvous_order
from pinlater.domain.slices import SLICES, slice_of

A, B, C = (ServerAddress(host, 9010) for host in "abc")
QUEUE = "emails"


class Now:
    def __init__(self) -> None:
        self.s = 100.0

    def __call__(self) -> float:
        return self.s


def table(**owners: str) -> OwnerTable:
    """Each shard with one owner of all slices: `one="a"`. Servers announce their own address."""
    ids = sorted(set(owners.values()))
    servers = [types.OwningServer(each, f"{each}:9010") for each in ids]
    shards = [types.OwnedShard(shard, True, [ids.index(owner)] * SLICES) for shard, owner in owners.items()]
    return owner_table(types.QueueOwners(servers, shards))


class Known:
    """Owners as a client of the servers a, b and c knows them. Unless a test gives another call, each call is a reason to choose anew."""

    def __init__(self, *, only_listed: bool = True, listed: tuple[ServerAddress, ...] = (A, B, C)) -> None:
        self.now = Now()
        self.owners = KnownOwners(FixedServers(listed), only_listed=only_listed, monotonic=self.now, random=Random(1))
        self.route(8)  # a client that has made some calls

    def route(self, times: int = 1, call: ClientCall[Any] | None = None) -> list[ServerAddress | None]:
        return [self.owners.route(call or dequeue(limit=AFFINITY_JOBS)) for _ in range(times)]

    def reach_all(self) -> list[ServerAddress]:
        """Connects to all owners that are wanted; each server says the letter of its host."""
        found = list(self.owners.to_reach())
        for address in found:
            self.owners.reached(address, address.host)
        return found


def dequeue(*acked: str, limit: int = 1) -> ClientCall[Any]:
    acks = AckBatch(QUEUE, [Ack(f"{QUEUE}:s{shard}:p1:1") for shard in acked]) if acked else None
    return _calls.dequeue(QUEUE, limit, wait_ms=0, acks=acks, dry_run=False, coverage=1.0)


def enqueue(key: str | None = None, unique: UniqueKey | None = None, repeat: bool = False) -> ClientCall[Any]:
    return _calls.enqueue(QUEUE, [Job(b"x", unique=unique)], key, repeat)


# --- what a call is about -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "aim"),
    [
        (enqueue(), Aim(QUEUE)),
        (enqueue("k"), Aim(QUEUE, key="k")),
        (enqueue("k", UniqueKey("u")), Aim(QUEUE, key="u", unique=True)),
        (enqueue("k", repeat=True), None),
        (dequeue(), Aim(QUEUE)),
        (dequeue("2", "1"), Aim(QUEUE, "2")),
        (dequeue(limit=7), Aim(QUEUE, jobs=7)),
        (_calls.acknowledge(QUEUE, [Ack(f"{QUEUE}:s3:p1:1", False)], per_item_errors=False), Aim(QUEUE, "3")),
        (_calls.checkpoint(QUEUE, [Checkpoint(f"{QUEUE}:s2:p1:1")], per_item_errors=False), Aim(QUEUE, "2")),
        (_calls.heartbeat(QUEUE, [Claim(f"{QUEUE}:s2:p1:1", "t")], per_item_errors=False), Aim(QUEUE, "2")),
        (_calls.heartbeat(QUEUE, [], per_item_errors=False), Aim(QUEUE)),
        (_calls.create_queue(QUEUE), None),
        (_calls.queue_stats([QUEUE]), None),
    ],
)
def test_a_call_is_about_a_shard_or_a_key_or_any_owner_of_its_queue(call: ClientCall[Any], aim: Aim | None) -> None:
    assert aim_of(call) == aim


def test_a_keyed_enqueue_is_meant_for_the_owner_of_the_shard_where_servers_store_it() -> None:
    known = table(one="a", two="b", three="c")
    homes = {key: rendezvous_home(key, ["one", "two", "three"]) for key in map(str, range(50))}
    assert {owner for key in homes for owner in known.candidates(Aim(QUEUE, key=key))} == {"a", "b", "c"}
    for key, home in homes.items():
        assert known.candidates(Aim(QUEUE, key=key)) == (known.owners[home][slice_of(QUEUE)],)


def test_calls_for_a_queue_are_meant_for_the_owners_of_its_partitions() -> None:
    """One partition unless the server says more; a unique key leads to the first of them."""
    shards = ("one", "two", "three")
    known = table(one="a", two="b", three="c")._replace(partitions={"wide": 2, "widest": 9})
    for queue, number in (("narrow", 1), ("other", 1), ("wide", 2), ("widest", 3)):
        owners = [known.owners[shard][slice_of(queue)] for shard in rendezvous_order(queue, shards)[:number]]
        assert sorted(known.candidates(Aim(queue))) == sorted(owners)
        assert {known.candidates(Aim(queue, key=str(key)))[0] for key in range(50)} == set(owners)
        assert {known.candidates(Aim(queue, key=str(key), unique=True)) for key in range(50)} == {(owners[0],)}


def test_a_shard_that_only_drains_is_no_home() -> None:
    known = table(one="a", two="b")._replace(takers=("two",))
    assert {known.candidates(Aim(QUEUE, key=key)) for key in map(str, range(20))} == {("b",)}


def test_an_answer_with_another_number_of_slices_or_without_servers_says_nothing() -> None:
    odd = types.QueueOwners([types.OwningServer("a")], [types.OwnedShard("1", True, [0])])
    assert owner_table(odd) == owner_table(types.QueueOwners([], [])) == OwnerTable()
    assert OwnerTable().candidates(Aim(QUEUE)) == ()


# --- which way ----------------------------------------------------------------------------------------------------------------


def test_calls_go_anywhere_until_an_owner_was_reached() -> None:
    known = Known()
    known.owners.learned(table(one="a", two="b"))
    assert known.route(20) == [None] * 20
    assert sorted(known.reach_all()) == [A, B]
    assert set(known.route(20)) == {A, B}


def test_calls_that_any_owner_takes_stay_with_one_and_go_to_all_in_the_long_run() -> None:
    known = Known()
    known.owners.learned(table(one="a", two="b", three="c"))
    known.route(40)
    known.reach_all()
    stays = Counter[ServerAddress | None]()
    for _ in range(300):
        [server] = set(known.route(AFFINITY_JOBS, dequeue()))
        stays[server] += 1
    assert min(stays[A], stays[B], stays[C]) > 70


def test_few_calls_stay_with_an_owner_for_a_second() -> None:
    known = Known()
    known.owners.learned(table(one="a", two="b"))
    known.route(20)
    known.reach_all()
    found = set[ServerAddress | None]()
    for _ in range(20):
        found.update(known.route(1, dequeue()))
        known.now.s += 1.0
    assert found == {A, B}


def test_calls_about_a_shard_go_to_its_owner_but_some_dequeues() -> None:
    known = Known()
    known.owners.learned(table(one="a", two="b"))
    known.route(20)
    known.reach_all()
    ack = _calls.acknowledge(QUEUE, [Ack(f"{QUEUE}:stwo:p1:1")], per_item_errors=False)
    assert set(known.route(20, ack)) == {B}
    routed = known.route(640, dequeue("two", limit=AFFINITY_JOBS))
    assert routed.count(A) in range(20, 61)  # half of an eighth
    assert routed.count(A) + routed.count(B) == 640


def test_a_call_for_a_shard_without_an_owner_goes_anywhere() -> None:
    known = Known()
    servers = [types.OwningServer("a", "a:9010")]
    shards = [types.OwnedShard("1", True, [0] * SLICES), types.OwnedShard("2", True, [-1] * SLICES)]
    known.owners.learned(owner_table(types.QueueOwners(servers, shards)))
    known.route(20)
    known.reach_all()
    assert set(known.route(20)) == {None, A}


# --- when it asks -------------------------------------------------------------------------------------------------------------


def test_a_client_of_few_calls_or_of_one_server_asks_nothing() -> None:
    few = KnownOwners(FixedServers((A, B)), only_listed=True, monotonic=Now(), random=Random(1))
    assert not few.has_work()
    assert not Known(listed=(A,)).owners.has_work()
    assert Known(listed=(A,), only_listed=False).owners.has_work()
    assert Known().owners.has_work()


def test_it_asks_again_after_some_time_and_later_where_servers_share_nothing() -> None:
    known = Known()
    known.owners.learned(table(one="a"))
    assert not known.owners.is_ask_due()
    known.now.s += 25
    assert known.owners.is_ask_due()
    known.owners.learned(OwnerTable())
    known.now.s += 25
    assert not known.owners.is_ask_due()
    known.now.s += 400
    assert known.owners.is_ask_due()


def test_a_failed_ask_is_repeated_soon_and_then_less_often() -> None:
    known = Known()
    waits = []
    for _ in range(8):
        known.owners.ask_failed()
        began_s = known.now.s
        while not known.owners.is_ask_due():
            known.now.s += 0.05
        waits.append(known.now.s - began_s)
    assert waits[0] < 2
    assert waits[-1] > 10
    assert max(waits) <= 25


def test_a_server_that_cannot_say_is_left_alone_for_minutes_and_others_are_asked() -> None:
    known = Known()
    known.owners.cannot_say(A)
    assert not known.owners.can_say(A)
    assert known.owners.can_say(B)
    known.now.s += 500
    assert known.owners.can_say(A)


def test_the_loss_of_an_owner_is_a_reason_to_ask_within_moments() -> None:
    known = Known()
    known.owners.learned(table(one="a", two="b"))
    known.route(20)
    known.reach_all()
    known.owners.failed(A)
    assert set(known.route(20)) == {None, B}
    known.now.s += 2
    assert known.owners.is_ask_due()


# --- where it connects --------------------------------------------------------------------------------------------------------


def test_an_owner_that_fails_is_tried_again_after_a_time_that_grows() -> None:
    known = Known()
    known.owners.learned(table(one="a"))
    known.route()
    waits = []
    for _ in range(8):
        began_s = known.now.s
        while not known.owners.to_reach():
            known.now.s += 0.1
        waits.append(known.now.s - began_s)
        known.owners.failed(A)
        known.owners.reached(B, "b")
        known.owners.reached(C, "c")
    assert waits[0] == 0
    assert waits == sorted(waits)
    assert 59 < waits[-1] < 62


def test_a_client_with_a_list_connects_to_no_other_server() -> None:
    known = Known(listed=(A, B))
    known.owners.learned(table(one="c"))
    known.route()
    assert set(known.reach_all()) == {A, B}  # perhaps one of them is c, under another name
    assert known.route(4) == [None] * 4


def test_a_client_that_may_learn_of_servers_connects_to_where_they_say_they_are() -> None:
    known = Known(listed=(A,), only_listed=False)
    known.owners.learned(table(one="c"))
    known.route()
    assert known.reach_all() == [C]
    assert known.route(2) == [C, C]


def test_an_owner_that_announces_another_address_is_found_among_the_listed_servers() -> None:
    known = Known()
    servers = [types.OwningServer("b", "10.0.0.7:9010")]
    known.owners.learned(owner_table(types.QueueOwners(servers, [types.OwnedShard("1", True, [0] * SLICES)])))
    known.route()
    assert set(known.reach_all()) == {A, B, C}
    assert known.route(2) == [B, B]


def test_a_server_that_says_another_id_gets_no_calls() -> None:
    """It may be one of another cluster, at an address that means something else to the client than to the server."""
    known = Known(listed=(A,), only_listed=False)
    known.owners.learned(table(one="c"))
    known.route()
    assert not known.owners.reached(C, "a server of another cluster")
    assert known.route(2) == [None, None]
    assert C not in known.owners.to_reach()


def test_a_server_that_left_the_list_gets_no_calls() -> None:
    class Changing(ServerSource):
        listed = (A, B)

        def addresses(self) -> tuple[ServerAddress, ...]:
            return self.listed

    source = Changing()
    owners = KnownOwners(source, only_listed=True, monotonic=Now(), random=Random(1))
    owners.learned(table(one="b"))
    owners.route(dequeue())
    assert owners.reached(B, "b")
    assert owners.route(dequeue()) == B
    source.listed = (A, C)
    assert owners.route(dequeue()) is None
    assert not owners.has_reached(B)


def test_owners_move_with_the_next_answer() -> None:
    known = Known()
    known.owners.learned(table(one="a", two="b"))
    known.route(20)
    known.reach_all()
    known.owners.learned(table(one="b", two="b"))
    assert set(known.route(4)) == {B}
    assert not known.owners.has_reached(A)


def test_it_keeps_a_bounded_number_of_owners() -> None:
    listed = tuple(ServerAddress(f"h{number}", 9010) for number in range(100))
    known = Known(listed=listed)
    ids = [f"h{number}" for number in range(100)]
    servers = [types.OwningServer(each, f"{each}:9010") for each in ids]
    shards = [types.OwnedShard(str(number), True, [number] * SLICES) for number in range(100)]
    known.owners.learned(owner_table(types.QueueOwners(servers, shards)))
    known.route(2_000)
    assert len(known.reach_all()) == SERVERS_MAX
    known.route(2_000)
    assert known.owners.to_reach() == []
