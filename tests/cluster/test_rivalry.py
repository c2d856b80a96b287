"""How long a server waits whose changes others change again."""

from __future__ import annotations

from pinlater.server.cluster.ownership.rivalry import Rivalry


class Time:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def undone(rivalry: Rivalry, time: Time, times: int) -> list[float]:
    """The pauses after each of these changes, which another server changes again at once."""
    pauses: list[float] = []
    for version in range(1, 2 * times, 2):
        rivalry.changed("1", version)
        rivalry.seen("1", version)
        rivalry.seen("1", version + 1)
        began_s = time.now_s
        while rivalry.must_wait("1"):
            time.now_s += 0.25
        pauses.append(time.now_s - began_s)
    return pauses


def test_the_pauses_double_up_to_a_minute_after_the_first_few() -> None:
    time = Time()
    assert undone(Rivalry(time), time, 12) == [0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_after_two_minutes_without_changes_of_its_own_it_begins_anew() -> None:
    time = Time()
    rivalry = Rivalry(time)
    undone(rivalry, time, 8)
    time.now_s += 121.0
    assert undone(rivalry, time, 4) == [0, 0, 0, 1]


def test_changes_that_stay_and_other_shards_cost_no_pause() -> None:
    time = Time()
    rivalry = Rivalry(time)
    undone(rivalry, time, 6)
    assert not rivalry.must_wait("2")
    for version in range(1, 20):
        rivalry.changed("2", version)
        rivalry.seen("2", version)
    assert not rivalry.must_wait("2")
