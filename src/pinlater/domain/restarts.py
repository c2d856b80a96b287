"""When a supervisor, a worker's or a server's, starts a process again that has ended. Pure decisions.

A process that was recycled, or ended in order without having been asked to, is replaced at once. One that crashed is replaced after a
while that doubles with each crash, up to half a minute, with a random part so that many don't come back in one instant. One that could
not even be started since its command line or module is wrong is given up, unless some process has run with it before.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

OK, USAGE = 0, 2
# Who lived so long has recovered from what happened before.
RECOVERED_S = 60.0
_SHORTEST_LIFE_S = 1.0
_FIRST_DELAY_S, _DELAY_S_MAX = 0.5, 30.0


class Next(NamedTuple):
    """`delay_s` until the next start, None for never. `crashes` in a row so far."""

    delay_s: float | None
    crashes: int


def next_start(
    code: int, lived_s: float, crashes: int, ever_ran: bool, spread: float, in_order: Collection[int] = (OK,)
) -> Next:
    """What follows the end of a process with that exit code. `spread`: from 0 to 1, by chance. `in_order`: codes of no crash."""
    if code == USAGE and not ever_ran:
        return Next(None, crashes)
    if code in in_order and lived_s >= _SHORTEST_LIFE_S:
        return Next(0.0, 0)
    if lived_s >= RECOVERED_S:
        crashes = 0
    delay_s = min(_DELAY_S_MAX, _FIRST_DELAY_S * 2 ** min(crashes, 10))
    return Next(delay_s * (0.5 + spread / 2), crashes + 1)
