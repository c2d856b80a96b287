"""How many dequeues wait at other servers, for the statistics of queues."""

from __future__ import annotations

from pinlater.server.main.cluster import WAITED_FOR_MAX, most_waited_for


def test_servers_tell_the_number_of_waiting_dequeues_for_a_bounded_number_of_queues() -> None:
    few = {"q1": 1, "q2": 5}
    assert most_waited_for(few) == few
    many = {f"q{number}": number for number in range(WAITED_FOR_MAX + 5)}
    told = most_waited_for(many)
    assert len(told) == WAITED_FOR_MAX
    assert min(told.values()) == 5
