"""The number of jobs that a call of several requests had changed when a later request failed: the error tells it."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from pinlater.domain.errors import PinLaterError, adding
from pinlater.domain.wording import counted


class ChangedBefore:
    """Counts in `jobs` what the requests in its block changed. `done`: what happened to the jobs, as `retried`."""

    def __init__(self, done: str) -> None:
        self._done = done
        self.jobs = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if isinstance(error, PinLaterError) and self.jobs:
            verb = "was" if self.jobs == 1 else "were"
            raise adding(error, f"; {counted(self.jobs, 'job')} {verb} {self._done} before") from error.__cause__
