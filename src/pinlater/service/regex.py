"""Body regexes: RE2's syntax through google-re2, one meaning on every store because no store runs them.

They search (not match), case-sensitive, in UTF-8; RE2 works in time linear in the body, whatever the pattern, and a byte that isn't
UTF-8 simply matches nothing. What may be costly all the same, rows without number, has a time budget.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from pinlater.domain.clock import Clock
from pinlater.domain.errors import InvalidArgument
from pinlater.service.settings import ServiceSettings
from pinlater.storage.interface import PageRow

_OFF_LOOP_BYTES = 1024 * 1024
_PROGRAM_BYTES_MAX = 8 * 1024 * 1024


class BodyRegex:
    """A compiled pattern with a time budget that starts now."""

    def __init__(self, pattern: str, settings: ServiceSettings, clock: Clock) -> None:
        self._search = _compile(pattern, settings.regex_pattern_bytes_max)
        self._clock = clock
        self._budget_ms = settings.regex_time_budget_ms
        self._deadline = clock.monotonic() + settings.regex_time_budget_ms / 1000

    @property
    def out_of_time(self) -> bool:
        """True once the budget is used up."""
        return self._clock.monotonic() >= self._deadline

    def too_costly(self, seen: int) -> InvalidArgument:
        """The error that says so."""
        return InvalidArgument(
            f"The regex looked at {seen} bodies in its {self._budget_ms} ms and was not done; "
            "narrow it by a priority, or look at fewer jobs",
            detail="REGEX_TOO_COSTLY",
        )

    async def matching(self, rows: Sequence[PageRow]) -> list[PageRow]:
        """Those whose body it is found in. Large pages are searched in a thread, so that the loop goes on."""
        if sum(len(row.job.body or b"") for row in rows) > _OFF_LOOP_BYTES:
            return await asyncio.to_thread(self._matching, rows)
        return self._matching(rows)

    def _matching(self, rows: Sequence[PageRow]) -> list[PageRow]:
        search = self._search
        return [row for row in rows if search(row.job.body or b"") is not None]


def _compile(pattern: str, pattern_bytes_max: int) -> Callable[[bytes], Any]:
    import re2  # the only user, and part of the server extra

    if len(pattern.encode("utf-8", "surrogatepass")) > pattern_bytes_max:
        raise InvalidArgument(f"A body regex has at most {pattern_bytes_max} bytes", detail="REGEX_INVALID")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _PROGRAM_BYTES_MAX
    try:
        search: Callable[[bytes], Any] = re2.compile(pattern, options=options).search
    except (re2.error, UnicodeError) as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        raise InvalidArgument(f"Invalid body regex {pattern[:100]!r}: {reason}", detail="REGEX_INVALID") from error
    return search
