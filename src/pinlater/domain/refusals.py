"""Delays refusals by the address of the caller: guessing becomes slow, and a caller that is misconfigured costs little. An address here
may be another key, such as a valid token of callers at an address, which guess nothing.

Only refusals are delayed; valid calls from the same address are not. The number of remembered addresses is bounded; beyond it,
the one that was refused longest ago is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

_AT_ONCE = 3
_FIRST_DELAY_S = 0.1
DELAY_S_MAX = 3.0
_FORGOTTEN_AFTER_S = 60.0
_LOG_EVERY_S = 10.0
ADDRESSES_MAX = 4096


@dataclass(slots=True)
class _AddressRefusals:
    number: int = 0
    latest_s: float = 0.0
    logged_s: float | None = None
    unlogged: int = 0


class Refusal(NamedTuple):
    """What to do about one refused call: `delay_s` before its answer, and a log line about `log` refusals (0: none)."""

    delay_s: float
    log: int


class Refusals:
    """Delays refused callers of one server or console. `monotonic`: seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._addresses: dict[str, _AddressRefusals] = {}  # the one that was refused longest ago comes first

    def one(self, address: str) -> Refusal:
        """Counts a refusal of that address."""
        now_s = self._monotonic()
        refusals = self._addresses.pop(address, None)
        if refusals is None or now_s - refusals.latest_s > _FORGOTTEN_AFTER_S:
            refusals = _AddressRefusals()
        elif refusals.logged_s is not None and now_s - refusals.logged_s > _LOG_EVERY_S:
            refusals.logged_s = None
        self._addresses[address] = refusals
        if len(self._addresses) > ADDRESSES_MAX:
            del self._addresses[next(iter(self._addresses))]
        refusals.number += 1
        refusals.latest_s = now_s
        refusals.unlogged += 1
        return Refusal(_delay_s(refusals.number), _to_log(refusals, now_s))

    def __len__(self) -> int:
        """Returns how many addresses are remembered."""
        return len(self._addresses)


def _delay_s(number: int) -> float:
    """Doubles with each refusal after the first few."""
    if number <= _AT_ONCE:
        return 0.0
    return min(DELAY_S_MAX, _FIRST_DELAY_S * 2.0 ** min(number - _AT_ONCE - 1, 16))


def _to_log(refusals: _AddressRefusals, now_s: float) -> int:
    if refusals.logged_s is not None:
        return 0
    refusals.logged_s = now_s
    number, refusals.unlogged = refusals.unlogged, 0
    return number
