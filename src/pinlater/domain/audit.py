"""Ids of the entries of the audit. Pure.

An entry's id begins with its time, so that ids sort in the order of the entries, and ends with digits that no other entry has.
"""

from __future__ import annotations

ENTRIES_A_PAGE_MAX = 500
_TIME_DIGITS = 13
_LAST_MS = 10**_TIME_DIGITS - 1


def entry_id(at_ms: int, number: int, random: int) -> str:
    """The id of an entry of that time. `number` orders the entries of one server in a millisecond; `random` has 32 bits."""
    return f"{first_id_at(at_ms)}-{number % 2**24:06x}{random % 2**32:08x}"


def first_id_at(at_ms: int) -> str:
    """Returns an id that is higher than all ids from before that time, and not higher than any later one."""
    return f"{min(max(at_ms, 0), _LAST_MS):0{_TIME_DIGITS}d}"
