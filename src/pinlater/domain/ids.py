"""Job ids: milliseconds since 2025 (41 bits), server slot (10), counter (12), in 63 bits.

Time-ordered, so that jobs of one priority come out in the order in which they went in, and made by the server, so that an insert that is
repeated after a lost answer is recognised. Weakness: more than 4,096 ids in a millisecond borrow from the milliseconds to come.
"""

from __future__ import annotations

from pinlater.domain.clock import Clock

EPOCH_MS = 1_735_689_600_000  # 2025-01-01T00:00:00Z
SLOT_BITS = 10
COUNTER_BITS = 12
SLOTS = 1 << SLOT_BITS
_SHIFT = SLOT_BITS + COUNTER_BITS
_COUNTER_MASK = (1 << COUNTER_BITS) - 1


def made_at_ms(job_id: int) -> int:
    """Returns when a job with this id was made, by its server's clock; slightly later if ids were borrowed."""
    return (job_id >> _SHIFT) + EPOCH_MS


def first_id_at(time_ms: int) -> int:
    """The lowest id that could be made at that time, or 0 for times before 2025."""
    return max(0, time_ms - EPOCH_MS) << _SHIFT


def slot_of(job_id: int) -> int:
    """The slot of the server that made it."""
    return (job_id >> COUNTER_BITS) & (SLOTS - 1)


class IdMaker:
    """Makes increasing ids, never below `floor` (the highest id in the shard at the start)."""

    def __init__(self, clock: Clock, slot: int, floor: int = 0) -> None:
        if not 0 <= slot < SLOTS:
            raise ValueError(f"slot {slot} is not in 0..{SLOTS - 1}")
        self._clock = clock
        self.slot = slot
        self._slot = slot << COUNTER_BITS
        # A tick is milliseconds and counter in one number; the slot goes in between when an id is made.
        self._tick = self._tick_of(floor) if floor else 0

    @staticmethod
    def _tick_of(job_id: int) -> int:
        return ((job_id >> _SHIFT) << COUNTER_BITS) | _COUNTER_MASK

    def raise_floor(self, floor: int) -> None:
        """Ensures that all ids from now on are above `floor`."""
        self._tick = max(self._tick, self._tick_of(floor))

    @property
    def highest(self) -> int:
        """The highest id made so far, or 0 if there is none."""
        return (((self._tick >> COUNTER_BITS) << _SHIFT) | (1 << _SHIFT) - 1) if self._tick else 0

    def make(self, count: int) -> list[int]:
        """Returns `count` new ids, ascending."""
        now = (self._clock.now_ms() - EPOCH_MS) << COUNTER_BITS
        first = self._tick + 1 if self._tick >= now else now
        self._tick = first + count - 1
        slot = self._slot
        if count == 1:
            return [((first >> COUNTER_BITS) << _SHIFT) | slot | (first & _COUNTER_MASK)]
        return [
            ((tick >> COUNTER_BITS) << _SHIFT) | slot | (tick & _COUNTER_MASK) for tick in range(first, first + count)
        ]
