"""Workers as servers know them. Pure.

Two names matter. The source is the name that a worker gives itself; claims contain it, and several processes may share it. A process is
identified by a random number, which it sends with each dequeue and heartbeat; a restarted process has another one. Claimed jobs and lost
claims therefore belong to a source, everything else to a process.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

LOST_MAX = 5
"""Claims of one worker that timed out: the newest."""
_FIELDS_BYTES = 80  # bytes of numbers and headers beside each string
TOLD_MAX = 10_000
"""The most workers that a server asks the others for, all together."""


class WorkerInfo(NamedTuple):
    """The facts that a process reports about itself. `library` is '' for one that reports nothing. `started_at_ms`: by its own clock."""

    library: str = ""
    version: str = ""
    host: str = ""
    pid: int = 0
    concurrency: int = 0
    running: int = 0
    started_at_ms: int = 0


class WaitingDequeues(NamedTuple):
    """Long polls of one caller on one queue that wait on the server that answers."""

    queue: str
    source: str
    number: int


class WorkerQueue(NamedTuple):
    """The outcomes of a worker's claims in a queue in the last hour, and `lately`: in its last ten minutes.

    `asked_ms`: how long ago it asked for jobs, or None if only the end of its claims is known. `timed_out`: claims that ended at their
    deadline. `timed_out_times`: how often that happened, where those within a minute count once, or 0 if it is not known. `late`: answers
    that arrived after their claim had ended, including repeated ones.
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
        """The sums of what two servers counted. A failure of either server may end claims at both, which does not count twice."""
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

    `heard_ms`: how long ago it sent a request, or None if only the end of claims is known. `claim_ms`: the longest claim among those that
    it got last. `info`: its report from `said_ms` ago. `lost`: the newest first, at most `LOST_MAX`.
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
        """Returns what two servers know about one process: the newer of its reports, the sums of the counts."""
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
    """The knowledge of one server. `server_id` identifies one start of its process. `servers`: those that share the shards. `forgotten`:
    how often it gave up a worker for another one in the last hour, and workers that it left out of this answer."""

    workers: Sequence[WorkerStatus]
    waiting: Sequence[WaitingDequeues]
    server_id: str
    servers: int
    now_ms: int
    up_ms: int
    forgotten: int = 0


def cut_to(answer: ServerWorkers, bytes_max: int) -> ServerWorkers:
    """The first of its workers that together take at most about that many bytes. Those that are left out count as forgotten."""
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
    """Returns the lost claims, each once: two servers may each have ended the claim of one attempt."""
    lost = sorted({claim for status in statuses for claim in status.lost}, key=lambda claim: claim.ended_ms)
    return lost[:LOST_MAX]


def _least(one: int | None, other: int | None) -> int | None:
    return min((each for each in (one, other) if each is not None), default=None)
