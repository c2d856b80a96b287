"""What a server says of the queues that its dequeues wait for."""

from __future__ import annotations

import pytest

from pinlater.server.dispatch.interest import BITS, Interest, bit_of

QUEUES = [f"queue{number}" for number in range(2_000)]


@pytest.fixture
def waiting() -> list[str]:
    return []


@pytest.fixture
def told() -> list[int]:
    return []


@pytest.fixture
def interest(waiting: list[str], told: list[int]) -> Interest:
    made: Interest = Interest(lambda: waiting, lambda: told.append(made.bits))
    return made


def test_a_queue_is_told_once_when_its_first_dequeue_is_about_to_wait(interest: Interest, told: list[int]) -> None:
    for _ in range(3):
        interest.begins("q")
    assert told == [bit_of("q")]


def test_it_is_told_until_no_dequeue_has_waited_from_one_look_to_the_next(
    interest: Interest, told: list[int], waiting: list[str]
) -> None:
    interest.begins("q")
    waiting.append("q")
    interest.look()
    interest.look()
    waiting.clear()
    interest.begins("q")  # one that came and went between two looks
    interest.look()
    assert interest.bits == bit_of("q")
    interest.look()
    assert told == [bit_of("q"), 0]


def test_queues_share_few_bits_evenly() -> None:
    bits = {bit_of(queue) for queue in QUEUES}
    assert len(bits) == BITS
    assert max(bits) == 1 << BITS - 1


def test_the_bit_of_a_queue_is_the_same_in_every_version() -> None:
    assert [bit_of(queue).bit_length() for queue in ("emails", "", "ü")] == [134, 1, 158]
