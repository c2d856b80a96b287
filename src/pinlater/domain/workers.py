"""Workers as servers know them, and as operators see them (`worker_judgement` makes these of those). Pure.

Two names matter. The source is what a worker calls itself; claims name it, and several processes may share it. A process is named by a
random number, which it sends with each dequeue and heartbeat; a process that is started again has another one. Jobs in hand and lost claims
therefore belong to a source, all else to a process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from pinlater.domain.history import HOUR_MS

SILENT_MS = 60_000
"""A worker asks or renews more often than that, unless it is gone."""
LOST_MAX = 5
"""Claims that timed out, of one worker: the newest."""
_FIELDS_BYTES = 80  # of numbers and headers beside each text
TOLD_MAX = 10_000
"""Workers that a server asks the others for at most, all together."""


class WorkerInfo(NamedTuple):
    """What a process says of itself. `library` is '' for one that says nothing. `started_at_ms`: by its own clock."""

    library: str = ""
    version: str = ""
    host: str = ""
    pid: int = 0
    concurrency: int = 0
    running: int = 0
    started_at_ms: int = 0


class WorkingProcess(NamedTuple):
    """The process that sends a request. `number`: random, not 0; no other process that ever uses the source has it. `info`: None if the
    servers were told a moment ago."""

    number: int
    info: WorkerInfo | None = None


class WaitingDequeues(NamedTuple):
    """Long polls of one caller on one queue that wait on the server that answers."""

    queue: str
    source: str
    number: int


class WorkerQueue(NamedTuple):
    """What became of a worker's claims in a queue in the last hour, and `lately`: in its last ten minutes.

    `asked_ms`: how long ago it asked for jobs; None if only the end of its claims is known. `timed_out`: claims that ended at their
    deadline. `timed_out_times`: how often that happened, where those within a minute count once; 0 if it is not known. `late`: answers that
    came after their claim had ended, also repeated ones.
    """

    queue: str
    asked_ms: int | None = None
    handed_out: int = 0
    timed_out: int = 0
    late: int = 0
    timed_out_lately: int = 0
    late_lately: int = 0
    timed_out_times: int = 0

    def plus(self, other: WorkerQueue) -> WorkerQueue:
        """The sums of what two servers counted. A failure of either may end claims at both, which is no second time."""
        return WorkerQueue(
            self.queue,
            _least(self.asked_ms, other.asked_ms),
            self.handed_out + other.handed_out,
            self.timed_out + other.timed_out,
            self.late + other.late,
            self.timed_out_lately + other.timed_out_lately,
            self.late_lately + other.late_lately,
            max(self.timed_out_times, other.timed_out_times),
        )


class LostClaim(NamedTuple):
    """A claim that ended at its deadline. `ended_ms`: how long ago."""

    queue: str
    descriptor: str
    ended_ms: int


class WorkerStatus(NamedTuple):
    """A process of a worker. `process`: 0 for callers that name none, which may be several; lost claims of the source are counted there.

    `heard_ms`: how long ago it sent a request; None if only the end of claims is known. `claim_ms`: the longest claim among those that it
    got last. `info`: as it said `said_ms` ago. `lost`: the newest first, at most `LOST_MAX`.
    """

    source: str
    process: int = 0
    heard_ms: int | None = None
    queues: Sequence[WorkerQueue] = ()
    claim_ms: int | None = None
    info: WorkerInfo | None = None
    said_ms: int | None = None
    lost: Sequence[LostClaim] = ()

    @property
    def handed_out(self) -> int:
        """Jobs that it got in the last hour."""
        return sum(queue.handed_out for queue in self.queues)

    def plus(self, other: WorkerStatus) -> WorkerStatus:
        """What two servers know of one process: the newer of what it said, the sums of what each counted."""
        by_queue = {each.queue: each for each in self.queues}
        for each in other.queues:
            known = by_queue.get(each.queue)
            by_queue[each.queue] = each if known is None else known.plus(each)
        newer = min(self, other, key=lambda status: (status.info is None, status.said_ms or 0))
        return WorkerStatus(
            self.source,
            self.process,
            _least(self.heard_ms, other.heard_ms),
            list(by_queue.values()),
            max(self.claim_ms or 0, other.claim_ms or 0) or None,
            newer.info,
            newer.said_ms,
            newest_lost([self, other]),
        )


class ServerWorkers(NamedTuple):
    """What one server knows. `server_id` names one start of its process. `servers`: that share the shards. `forgotten`: how often it
    gave up a worker for another one in the last hour, and workers that it left out of this answer."""

    workers: Sequence[WorkerStatus]
    waiting: Sequence[WaitingDequeues]
    server_id: str
    servers: int
    now_ms: int
    up_ms: int
    forgotten: int = 0


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


def cut_to(answer: ServerWorkers, bytes_max: int) -> ServerWorkers:
    """The first of its workers that take about that many bytes at most. Those that are left out count as forgotten."""
    left_bytes = bytes_max - sum(
        _bytes_of(poll.queue) + _bytes_of(poll.source) + _FIELDS_BYTES for poll in answer.waiting
    )
    for place, status in enumerate(answer.workers):
        left_bytes -= _status_bytes(status)
        if left_bytes < 0:
            left_out = len(answer.workers) - place
            return answer._replace(workers=answer.workers[:place], forgotten=answer.forgotten + left_out)
    return answer


def _status_bytes(status: WorkerStatus) -> int:
    texts = [status.source, *(each.queue for each in status.queues)]
    for claim in status.lost:
        texts += claim.queue, claim.descriptor
    if status.info is not None:
        texts += status.info[:3]
    return sum([_bytes_of(text) + _FIELDS_BYTES for text in texts])


def _bytes_of(text: str) -> int:
    return len(text) if text.isascii() else 4 * len(text)


def newest_lost(statuses: Iterable[WorkerStatus]) -> Sequence[LostClaim]:
    """Each once: two servers may have ended the claim of one attempt each."""
    lost = sorted({claim for status in statuses for claim in status.lost}, key=lambda claim: claim.ended_ms)
    return lost[:LOST_MAX]


def _least(one: int | None, other: int | None) -> int | None:
    return min((each for each in (one, other) if each is not None), default=None)
