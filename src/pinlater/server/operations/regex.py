"""Body regexes: RE2's syntax through google-re2, with the same meaning on every store because no store executes them.

They search (not match), case-sensitive, in UTF-8; a byte that isn't UTF-8 matches nothing. RE2's work grows with the instructions
of the regex's program times the bytes of the bodies: a request has a budget of such steps, charged before each search, and a budget of
time. Another process does the search (`body_search`), in pieces, so that a caller gets the matches from before a budget ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pinlater.domain.clock import Clock
from pinlater.domain.errors import InvalidArgument
from pinlater.server.operations.body_search import PatternInvalid, SearchOutOfTime, SearchProcesses
from pinlater.server.operations.job_settings import JobSettings
from pinlater.server.storage.values import PageRow

_PIECE_STEPS = 100_000_000
_PIECE_BYTES = 1024 * 1024
# The first piece of a request has at least this long, so that a paged scan makes progress whatever its budget is.
_FIRST_PIECE_S = 1.0


class BodyRegex:
    """A pattern with the budgets of one request, which start now. `compiled` makes one."""

    def __init__(self, pattern: bytes, settings: JobSettings, clock: Clock, processes: SearchProcesses) -> None:
        self._pattern = pattern
        self._processes = processes
        self._program = 0
        self._clock = clock
        self._budget_ms = settings.regex_time_budget_ms
        self._deadline = clock.monotonic() + settings.regex_time_budget_ms / 1000
        self._steps_max = self._steps_left = settings.regex_steps_max
        self._out_of_steps = False
        self._cut = False
        self._searched = 0

    @classmethod
    async def compiled(cls, pattern: str, settings: JobSettings, clock: Clock, processes: SearchProcesses) -> BodyRegex:
        """Raises `InvalidArgument` for a pattern that RE2 refuses, or that takes too long to compile."""
        content = pattern.encode("utf-8", "surrogatepass")
        if len(content) > settings.regex_pattern_bytes_max:
            raise InvalidArgument(
                f"A body regex has at most {settings.regex_pattern_bytes_max} bytes", detail="REGEX_INVALID"
            )
        regex = cls(content, settings, clock, processes)
        try:
            regex._program = (await processes.search(content, (), max(regex._left_s, _FIRST_PIECE_S))).program
        except PatternInvalid as error:
            raise InvalidArgument(f"Invalid body regex {pattern[:100]!r}: {error}", detail="REGEX_INVALID") from error
        except SearchOutOfTime:
            regex._cut = True
            raise regex.too_costly(0) from None
        return regex

    @property
    def exhausted(self) -> bool:
        """True once a budget is used up."""
        return self._cut or self._out_of_steps or self._left_s <= 0

    @property
    def _left_s(self) -> float:
        return self._deadline - self._clock.monotonic()

    def too_costly(self, seen: int) -> InvalidArgument:
        """The error for a budget that is used up after that many bodies."""
        if self._out_of_steps:
            why = (
                f"The regex is too costly: after {seen} bodies its program of {self._program} instructions, times the bytes to search, "
                f"would come to more than {self._steps_max} steps (setting regex_steps_max); use shorter repetitions"
            )
        else:
            why = f"The regex looked at {seen} bodies in its {self._budget_ms} ms and was not done"
        return InvalidArgument(f"{why}; narrow it by a priority, or look at fewer jobs", detail="REGEX_TOO_COSTLY")

    async def found(self, rows: Sequence[PageRow]) -> list[bool]:
        """Returns for each row whether the pattern is in its body. If a budget ends meanwhile, only for the rows before it."""
        found: list[bool] = []
        for bodies in self._pieces(rows):
            if self._searched and self.exhausted:
                break
            steps = self._program * sum(map(len, bodies))
            if steps > self._steps_left:
                self._out_of_steps = True
                break
            self._steps_left -= steps
            seconds = self._left_s if self._searched else max(self._left_s, _FIRST_PIECE_S)
            try:
                searched = await self._processes.search(self._pattern, bodies, seconds, program=self._program)
            except SearchOutOfTime:
                self._cut = True
                break
            found += searched.found
            self._searched += len(bodies)
        return found

    def _pieces(self, rows: Sequence[PageRow]) -> Iterator[list[bytes]]:
        """The bodies in pieces of bounded cost, at least one in each; no piece of several bodies costs more than the rest of the budget."""
        piece: list[bytes] = []
        piece_bytes = 0
        for row in rows:
            body = row.job.body or b""
            most_steps = min(_PIECE_STEPS, self._steps_left)
            if piece and piece_bytes + len(body) > min(_PIECE_BYTES, most_steps // max(1, self._program)):
                yield piece
                piece, piece_bytes = [], 0
            piece.append(body)
            piece_bytes += len(body)
        if piece:
            yield piece
