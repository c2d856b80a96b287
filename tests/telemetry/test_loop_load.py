"""The share of a core that the event loop uses, with clocks that a test turns."""

from __future__ import annotations

from pinlater.server.telemetry.loop_load import LoopLoad


def test_the_share_is_that_of_the_last_seconds() -> None:
    times = {"now": 100.0, "cpu": 7.0}
    load = LoopLoad(lambda: times["now"], lambda: times["cpu"])
    shares = []
    for cpu_s in (1.0, 4.0, 0.0):
        for _ in range(5):
            load.look()
            times["now"] += 1.0
            times["cpu"] += cpu_s / 5
        load.look()
        shares.append(round(load.share, 6))
    assert shares == [0.2, 0.8, 0.0]
