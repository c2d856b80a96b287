"""Owners whose work is evened out, a pure function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from pinlater.domain.slices import SLICES
from pinlater.server.cluster.ownership.exchange import even_out
from pinlater.server.cluster.ownership.plan import ShardView, plan
from pinlater.server.cluster.ownership.work import Work
from pinlater.server.storage.values import NO_OWNER

A_LOT = 60_000
Owners = Mapping[str, Sequence[str]]


def owners_of(shards: int, servers: Sequence[str]) -> Owners:
    return plan({f"s{number}": ShardView([NO_OWNER] * SLICES, servers) for number in range(shards)})


def by_server(owners: Owners, work: Work) -> Counter[str]:
    """How much the owners work."""
    return Counter(
        {
            server: sum(
                work.get(name, {}).get(index, 0)
                for name, by_slice in owners.items()
                for index, owner in enumerate(by_slice)
                if owner == server
            )
            for server in {owner for by_slice in owners.values() for owner in by_slice}
        }
    )


def owned(owners: Owners) -> dict[str, Counter[str]]:
    return {name: Counter(by_slice) for name, by_slice in owners.items()}


def moves(before: Owners, after: Owners) -> int:
    return sum(old != new for name, slices in before.items() for old, new in zip(slices, after[name], strict=True))


def slices_of(owners: Owners, shard: str, server: str) -> list[int]:
    return [index for index, owner in enumerate(owners[shard]) if owner == server]


def test_two_busy_slices_of_one_server_go_to_two() -> None:
    before = owners_of(1, ["a", "b"])
    first, second, *_ = slices_of(before, "s0", "a")
    work = {"s0": {first: A_LOT, second: A_LOT}}
    after = even_out(before, [work])
    assert by_server(after, work) == {"a": A_LOT, "b": A_LOT}
    assert moves(before, after) == 2


def test_the_work_of_all_servers_counts() -> None:
    """A slice that moved lately, or calls that went past the owner."""
    before = owners_of(1, ["a", "b"])
    first, second, *_ = slices_of(before, "s0", "a")
    parts = [{"s0": {first: A_LOT}}, {"s0": {second: A_LOT}}, {}]
    assert moves(before, even_out(before, parts)) == 2


def test_a_single_busy_slice_stays_where_it_is() -> None:
    """Another server would have the same work with it."""
    before = owners_of(1, ["a", "b", "c"])
    assert even_out(before, [{"s0": {0: A_LOT}}]) == before


def test_a_busy_slice_leaves_others_that_are_not_quiet() -> None:
    """One exchange: the others would be three."""
    before = owners_of(1, ["a", "b"])
    busy, *others = slices_of(before, "s0", "a")
    work = {"s0": {busy: 10 * A_LOT, **dict.fromkeys(others[:3], A_LOT)}}
    after = even_out(before, [work])
    assert by_server(after, work) == {"a": 3 * A_LOT, "b": 10 * A_LOT}
    assert moves(before, after) == 2


def test_little_work_moves_nothing() -> None:
    before = owners_of(1, ["a", "b"])
    first, second, *_ = slices_of(before, "s0", "a")
    assert even_out(before, [{"s0": {first: 2_000, second: 2_000}}]) == before


def test_nor_does_a_small_difference() -> None:
    before = owners_of(1, ["a", "b"])
    work = {"s0": {index: A_LOT + 1_000 * (before["s0"][index] == "a") for index in range(SLICES)}}
    assert even_out(before, [work]) == before


def test_slices_of_whole_shards_stay() -> None:
    """A server that owned a little of another shard would make thin batches there."""
    before = owners_of(2, ["a", "b"])
    assert even_out(before, [{"s0": dict.fromkeys(range(SLICES), A_LOT)}]) == before


def test_slices_without_an_owner_are_left_to_the_plan() -> None:
    before = {"s0": ["a"] * 8 + [NO_OWNER] * 8}
    assert even_out(before, [{"s0": {0: A_LOT, 1: A_LOT}}]) == before
    assert even_out({"s0": [NO_OWNER] * SLICES}, [{"s0": {0: A_LOT}}]) == {"s0": [NO_OWNER] * SLICES}


def test_work_on_shards_that_are_not_known_does_not_count() -> None:
    before = owners_of(1, ["a", "b"])
    assert even_out(before, [{"gone": {0: A_LOT}}]) == before


names = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=6, unique=True)
loads = st.dictionaries(
    st.sampled_from(["s0", "s1", "s2"]),
    st.dictionaries(st.integers(0, SLICES - 1), st.integers(1, 10 * A_LOT), max_size=SLICES),
)


@given(st.integers(1, 3), names, loads)
def test_no_plan_undoes_an_exchange_and_work_is_spread_better(shards: int, servers: list[str], work: Work) -> None:
    before = owners_of(shards, servers)
    after = even_out(before, [work])
    assert owned(after) == owned(before)
    assert plan({name: ShardView(by_slice, servers) for name, by_slice in after.items()}) == after
    assert moves(before, after) <= 8
    if after != before:
        now, then = by_server(after, work).values(), by_server(before, work).values()
        assert max(now) <= max(then)
        assert sum(jobs**2 for jobs in now) < sum(jobs**2 for jobs in then)


@given(st.integers(1, 3), names, loads)
def test_exchanges_come_to_an_end(shards: int, servers: list[str], work: Work) -> None:
    owners = owners_of(shards, servers)
    for _ in range(2 * SLICES * shards):
        after = even_out(owners, [work])
        if after == owners:
            return
        owners = after
    raise AssertionError("it exchanges for ever")
