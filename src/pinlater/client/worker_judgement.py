"""Puts together what several servers know of workers, and judges which workers need attention. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from pinlater.client.history import QueueHistory
from pinlater.client.jobs import JobInfo
from pinlater.client.workers import SILENT_MS, JobInHand, KnownWorker, ServerReply, Trouble, WorkersFound
from pinlater.domain.history import HOUR_MS
from pinlater.domain.job import source_of_claim
from pinlater.domain.wording import counted, span
from pinlater.domain.workers import ServerWorkers, WaitingDequeues, WorkerQueue, WorkerStatus, newest_lost

_BRIEF_MS = 5_000  # a worker that sent nothing for so long may be slow
_OVERDUE_MS = 5_000  # so long servers may take to end a claim after its deadline
_SWEPT_LATE_MS = 60_000  # and so long if they are restarted meanwhile
_SLOW_TIMES, SLOW_MS = 3, 60_000
_STUCK_TIMES, _STUCK_MS = 10, 600_000
_AGAIN_TIMES = 3  # a server or a shard that fails twice in an hour makes no worker stuck
_LATELY = "in the last 10 minutes"


def now_of(replies: Iterable[ServerReply]) -> int | None:
    """The time by the clock of a server, which sets the deadlines of claims."""
    return max((answer.now_ms for reply in replies for answer in reply.found), default=None)


def misses_servers(replies: Iterable[ServerReply]) -> bool:
    """Whether the shards have more servers than those whose lists came."""
    answers = _distinct(replies)
    return len(answers) < _servers_of(answers)


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
    rows = _RowsBySource(queues)
    for answer in answers:
        for status in answer.workers:
            rows.add_status(status)
        for poll in answer.waiting:
            rows.add_waiting(poll)
    for job in in_hand:
        rows.add_job(job)
    found = [row.judged(usual_ms, complete=not gaps) for row in rows.by_source.values()]
    counted_ms = min([HOUR_MS, *(answer.up_ms for answer in answers)])
    return WorkersFound(sorted(found, key=_attention), gaps, counted_ms)


def _attention(worker: KnownWorker) -> tuple[int, int, bool, str]:
    rank = list(Trouble).index(worker.trouble)
    return rank, -(worker.longest.for_ms if worker.longest else -1), not worker.present, worker.source


def _distinct(replies: Iterable[ServerReply]) -> list[ServerWorkers]:
    """An answer of each server process: two addresses may be those of one."""
    return list({answer.server_id: answer for reply in replies for answer in reply.found}.values())


def _servers_of(answers: Iterable[ServerWorkers]) -> int:
    return max((answer.servers for answer in answers), default=0)


def _gaps(replies: Iterable[ServerReply], answers: Sequence[ServerWorkers]) -> list[str]:
    found = [f"{reply.address} does not answer: {reply.error}" for reply in replies if not reply.found]
    servers = _servers_of(answers)
    if len(answers) < servers:
        found.append(f"{len(answers)} of {servers} servers answered; what the others know is missing")
    forgotten = sum(answer.forgotten for answer in answers)
    if forgotten:
        found.append(
            f"There are more workers than servers keep: they gave up workers {forgotten:,} times in the last hour"
        )
    return found


class _RowsBySource:
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
        self._statuses[status.process] = status if known is None else known.plus(status)

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
            lost=newest_lost(self._statuses.values()),
        )
        lost = list(_lost(counts))
        gone = [*self._silence(worker, lost=bool(lost)), *_killed(worker)] if complete else []
        stuck: list[str] = []
        slow: list[str] = []
        why = gone or stuck
        why += self._late_claims()
        lost_why = why if gone or _lost_again(counts) else slow
        lost_why += lost
        _judge_length(self.jobs, usual_ms, why, slow)
        trouble = Trouble.SILENT if gone else Trouble.STUCK if stuck else Trouble.SLOW if slow else Trouble.NONE
        return worker._replace(trouble=trouble, reasons=[*why, *slow])

    def _late_claims(self) -> Iterable[str]:
        past = [-job.left_ms for job in self.jobs if job.left_ms is not None and job.left_ms < -_OVERDUE_MS]
        if past:
            yield f"The claim of {counted(len(past), 'job')} should have ended {span(max(past))} ago"

    def _silence(self, worker: KnownWorker, *, lost: bool) -> Iterable[str]:
        """For how long it was not heard, if it was to be heard since, and holds jobs or lost some. A worker in a long poll is connected."""
        heard_ms = worker.heard_ms
        if self.waits or not (lost or self.jobs):
            return
        if heard_ms is None:
            if lost:
                yield "No server has heard it lately"
        elif heard_ms > _BRIEF_MS and self._misses_renewals(worker, heard_ms):
            yield f"Not heard for {span(heard_ms)}; it still holds {_held(self.jobs)}"
        elif lost and heard_ms > max(_silent_after_ms(each) for each in worker.processes):
            yield f"Not heard for {span(heard_ms)}"

    def _misses_renewals(self, worker: KnownWorker, heard_ms: int) -> bool:
        """A worker that names its process renews each claim whenever a third of it has passed, so that a claim of which less than a third
        is left was not renewed twice. Of others it is known only how long the claims last that they got last."""
        if all(each.process for each in worker.processes):
            return any(job.left_ms is not None and heard_ms > 2 * job.left_ms for job in self.jobs)
        claim_ms = max(each.claim_ms or 0 for each in worker.processes)
        return bool(self.jobs and claim_ms) and heard_ms > claim_ms


def _silent_after_ms(status: WorkerStatus) -> int:
    """How long a process may have sent nothing when a claim of it times out."""
    if status.claim_ms is None:
        return SILENT_MS
    return max(_BRIEF_MS, status.claim_ms * 2 // 3 if status.process else status.claim_ms)


def _held(jobs: Sequence[JobInHand]) -> str:
    """How many, and when the last of their claims ends."""
    left_ms = max((job.left_ms for job in jobs if job.left_ms is not None), default=0)
    text = counted(len(jobs), "job")
    if left_ms <= 0:
        return text
    return f"{text}, whose claim{' times out in' if len(jobs) == 1 else 's time out within'} {span(left_ms)}"


def _lost(counts: Sequence[WorkerQueue]) -> Iterable[str]:
    """Late answers are no trouble by themselves: a client repeats an answer if it does not know what became of it."""
    timed_out = sum(each.timed_out_lately for each in counts)
    if timed_out:
        times = max(each.timed_out_times for each in counts)
        often = f"; that happened {times} times in the last hour" if times >= _AGAIN_TIMES else ""
        yield f"{counted(timed_out, 'claim')} timed out {_LATELY}{often}"


def _lost_again(counts: Iterable[WorkerQueue]) -> bool:
    """Whether it loses claims again and again, so that no failure of a server or a shard explains it. Also if it is not known how often."""
    return any(each.timed_out_lately and not 0 < each.timed_out_times < _AGAIN_TIMES for each in counts)


def _killed(worker: KnownWorker) -> Iterable[str]:
    """Which jobs may have ended a process of the worker: their claims timed out when they would have if it sent nothing after it was last
    heard. A process that stands still looks the same."""
    for status in worker.processes:
        heard_ms, claim_ms = status.heard_ms, status.claim_ms
        if heard_ms is None or claim_ms is None or heard_ms < SILENT_MS:
            continue
        ends = range(heard_ms - claim_ms - _SWEPT_LATE_MS, heard_ms + 1)
        jobs = list(dict.fromkeys(claim.descriptor for claim in worker.lost if claim.ended_ms in ends))
        if jobs:
            which = "this job" if len(jobs) == 1 else "one of these jobs"
            name = "A process" if status.info is None else f"Process {status.info.pid} on {status.info.host}"
            yield (
                f"{name} was last heard {span(heard_ms)} ago, before its claims timed out; {which} may have killed it: {', '.join(jobs)}"
            )
            return


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


def _end(job: JobInHand) -> float:
    return float("inf") if job.left_ms is None else job.left_ms
