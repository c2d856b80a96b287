"""Where things go."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinlater.domain.rendezvous import covered, rendezvous_home, rendezvous_order


@given(st.text(), st.lists(st.text(min_size=1), min_size=2, max_size=8, unique=True))
def test_a_key_moves_only_if_its_home_goes(key: str, shards: list[str]) -> None:
    home = rendezvous_home(key, shards)
    assert home in shards
    for other in shards:
        if other != home:
            assert rendezvous_home(key, [shard for shard in shards if shard != other]) == home


def first_of(queue: str, shards: list[str]) -> str:
    first, *_ = rendezvous_order(queue, shards)
    return first


def test_ten_thousand_queues_are_spread_evenly_and_a_fifth_of_them_moves_to_a_fifth_shard() -> None:
    shards = ["1", "2", "3", "4"]
    queues = [f"queue_{number}" for number in range(10_000)]
    on_each = Counter(first_of(queue, shards) for queue in queues)
    assert all(0.9 < on_each[shard] / 2_500 < 1.1 for shard in shards)
    moved = [after for queue in queues if (after := first_of(queue, [*shards, "5"])) != first_of(queue, shards)]
    assert set(moved) == {"5"}
    assert 0.19 < len(moved) / 10_000 < 0.21


def test_homes_are_what_they_were_in_every_release() -> None:
    """Stored unique keys depend on them."""
    homes = [rendezvous_home(key, ["1", "2", "3d1", "3d2"]) for key in ("", "a", "order-17", "ключ", "x" * 256)]
    assert homes == ["3d2", "2", "3d1", "3d2", "3d1"]


@pytest.mark.parametrize(
    ("coverage", "shards", "expected"),
    [(1.0, 4, 4), (0.5, 3, 2), (0.5, 1, 1), (0.0, 4, 1), (-3.0, 4, 1), (7.0, 4, 4), (0.1, 4, 1), (0.375, 4, 2)],
)
def test_coverage_is_rounded_half_up_and_at_least_one(coverage: float, shards: int, expected: int) -> None:
    assert covered(coverage, shards) == expected
