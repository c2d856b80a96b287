"""How long a server waits whose changes others change again."""

from __future__ import annotations

from pinlater.server.cluster.ownership.change_backoff import ChangeBackoff


class Time:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def undone(backoff: ChangeBackoff, time: Time, times: int) -> list[float]:
    """The pauses after each of these changes, which another server changes again at once."""
    pauses: list[float] = []
    for version in range(1, 2 * times, 2):
        backoff.changed("1", version)
        backoff.seen("1", version)
        backoff.seen("1", version + 1)
        began_s = time.now_s
        while backoff.must_wait("1"):
            time.now_s += 0.25
        pauses.append(time.now_s - began_s)
    return pauses


def test_the_pauses_double_up_to_a_minute_after_the_first_few() -> None:
    time = Time()
    assert undone(ChangeBackoff(time), time, 12) == [0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_after_two_minutes_without_changes_of_its_own_it_begins_anew() -> None:
    time = Time()
    backoff = ChangeBackoff(time)
    undone(backoff, time, 8)
    time.now_s += 121.0
    assert undone(backoff, time, 4) == [0, 0, 0, 1]


def test_changes_that_stay_and_other_shards_cost_no_pause() -> None:
    time = Time()
    backoff = ChangeBackoff(time)
    undone(backoff, time, 6)
    assert not backoff.must_wait("2")
    for version in range(1, 20):
        backoff.changed("2", version)
        backoff.seen("2", version)
    assert not backoff.must_wait("2")
