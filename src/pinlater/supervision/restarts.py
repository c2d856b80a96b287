"""When a supervisor restarts a process that has ended. Pure decisions.

A process that was recycled, or ended in order by itself, is restarted at once. One that crashed is restarted after a delay that doubles
with each crash up to half a minute, with a random part so that many processes don't restart together. One that can't run because its
command line or module is wrong is not restarted, unless it has run before.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

OK, USAGE = 0, 2
# A process that ran this long has recovered from earlier crashes.
RECOVERED_S = 60.0
_SHORTEST_LIFE_S = 1.0
_FIRST_DELAY_S, _DELAY_S_MAX = 0.5, 30.0


class Next(NamedTuple):
    """`delay_s` until the next start, None for never, and the consecutive `crashes` so far."""

    delay_s: float | None
    crashes: int


def next_start(
    code: int, lived_s: float, crashes: int, ever_ran: bool, spread: float, in_order: Collection[int] = (OK,)
) -> Next:
    """Returns what follows after an exit with `code`. `spread`: random, from 0 to 1. `in_order`: exit codes that do not count as
    crashes."""
    if code == USAGE and not ever_ran:
        return Next(None, crashes)
    if code in in_order and lived_s >= _SHORTEST_LIFE_S:
        return Next(0.0, 0)
    if lived_s >= RECOVERED_S:
        crashes = 0
    delay_s = min(_DELAY_S_MAX, _FIRST_DELAY_S * 2 ** min(crashes, 10))
    return Next(delay_s * (0.5 + spread / 2), crashes + 1)
