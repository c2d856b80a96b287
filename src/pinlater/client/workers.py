"""Workers as operators see them: `worker_judgement` makes these of what servers know. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from pinlater.domain.history import HOUR_MS
from pinlater.domain.workers import LostClaim, ServerWorkers, WorkerInfo, WorkerStatus

SILENT_MS = 60_000
"""A worker asks or renews more often than that, unless it is gone."""


class WorkingProcess(NamedTuple):
    """The process that sends a request. `number`: random, not 0; no other process that ever uses the source has it. `info`: None if the
    servers were told a moment ago."""

    number: int
    info: WorkerInfo | None = None


class JobInHand(NamedTuple):
    """A claimed job. `for_ms`: since its claim or its last checkpoint. `left_ms`: until its claim ends; below 0 after the deadline."""

    descriptor: str
    queue: str
    source: str
    for_ms: int
    left_ms: int | None


class Trouble(str, Enum):  # noqa: UP042 - also the words of the API
    """How much a worker needs attention. A stuck one is heard, but does not get on. Of a silent one, or one of its processes, servers only
    know that they hear it no more: it was killed, stands still, or can't reach them. A slow one takes long for a job, or lost claims once
    or twice: the answer with the job may never have reached it."""

    STUCK = "stuck"
    SILENT = "silent"
    SLOW = "slow"
    NONE = "none"


class KnownWorker(NamedTuple):
    """All that is known of a source. `processes`: the last heard first. `reasons`: sentences that say why it needs attention.

    `holds`, `waits`: jobs and long polls by queue. `longest`: the job that it has held longest; `next_end`: the one whose claim ends first.
    `lost`: claims that timed out, the newest first, at most `LOST_MAX`. Numbers are of the last hour, of the servers that answered.
    """

    source: str
    trouble: Trouble
    reasons: Sequence[str]
    processes: Sequence[WorkerStatus]
    heard_ms: int | None
    queues: Sequence[str]
    waits: Mapping[str, int]
    holds: Mapping[str, int]
    longest: JobInHand | None
    next_end: JobInHand | None
    handed_out: int
    timed_out: int
    late: int
    lost: Sequence[LostClaim] = ()

    @property
    def held(self) -> int:
        """Jobs in its hands."""
        return sum(self.holds.values())

    @property
    def versions(self) -> Sequence[str]:
        """Of the libraries of its processes, each once; '' for a process that does not say it."""
        said = [each.info for each in self.processes]
        return list(dict.fromkeys("" if info is None else f"{info.library} {info.version}" for info in said))

    @property
    def present(self) -> Sequence[WorkerStatus]:
        """The processes that were heard lately."""
        return [each for each in self.processes if each.heard_ms is not None and each.heard_ms < SILENT_MS]


class WorkersFound(NamedTuple):
    """Workers with those in trouble first, and `gaps`: sentences that say what is not known. `counted_ms`: how far the numbers go back: an
    hour, or to the start of the server that started last."""

    workers: Sequence[KnownWorker]
    gaps: Sequence[str] = ()
    counted_ms: int = HOUR_MS


class ServerReply(NamedTuple):
    """What the server at an address answered, for itself and perhaps for others of its shards; or why it did not."""

    address: str
    found: Sequence[ServerWorkers]
    error: str = ""
