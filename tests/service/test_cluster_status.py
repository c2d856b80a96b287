"""What a server says of its cluster, made of what it knows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from pinlater.domain.servers import ServerFacts
from pinlater.domain.slices import SLICES
from pinlater.server.cluster.forwarding.messages import CallKind
from pinlater.server.cluster.forwarding.traffic import SERVERS_MAX as COUNTED_MAX
from pinlater.server.cluster.forwarding.traffic import TrafficByServer
from pinlater.server.features.status.cluster_status import SERVERS_MAX, SHARDS_MAX, members_of, status_alone, status_of
from pinlater.server.storage.values import Member
from pinlater.wire.generated.structs import ClusterShard, ClusterStatus, ForwardedCalls

OWN = "10.0.0.1:9011"


class Known:
    """A server's knowledge: members by shard, owners, and when it heard others; its clock says 100 s."""

    def __init__(self, shards: int = 1) -> None:
        names = [str(number) for number in range(1, shards + 1)]
        self.shards = [SimpleNamespace(name=name, healthy=True, unguarded=SimpleNamespace(slot=0)) for name in names]
        self.members: dict[Any, list[Member]] = {cast(Any, Named(name)): [] for name in names}
        self.by_slice = [OWN] * SLICES
        self.heard_s: dict[str, float] = {}
        self.connections: dict[str, Any] = {}
        self.sent, self.taken = TrafficByServer(), TrafficByServer()

    def join(self, address: str, name: str, started_at_ms: int = 0) -> None:
        for slot, members in enumerate(self.members.values()):
            members.append(Member(slot, name, address, started_at_ms, 0))

    def status(self) -> ClusterStatus:
        clock = SimpleNamespace(monotonic=lambda: 100.0)
        ownership = SimpleNamespace(
            address=OWN,
            version=lambda _: 7,
            owners=lambda _: self.by_slice,
            misplaced=lambda _: [3],
            hears=lambda address: self.heard_s.get(address, 0) > 98,
            moves=5,
        )
        forwarding = SimpleNamespace(connections=self.connections, sent=self.sent)
        return status_of(
            cast(Any, Listed(self.shards, clock)),
            self.members,
            cast(Any, ownership),
            cast(Any, forwarding),
            self.taken,
            lambda address: self.heard_s.get(address, float("-inf")),
        )


class Named:
    def __init__(self, name: str) -> None:
        self.name = name


class Listed(list[Any]):
    """Shards with their clock."""

    def __init__(self, shards: list[Any], clock: Any) -> None:
        super().__init__(shards)
        self.clock = clock


def test_another_server_is_told_with_when_it_was_heard_and_what_went_between() -> None:
    known = Known()
    known.join(OWN, "a-1")
    known.join("b:1", "b-2")
    known.heard_s["b:1"] = 99.75
    known.connections["b:1"] = SimpleNamespace(usable=True, unanswered=4, told=None)
    known.sent.of("b:1").count(CallKind.INSERT, 3)
    known.taken.of("b:1").count(CallKind.FINISH, 2)
    known.sent.of("gone:1").count_lost(6)
    status = known.status()
    [own, other] = status.servers
    assert (own.address, own.answers, own.heard, own.heard_ms, own.usable) == (OWN, True, True, None, True)
    assert (other.name, other.slots, other.heard, other.heard_ms, other.usable) == ("b-2", {"1": 0}, True, 250, True)
    assert (other.unanswered_calls, other.items_sent, other.items_taken) == (4, 3, 2)
    insert, finish = ForwardedCalls("insert", 1, 3, 0, 0), ForwardedCalls("finish", 0, 0, 1, 2)
    assert [each for each in status.forwarded if each.calls_sent or each.calls_taken] == [insert, finish]
    assert (status.moves, status.answers_lost, status.incomplete) == (5, 6, None)
    assert status.shards == [ClusterShard("1", True, 7, [0] * SLICES, [3])]


def facts_in(status: ClusterStatus) -> tuple[object, ...]:
    [_, other] = status.servers
    return other.version, other.started_at_ms, other.connections, other.loop_lag_ms


def test_another_server_is_told_with_what_it_says_of_itself() -> None:
    known = Known()
    known.join("b:1", "b-2", started_at_ms=7)
    known.connections["b:1"] = SimpleNamespace(usable=True, unanswered=0, told=None)
    assert facts_in(known.status()) == (None, 7, None, None)
    said = ServerFacts("1.2.3", 5, 40, 12)
    known.connections["b:1"].told = SimpleNamespace(facts=said)
    assert facts_in(known.status()) == said


def test_a_server_that_was_never_heard_has_no_time() -> None:
    known = Known()
    known.join("b:1", "b-2")
    [_, other] = known.status().servers
    assert (other.heard, other.heard_ms, other.usable) == (False, None, False)


def test_an_owner_that_is_gone_is_listed_without_a_slot() -> None:
    known = Known()
    known.by_slice = ["gone:1"] * SLICES
    assert [(server.address, server.slots) for server in known.status().servers] == [(OWN, {}), ("gone:1", {})]


def test_servers_that_start_or_stop_have_names_and_no_addresses() -> None:
    known = Known()
    for name in ("b-2", "c-3"):
        known.join("", name)
    assert [server.name for server in known.status().servers] == [None, "b-2", "c-3"]


def test_a_server_with_an_address_on_some_of_its_shards_is_one_server() -> None:
    """It has just opened a shard, or gives up its slots."""
    known = Known(shards=3)
    one, two, three = known.members.values()
    one.append(Member(4, "b-2", "b:1", 7_000, 0))
    two.append(Member(5, "b-2", "", 9_000, 0))
    three += [Member(6, "b-2", "b:1", 8_000, 0), Member(7, "b-2", "", 8_500, 0)]
    [_, other] = known.status().servers
    assert (other.address, other.name, other.slots) == ("b:1", "b-2", {"1": 4, "2": 5, "3": 6})


def test_a_server_without_an_address_may_be_any_that_has_its_name() -> None:
    """Two containers may have the name of their host and the same process number."""
    known = Known()
    for address in ("b:1", "c:1", ""):
        known.join(address, "host-1")
    assert [server.address for server in known.status().servers[1:]] == ["", "b:1", "c:1"]


def test_a_server_started_when_it_got_its_oldest_slot() -> None:
    """Of an earlier server at the same address nothing counts."""
    known = Known(shards=3)
    for started_at_ms, name, there in zip(
        (8_000, 5_000, 9_000), ("b-2", "b-1", "b-2"), known.members.values(), strict=True
    ):
        there.append(Member(0, name, "b:1", started_at_ms, 0))
    [_, other] = known.status().servers
    assert (other.name, other.started_at_ms) == ("b-2", 8_000)


def test_servers_that_start_or_stop_are_no_members() -> None:
    known = Known()
    for address, name in (("b:1", "b-2"), ("", "c-3"), ("", "d-4")):
        known.join(address, name)
    assert (len(known.status().servers), members_of(known.status())) == (4, 2)


def test_an_answer_names_a_bounded_number_of_servers_and_shards() -> None:
    known = Known(SHARDS_MAX + 1)
    for number in range(SERVERS_MAX + 10):
        known.join(f"10.1.0.{number}:1", f"s-{number}")
    status = known.status()
    assert (len(status.servers), len(status.shards), status.incomplete) == (SERVERS_MAX, SHARDS_MAX, True)
    assert status.servers[0].address == OWN
    assert {len(server.slots) for server in status.servers[1:]} == {SHARDS_MAX}
    alone = status_alone(cast(Any, known.shards), OWN)
    assert (len(alone.shards), alone.incomplete) == (SHARDS_MAX, True)


def test_the_traffic_of_a_bounded_number_of_servers_is_kept_and_all_of_it_is_counted() -> None:
    traffic = TrafficByServer()
    for number in range(COUNTED_MAX + 1):
        traffic.of(f"s{number}").count(CallKind.CLAIM, 1)
    assert (traffic.items("s0"), traffic.items("s1")) == (0, 1)
    assert traffic.items_by_kind()["claim"] == COUNTED_MAX + 1


def test_a_server_that_connects_again_keeps_its_numbers() -> None:
    traffic = TrafficByServer()
    for _ in range(2):
        traffic.of("a:1").count(CallKind.INSERT, 2)
    assert traffic.items("a:1") == 4
