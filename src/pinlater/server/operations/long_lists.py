"""Long lists in slices, with a turn of the event loop between two of them, so that a request at its bounds delays no other.

Two mechanisms keep a long request off the event loop, one before and one after it is decoded. Bytes become wire values in a thread
(`thrift.large_frames`), since the cost of a frame is not known before it is decoded, and the codec lets only other threads run meanwhile.
From then on the number of items is known, and all the work for each item (conversions, addresses, outcomes, the encoding of the answer)
is done here, on the loop and in slices: a thread would only share the interpreter with the loop. Short lists take no turn: their callers
check the length first, or get a single slice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Other = TypeVar("Other")
Value = TypeVar("Value")

# The most expensive conversion takes about 3 µs an item.
ITEMS_A_TURN = 2_500
# A job with headers and five attempts takes 20 µs.
JOBS_A_TURN = 500


async def in_turns(
    items: Sequence[Item], convert: Callable[[Sequence[Item]], Iterable[Value]], items_a_turn: int = ITEMS_A_TURN
) -> list[Value]:
    """The results of `convert` for all items, a slice at a time."""
    if len(items) <= items_a_turn:
        return list(convert(items))
    values: list[Value] = []
    for start in range(0, len(items), items_a_turn):
        values += convert(items[start : start + items_a_turn])
        await asyncio.sleep(0)
    return values


async def pairs_in_turns(
    items: Sequence[Item], others: Sequence[Other], convert: Callable[[Sequence[Item], Sequence[Other]], list[Value]]
) -> list[Value]:
    """The same for two lists of equal length."""
    if len(items) <= ITEMS_A_TURN:
        return convert(items, others)
    values: list[Value] = []
    for start in range(0, len(items), ITEMS_A_TURN):
        end = start + ITEMS_A_TURN
        values += convert(items[start:end], others[start:end])
        await asyncio.sleep(0)
    return values


async def step_by_step(steps: Generator[None, None, Value]) -> Value:
    """Returns the result of the generator; other tasks run wherever it yields."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: Value = end.value
            return value
        await asyncio.sleep(0)
