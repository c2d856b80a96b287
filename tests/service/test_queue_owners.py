"""Which servers own queues, as clients are told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from pinlater.domain.slices import SLICES
from pinlater.server.features.status.cluster_status import SHARDS_MAX
from pinlater.server.features.status.queue_owners import KnownServer, queue_owners
from pinlater.wire.generated.structs import OwnedShard, OwningServer, QueueOwners

A, B = OwningServer("id of a", "a:9010"), OwningServer("id of b")
BY_SLICE = ["a:9011", "b:9011"] * (SLICES // 2)


def told(*, a_busy: bool = False, b_busy: bool = False, shards: int = 1) -> QueueOwners:
    listed = [SimpleNamespace(name=str(number), takes_enqueues=number == 0) for number in range(shards)]
    known = {"a:9011": KnownServer(A, a_busy), "b:9011": KnownServer(B, b_busy)}
    return queue_owners(cast(Any, listed), lambda _: BY_SLICE, known, {})


def test_each_slice_has_the_place_of_its_owner() -> None:
    assert told() == QueueOwners([A, B], [OwnedShard("0", True, [0, 1] * (SLICES // 2))], {})


def test_an_owner_that_clients_cannot_know_has_no_place() -> None:
    shard = SimpleNamespace(name="1", takes_enqueues=False)
    found = queue_owners(cast(Any, [shard]), lambda _: BY_SLICE, {"b:9011": KnownServer(B, False)}, {"wide": 2})
    assert found == QueueOwners([B], [OwnedShard("1", False, [-1, 0] * (SLICES // 2))], {"wide": 2})


def test_a_busy_owner_is_left_out_while_another_server_is_not_busy() -> None:
    assert told(a_busy=True).servers == [B]
    assert set(told(a_busy=True).shards[0].owners) == {-1, 0}
    assert told(a_busy=True, b_busy=True).servers == [A, B]


def test_an_answer_names_a_bounded_number_of_shards() -> None:
    assert len(told(shards=SHARDS_MAX + 1).shards) == SHARDS_MAX
