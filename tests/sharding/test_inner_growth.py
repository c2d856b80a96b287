"""What is remembered of queues: no decision shows that it is gone."""

from __future__ import annotations

from tests.sharding.test_growth import HOUR_S, MINUTE_S, Decider, Observed, numbers, saturating


def test_what_is_known_of_queues_that_are_not_looked_at_is_forgotten() -> None:
    """But not that a step was taken back."""
    queue = Observed(saturating(2), rate=lambda _: 100.0)
    decider = Decider(queue)
    assert numbers(decider.run(MINUTE_S)) == [(1, 2), (2, 1)]
    decider.growth.decide([], [], decider.now_ms)
    assert decider.run(HOUR_S // 2) == []
    decider.growth.decide([], [], decider.now_ms + HOUR_S * 1000)
    assert not decider.growth._watched
