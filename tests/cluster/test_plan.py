"""The plan of owners, a pure function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinlater.domain.slices import SLICES
from pinlater.server.cluster.ownership.plan import ShardView, gathered, plan
from pinlater.server.storage.values import NO_OWNER

FREE = [NO_OWNER] * SLICES


def fresh(shards: int, servers: Collection[str]) -> dict[str, ShardView]:
    return {f"s{number}": ShardView(FREE, servers) for number in range(shards)}


def go_on(planned: Mapping[str, Sequence[str]], servers: Collection[str]) -> dict[str, list[str]]:
    """The plan where these servers are there now."""
    return plan({name: ShardView(owners, servers) for name, owners in planned.items()})


def owned(planned: Mapping[str, Sequence[str]]) -> Counter[str]:
    return Counter(owner for owners in planned.values() for owner in owners)


def pieces(planned: Mapping[str, Sequence[str]]) -> int:
    """In how many shards the servers own slices, added up."""
    return sum(len(set(owners)) for owners in planned.values())


def moves(before: Mapping[str, Sequence[str]], after: Mapping[str, Sequence[str]]) -> int:
    return sum(old != new for name, owners in before.items() for old, new in zip(owners, after[name], strict=True))


def has_as_few_owners(planned: Mapping[str, Sequence[str]], servers: Collection[str]) -> bool:
    """Whether a shard has no more owners, the most and on average, than if these servers had come at once."""
    most = max(len(set(owners)) for owners in planned.values())
    new = plan(fresh(len(planned), servers))
    return most <= max(len(set(owners)) for owners in new.values()) and pieces(planned) <= pieces(new)


def rolling_update(shards: int, servers: int, *, new_first: bool) -> tuple[int, Mapping[str, Sequence[str]]]:
    """How many slices move while each server is replaced by a new one, and are gathered afterwards; and the owners then."""
    planned: Mapping[str, Sequence[str]] = plan(fresh(shards, [f"old{number}" for number in range(servers)]))
    there = [f"old{number}" for number in range(servers)]
    moved = 0
    for number in range(servers):
        without, new = [one for one in there if one != f"old{number}"], f"new{number}"
        between = [*there, new] if new_first else without
        there = [*without, new]
        for present in (between, there):
            after = go_on(planned, present) if present else planned
            moved += moves(planned, after)
            planned = after
    after = gathered(planned)
    return moved + moves(planned, after), after


def test_one_server_owns_everything() -> None:
    assert plan(fresh(3, ["a"])) == {name: ["a"] * SLICES for name in ("s0", "s1", "s2")}


def test_without_servers_there_are_no_owners() -> None:
    assert plan(fresh(2, [])) == {"s0": FREE, "s1": FREE}
    assert plan({}) == {}


def test_as_many_servers_as_shards_own_a_shard_each() -> None:
    planned = plan(fresh(4, ["a", "b", "c", "d"]))
    assert pieces(planned) == 4
    assert set(owned(planned).values()) == {SLICES}


def test_servers_divide_a_single_shard() -> None:
    assert sorted(owned(plan(fresh(1, ["a", "b", "c"]))).values()) == [5, 5, 6]


def test_a_server_that_returns_gets_its_whole_shard_back() -> None:
    servers = ["a", "b", "c", "d"]
    before = plan(fresh(4, servers))
    without = go_on(before, servers[:3])
    assert moves(before, without) == SLICES
    assert pieces(go_on(without, servers)) == 4


def test_a_new_server_takes_whole_shards() -> None:
    after = go_on(plan(fresh(4, ["a"])), ["a", "b"])
    assert pieces(after) == 4
    assert owned(after) == {"a": 2 * SLICES, "b": 2 * SLICES}


def test_a_server_owns_nothing_of_a_shard_that_it_does_not_use() -> None:
    planned = plan({"s0": ShardView(FREE, ["a", "b"]), "s1": ShardView(FREE, ["b"])})
    assert planned == {"s0": ["a"] * SLICES, "s1": ["b"] * SLICES}


def test_the_only_server_of_a_shard_owns_it_beyond_its_share() -> None:
    shards = {name: ShardView(FREE, ["b"]) for name in ("s0", "s1", "s2")}
    planned = plan({**shards, "s3": ShardView(FREE, ["a", "b"])})
    assert planned["s3"] == ["a"] * SLICES
    assert all(planned[name] == ["b"] * SLICES for name in shards)


def test_without_balance_only_slices_move_whose_owner_does_not_use_the_shard() -> None:
    before = plan(fresh(2, ["a", "b"]))
    [lost] = [name for name, owners in before.items() if "b" in owners]
    shards = {
        name: ShardView(owners, ["a", "c"] if name == lost else ["a", "b", "c"]) for name, owners in before.items()
    }
    after = plan(shards, balance=False)
    assert moves(before, after) == SLICES
    assert after == {**before, lost: ["c"] * SLICES}
    kept = {name: ShardView(owners, ["a", "b", "c"]) for name, owners in before.items()}
    assert plan(kept, balance=False) == before
    assert plan({lost: kept[lost]}, balance=False) == {lost: before[lost]}


@settings(max_examples=40)
@given(
    shards=st.integers(1, 9),
    churn=st.lists(st.sets(st.sampled_from("abcdefgh"), min_size=1), min_size=1, max_size=12),
)
def test_shares_are_equal_and_moves_few_however_servers_come_and_go(shards: int, churn: list[set[str]]) -> None:
    planned: Mapping[str, Sequence[str]] = {f"s{number}": FREE for number in range(shards)}
    for servers in churn:
        after = go_on(planned, servers)
        counts = owned(after)
        assert set(counts) <= servers
        assert max(counts.values()) - min(counts[server] for server in servers) <= 1
        assert go_on(after, servers) == after
        before = owned(planned)
        needed = sum(max(0, counts[server] - before[server]) for server in servers)
        assert moves(planned, after) == needed
        planned = after
    most = shards + len(churn[-1]) - 1  # as a line of shards that is cut into equal parts has
    assert pieces(planned) <= 2 * most


def test_servers_that_joined_one_by_one_own_a_shard_each_once_slices_are_gathered() -> None:
    planned: Mapping[str, Sequence[str]] = plan(fresh(4, ["a"]))
    for present in ("ab", "abc", "abcd"):
        planned = go_on(planned, present)
    assert pieces(planned) > 4
    assert pieces(gathered(planned)) == 4


@settings(max_examples=60)
@given(
    shards=st.integers(1, 9),
    history=st.lists(
        st.tuples(st.sets(st.sampled_from("abcdefgh"), min_size=1), st.sets(st.integers(0, 8))), min_size=1, max_size=12
    ),
)
def test_gathered_slices_leave_a_shard_as_few_owners_as_servers_that_came_at_once(
    shards: int, history: list[tuple[set[str], set[int]]]
) -> None:
    """Whichever servers were there before, and whichever shards were unreachable for how long."""
    planned: Mapping[str, Sequence[str]] = {f"s{number}": FREE for number in range(shards)}
    for servers, unreachable in [*history, (history[-1][0], set())]:
        seen = {f"s{number}": planned[f"s{number}"] for number in range(shards) if number not in unreachable}
        planned = {**planned, **go_on(seen, servers)}
    after = gathered(planned)
    assert has_as_few_owners(after, history[-1][0])
    assert sorted(owned(after).values()) == sorted(owned(planned).values())
    assert gathered(after) == after
    assert go_on(after, history[-1][0]) == after


@pytest.mark.parametrize("new_first", [True, False])
@pytest.mark.parametrize("shards", range(1, 10))
def test_a_rolling_update_moves_each_slice_three_times_at_the_most(shards: int, new_first: bool) -> None:
    for servers in range(1, 10):
        moved, after = rolling_update(shards, servers, new_first=new_first)
        assert moved <= 3 * SLICES * shards
        assert has_as_few_owners(after, [str(number) for number in range(servers)])
