"""How a worker's queues share its slots."""

from __future__ import annotations

from pinlater.worker._consumer.slots import Slots


def slots(total: int, **weights: int) -> Slots:
    made = Slots(total)
    for queue, weight in weights.items():
        made.add(queue, weight, None)
    return made


def take(slots: Slots, queue: str, count: int) -> None:
    for _ in range(count):
        slots.take(queue)


def test_queues_that_compete_get_slots_by_weight() -> None:
    shared = slots(8, a=1, b=3)
    assert (shared.free_for("a"), shared.free_for("b")) == (2, 6)


def test_other_queues_use_the_share_of_a_queue_without_jobs() -> None:
    shared = slots(8, a=1, b=3)
    shared.wants("b", False)
    assert shared.free_for("a") == 8
    take(shared, "a", 8)
    shared.wants("b", True)
    assert shared.free_for("b") == 0
    shared.give_back("a")
    assert (shared.free_for("a"), shared.free_for("b")) == (0, 1)


def test_a_light_queue_gets_a_slot_while_a_heavy_one_is_busy() -> None:
    shared = slots(4, light=1, heavy=1000)
    assert shared.free_for("light") == 1
    take(shared, "heavy", shared.free_for("heavy"))
    assert shared.free_for("light") == 1


def test_a_queue_never_has_more_slots_than_its_maximum() -> None:
    shared = Slots(8)
    shared.add("a", 1, 3)
    assert shared.free_for("a") == 3
    take(shared, "a", 3)
    assert shared.free_for("a") == 0
