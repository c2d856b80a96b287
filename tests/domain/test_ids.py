"""Ids only grow, whatever the clock does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinlater.domain.clock import ManualClock
from pinlater.domain.descriptor import I64_MAX
from pinlater.domain.ids import COUNTER_BITS, EPOCH_MS, SLOT_BITS, SLOTS, IdMaker, made_at_ms

PER_MS = 1 << COUNTER_BITS
steps = st.lists(st.tuples(st.integers(-10_000, 10_000), st.integers(0, 50)), max_size=20)


def milliseconds(job_id: int) -> int:
    return (job_id >> (SLOT_BITS + COUNTER_BITS)) + EPOCH_MS


def slot(job_id: int) -> int:
    return (job_id >> COUNTER_BITS) % SLOTS


@given(steps, st.integers(0, SLOTS - 1))
def test_ids_only_grow_while_the_clock_goes_back_and_forth(moves: list[tuple[int, int]], slot_: int) -> None:
    clock = ManualClock()
    maker = IdMaker(clock, slot_)
    made: list[int] = []
    for move_ms, count in moves:
        clock.advance(ms=move_ms)
        made.extend(maker.make(count))

    assert made == sorted(set(made))
    assert {slot(one) for one in made} <= {slot_}
    assert all(0 < one <= I64_MAX for one in made)


@given(st.integers(0, 2**62), st.integers(1, 20))
def test_ids_are_above_the_floor(floor: int, count: int) -> None:
    """The highest id in the shard at the start, which another server with a faster clock may have made."""
    assert min(IdMaker(ManualClock(), 1, floor).make(count)) > floor


@given(st.integers(0, 2**62))
def test_a_floor_may_be_raised_but_not_lowered(floor: int) -> None:
    maker = IdMaker(ManualClock(), 1)
    [before] = maker.make(1)
    maker.raise_floor(floor)
    [after] = maker.make(1)

    assert after > max(before, floor)


def test_an_id_says_when_and_where_it_was_made() -> None:
    """Milliseconds since 2025 and the server's slot."""
    clock = ManualClock()
    [job_id] = IdMaker(clock, 7).make(1)

    assert (milliseconds(job_id), slot(job_id), job_id % PER_MS) == (clock.now_ms(), 7, 0)


def test_a_clock_put_back_an_hour_makes_no_id_twice() -> None:
    clock = ManualClock()
    maker = IdMaker(clock, 1)
    before = maker.make(10)
    clock.advance(hours=-1)
    after = maker.make(10)

    assert after[0] > before[-1]
    clock.advance(hours=2)
    [later] = maker.make(1)
    assert milliseconds(later) == clock.now_ms()


def test_more_than_a_milliseconds_worth_borrows_from_the_next() -> None:
    maker = IdMaker(ManualClock(), SLOTS - 1)
    made = maker.make(10_000)

    assert made == sorted(set(made))
    assert len(made) == 10_000
    assert milliseconds(made[-1]) - milliseconds(made[0]) == 10_000 // PER_MS


def test_two_slots_never_make_the_same_id() -> None:
    clock = ManualClock()
    made = [set(IdMaker(clock, slot_).make(5_000)) for slot_ in (0, 1, SLOTS - 1)]

    assert len(set.union(*made)) == 15_000


@pytest.mark.parametrize("slot_", [-1, SLOTS])
def test_a_slot_outside_its_bits_is_refused(slot_: int) -> None:
    with pytest.raises(ValueError, match="slot"):
        IdMaker(ManualClock(), slot_)


def test_no_ids_are_no_ids() -> None:
    maker = IdMaker(ManualClock(), 0)

    assert maker.make(0) == []
    assert maker.make(1)[0] % PER_MS == 0


def test_ids_last_beyond_2090() -> None:
    """41 bits of milliseconds since 2025."""
    clock = ManualClock(now_ms=EPOCH_MS + (1 << 41) - 1)

    assert IdMaker(clock, SLOTS - 1).make(1)[0] <= I64_MAX


def test_an_id_tells_when_it_was_made() -> None:
    clock = ManualClock()
    [job_id] = IdMaker(clock, SLOTS - 1).make(1)
    assert made_at_ms(job_id) == clock.now_ms()
