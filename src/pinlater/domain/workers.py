"""Workers as servers know them, and as operators see them: put together from several servers and sorted by trouble. Pure.

Two names matter. The source is what a worker calls itself; claims name it, and several processes may share it. A process is named by a
random number, which it sends with each dequeue and heartbeat; a process that is started again has another one. Jobs in hand and lost claims
therefore belong to a source, all else to a process.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from pinlater.domain.calls import WaitingDequeues
from pinlater.domain.history import QueueHistory
from pinlater.domain.job import JobInfo, source_of_claim
from pinlater.domain.wording import counted, span

SILENT_MS = 60_000
"""A worker asks or renews more often than that, unless it is gone."""
_OVERDUE_MS = 5_000  # so long servers may take to end a claim after its deadline
_SLOW_TIMES, SLOW_MS = 3, 60_000
_STUCK_TIMES, _STUCK_MS = 10, 600_000
_LATELY = "in the last 10 minutes"


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


class WorkerQueue(NamedTuple):
    """What became of a worker's claims in a queue in the last hour, and `lately`: in its last ten minutes.

    `asked_ms`: how long ago it asked for jobs; None if only the end of its claims is known. `timed_out`: claims that ended at their
    deadline. `late`: answers that came after their claim had ended.
    """

    queue: str
    asked_ms: int | None = None
    handed_out: int = 0
    timed_out: int = 0
    late: int = 0
    timed_out_lately: int = 0
    late_lately: int = 0

    def plus(self, other: WorkerQueue) -> WorkerQueue:
        """The sums of what two servers counted."""
        return WorkerQueue(
            self.queue,
            _least(self.asked_ms, other.asked_ms),
            self.handed_out + other.handed_out,
            self.timed_out + other.timed_out,
            self.late + other.late,
            self.timed_out_lately + other.timed_out_lately,
            self.late_lately + other.late_lately,
        )


class WorkerStatus(NamedTuple):
    """A process of a worker. `process`: 0 for callers that name none, which may be several; lost claims of the source are counted there.

    `heard_ms`: how long ago it sent a request; None if only the end of claims is known. `claim_ms`: the longest claim among those that it
    got last. `info`: as it said `said_ms` ago.
    """

    source: str
    process: int = 0
    heard_ms: int | None = None
    queues: Sequence[WorkerQueue] = ()
    claim_ms: int | None = None
    info: WorkerInfo | None = None
    said_ms: int | None = None

    @property
    def handed_out(self) -> int:
        """Jobs that it got in the last hour."""
        return sum(queue.handed_out for queue in self.queues)


class ServerWorkers(NamedTuple):
    """What one server knows. `server_id` names one start of its process. `servers`: that share the shards. `forgotten`: workers that it
    gave up for others in the last hour."""

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
    """How much a worker needs attention."""

    STUCK = "stuck"
    SLOW = "slow"
    NONE = "none"


class KnownWorker(NamedTuple):
    """All that is known of a source. `processes`: the last heard first. `reasons`: sentences that say why it needs attention.

    `holds`, `waits`: jobs and long polls by queue. `longest`: the job that it has held longest; `next_end`: the one whose claim ends first.
    Numbers are of the last hour, of the servers that answered.
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
    """Workers with those in trouble first, and `gaps`: sentences that say what is not known."""

    workers: Sequence[KnownWorker]
    gaps: Sequence[str] = ()


class ServerReply(NamedTuple):
    """What the server at an address answered, or why it did not."""

    address: str
    found: ServerWorkers | None
    error: str = ""


def now_of(replies: Iterable[ServerReply]) -> int | None:
    """The time by the clock of a server, which sets the deadlines of claims."""
    return max((reply.found.now_ms for reply in replies if reply.found is not None), default=None)


def in_hand_of(queue: str, jobs: Iterable[JobInfo], now_ms: int) -> list[JobInHand]:
    """Jobs that were scanned as IN_PROGRESS."""
    return [
        JobInHand(
            job.descriptor,
            queue,
            source_of_claim(job.claim_descriptor or "") or job.claim_descriptor or "",
            max(0, now_ms - (now_ms if job.updated_at_ms is None else job.updated_at_ms)),
            None if job.claim_deadline_ms is None else job.claim_deadline_ms - now_ms,
        )
        for job in jobs
    ]


def usual_run_ms(histories: Iterable[QueueHistory]) -> dict[str, int]:
    """How long 99 % of the jobs of each queue run at most, by the slowest step of its history."""
    longest = {
        each.queue: max((point.runs.p99_ms for point in each.points if point.runs), default=0) for each in histories
    }
    return {queue: run_ms for queue, run_ms in longest.items() if run_ms}


def workers_of(
    replies: Sequence[ServerReply],
    in_hand: Sequence[JobInHand],
    usual_ms: Mapping[str, int],
    queues: Collection[str] = (),
    gaps: Sequence[str] = (),
) -> WorkersFound:
    """The workers of all servers by source. `usual_ms`: how long almost all jobs of a queue run. `queues`: only these, if any are named.

    `gaps`: what else is not known.
    """
    answers = _distinct(replies)
    gaps = [*_gaps(replies, answers), *gaps]
    rows = _Rows(queues)
    for answer in answers:
        for status in answer.workers:
            rows.add_status(status)
        for poll in answer.waiting:
            rows.add_waiting(poll)
    for job in in_hand:
        rows.add_job(job)
    found = [row.judged(usual_ms, complete=not gaps) for row in rows.by_source.values()]
    return WorkersFound(sorted(found, key=_attention), gaps)


def _attention(worker: KnownWorker) -> tuple[int, int, bool, str]:
    rank = list(Trouble).index(worker.trouble)
    return rank, -(worker.longest.for_ms if worker.longest else -1), not worker.present, worker.source


def _distinct(replies: Iterable[ServerReply]) -> list[ServerWorkers]:
    """An answer of each server process: two addresses may be those of one."""
    return list({reply.found.server_id: reply.found for reply in replies if reply.found is not None}.values())


def _gaps(replies: Iterable[ServerReply], answers: Sequence[ServerWorkers]) -> list[str]:
    found = [f"{reply.address} does not answer: {reply.error}" for reply in replies if reply.found is None]
    servers = max((answer.servers for answer in answers), default=0)
    if len(answers) < servers:
        found.append(f"{len(answers)} of {servers} servers were asked; what the others know is missing")
    forgotten = sum(answer.forgotten for answer in answers)
    if forgotten:
        found.append(f"more workers than servers keep: {forgotten:,} were forgotten in the last hour")
    return found


class _Rows:
    """Gathers workers by source."""

    def __init__(self, queues: Collection[str]) -> None:
        self._only = frozenset(queues)
        self.by_source: dict[str, _Row] = {}

    def add_status(self, status: WorkerStatus) -> None:
        queues = [each for each in status.queues if self._shows(each.queue)]
        if queues or not self._only:
            self._of(status.source).add_status(status._replace(queues=queues))

    def add_waiting(self, poll: WaitingDequeues) -> None:
        if self._shows(poll.queue):
            waits = self._of(poll.source).waits
            waits[poll.queue] = waits.get(poll.queue, 0) + poll.number

    def add_job(self, job: JobInHand) -> None:
        if self._shows(job.queue):
            self._of(job.source).jobs.append(job)

    def _shows(self, queue: str) -> bool:
        return not self._only or queue in self._only

    def _of(self, source: str) -> _Row:
        return self.by_source.setdefault(source, _Row(source))


class _Row:
    """One source while answers are put together."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._statuses: dict[int, WorkerStatus] = {}
        self.waits: dict[str, int] = {}
        self.jobs: list[JobInHand] = []

    def add_status(self, status: WorkerStatus) -> None:
        known = self._statuses.get(status.process)
        self._statuses[status.process] = status if known is None else _joined(known, status)

    def judged(self, usual_ms: Mapping[str, int], *, complete: bool) -> KnownWorker:
        counts = [each for status in self._statuses.values() for each in status.queues]
        heard = [status for status in self._statuses.values() if status.heard_ms is not None]
        holds: dict[str, int] = {}
        for job in self.jobs:
            holds[job.queue] = holds.get(job.queue, 0) + 1
        worker = KnownWorker(
            source=self._source,
            trouble=Trouble.NONE,
            reasons=(),
            processes=sorted(heard, key=lambda status: (status.heard_ms or 0, status.process)),
            heard_ms=min((status.heard_ms for status in heard if status.heard_ms is not None), default=None),
            queues=sorted({*(each.queue for each in counts), *self.waits, *holds}),
            waits=self.waits,
            holds=holds,
            longest=max(self.jobs, key=lambda job: job.for_ms, default=None),
            next_end=min(self.jobs, key=_end, default=None),
            handed_out=sum(each.handed_out for each in counts),
            timed_out=sum(each.timed_out for each in counts),
            late=sum(each.late for each in counts),
        )
        stuck = [*self._late_claims(), *self._silence(worker, complete=complete), *_lost(counts)]
        slow: list[str] = []
        _judge_length(self.jobs, usual_ms, stuck, slow)
        trouble = Trouble.STUCK if stuck else Trouble.SLOW if slow else Trouble.NONE
        return worker._replace(trouble=trouble, reasons=[*stuck, *slow])

    def _late_claims(self) -> Iterable[str]:
        past = [-job.left_ms for job in self.jobs if job.left_ms is not None and job.left_ms < -_OVERDUE_MS]
        if past:
            yield f"The claim of {counted(len(past), 'job')} should have ended {span(max(past))} ago"

    def _silence(self, worker: KnownWorker, *, complete: bool) -> Iterable[str]:
        """A server that did not answer may have heard it."""
        claim_ms = max((status.claim_ms or 0 for status in worker.processes), default=0)
        if complete and self.jobs and claim_ms and worker.heard_ms is not None and worker.heard_ms > claim_ms:
            yield (
                f"Last heard {span(worker.heard_ms)} ago, longer than its claims last ({span(claim_ms)}), and it holds "
                f"{counted(len(self.jobs), 'job')}"
            )


def _lost(counts: Iterable[WorkerQueue]) -> Iterable[str]:
    counts = list(counts)
    timed_out = sum(each.timed_out_lately for each in counts)
    late = sum(each.late_lately for each in counts)
    if timed_out:
        yield f"{counted(timed_out, 'claim')} timed out {_LATELY}"
    if late:
        yield f"{counted(late, 'answer')} came after the claim had ended, {_LATELY}"


def _judge_length(jobs: Sequence[JobInHand], usual_ms: Mapping[str, int], stuck: list[str], slow: list[str]) -> None:
    """Adds a sentence for the job that exceeds most what is usual in its queue."""
    known = [job for job in jobs if usual_ms.get(job.queue)]
    if not known:
        return
    worst = max(known, key=lambda job: job.for_ms / usual_ms[job.queue])
    usual = usual_ms[worst.queue]
    text = (
        f"{worst.descriptor} has run for {span(worst.for_ms)} since its claim or its last checkpoint; 99 % of the jobs of {worst.queue} "
        f"took at most {span(usual)} in the last hour"
    )
    if worst.for_ms >= max(_STUCK_MS, _STUCK_TIMES * usual):
        stuck.append(text)
    elif worst.for_ms >= max(SLOW_MS, _SLOW_TIMES * usual):
        slow.append(text)


def _joined(one: WorkerStatus, other: WorkerStatus) -> WorkerStatus:
    """What two servers know of one process: the newer of what it said, the sums of what each counted."""
    by_queue = {each.queue: each for each in one.queues}
    for each in other.queues:
        known = by_queue.get(each.queue)
        by_queue[each.queue] = each if known is None else known.plus(each)
    newer = min(one, other, key=lambda status: (status.info is None, status.said_ms or 0))
    return WorkerStatus(
        one.source,
        one.process,
        _least(one.heard_ms, other.heard_ms),
        list(by_queue.values()),
        max(one.claim_ms or 0, other.claim_ms or 0) or None,
        newer.info,
        newer.said_ms,
    )


def _end(job: JobInHand) -> float:
    return float("inf") if job.left_ms is None else job.left_ms


def _least(one: int | None, other: int | None) -> int | None:
    return min((each for each in (one, other) if each is not None), default=None)
