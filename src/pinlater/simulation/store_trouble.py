"""The ways in which calls of a database over a network fail, and the fate of one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from pinlater.domain.errors import OutcomeUnknown, PinLaterError, ShardConnectionFailed
from pinlater.simulation.store_calls import CallKind, only_looks


class StoreTrouble(NamedTuple):
    """Shares of calls. `latency_s`: the most that an ordinary call takes; `only`: the calls that have trouble, all if empty."""

    latency_s: float = 0.002
    refused: float = 0.0  # surely not executed
    answer_lost: float = 0.0  # executed, and the caller is told that the outcome is unknown
    lost: float = 0.0  # not executed, and the caller is told that the outcome is unknown
    late: float = 0.0  # the caller is told that the outcome is unknown, and it is executed after that
    slow: float = 0.0
    slow_s: float = 0.3  # the mean time of a slow call
    hung: float = 0.0  # takes longer than any caller waits
    late_s: float = 12.0  # the longest time that a hung call takes; a late one takes two thirds of it
    unknown_after_s: float = 3.0  # the longest time until a caller is told that the outcome is unknown
    only: tuple[CallKind, ...] = ()


CALM = StoreTrouble()


class Fate(NamedTuple):
    """The fate of one call: when it is executed and answered, in seconds from now, or None for never."""

    carried_out_s: float | None
    answered_s: float
    error: type[PinLaterError] | None = None


def draw_fate(random: Random, trouble: StoreTrouble, kind: CallKind, *, calm: bool, reachable: bool) -> Fate:
    """Returns the fate of a call. `calm`: only its latency is drawn; `reachable`: whether the store accepts connections from its
    host."""
    there_s = trouble.latency_s * (0.1 + 0.4 * random.random())
    back_s = trouble.latency_s * (0.1 + 0.4 * random.random())
    if not reachable:
        return Fate(None, there_s + back_s, ShardConnectionFailed)
    if calm or (trouble.only and kind not in trouble.only):
        return Fate(there_s, there_s + back_s)
    drawn = random.random()
    unknown_s = trouble.unknown_after_s * random.random()
    fates: Sequence[tuple[float, Callable[[], Fate]]] = (
        (trouble.refused, lambda: Fate(None, there_s + back_s, ShardConnectionFailed)),
        (trouble.answer_lost, lambda: Fate(there_s, there_s + unknown_s, OutcomeUnknown)),
        (trouble.lost, lambda: Fate(None, there_s + unknown_s, OutcomeUnknown)),
        (
            trouble.late,
            lambda: Fate(there_s + trouble.late_s * 2 / 3 * random.random(), there_s + back_s, OutcomeUnknown),
        ),
        (trouble.slow, lambda: Fate(there_s + random.expovariate(1 / trouble.slow_s), 0.0)),
        (trouble.slow, lambda: Fate(there_s, there_s + random.expovariate(1 / trouble.slow_s))),
        (trouble.hung, lambda: Fate(there_s + trouble.late_s * random.random(), 0.0)),
    )
    for share, make in fates:
        if drawn < share:
            fate = make()
            break
        drawn -= share
    else:
        return Fate(there_s, there_s + back_s)
    if fate.carried_out_s is not None and fate.error is None and fate.answered_s < fate.carried_out_s:
        fate = fate._replace(answered_s=fate.carried_out_s + back_s)
    if fate.error is OutcomeUnknown and only_looks(kind):
        fate = fate._replace(error=ShardConnectionFailed)
    return fate
