"""Groups of failures, as a server tells of them. Plain frozen values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class FailureGroup(NamedTuple):
    """Failed attempts of a queue that look alike. `failures`: all since `first_ms`, as long as the group is kept; `hours`: of the last
    24 hours, the oldest first. `sample`: the descriptor of the job that failed last.

    `name`: 16 hexadecimal digits, `OTHERS` for failures of more groups than are kept. `muted_until_ms`: an operator has seen it; 0 if not.
    """

    queue: str
    name: str
    task: str
    error_type: str
    pattern: str
    failures: int
    first_ms: int
    last_ms: int
    sample: str
    hours: Sequence[int]
    muted_until_ms: int = 0


class FailureGroups(NamedTuple):
    """Holds the groups of some queues. `incomplete`: a shard was unreachable, and its failures are missing."""

    groups: Sequence[FailureGroup]
    incomplete: bool = False
