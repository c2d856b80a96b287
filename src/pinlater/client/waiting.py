"""Why a job waits: from what is known of it, its queue and its shard to an ordered list of reasons. Pure; the one place that decides this.

`pinlater job show` knows the job only; `explainJob` answers all the facts. Weakness: a server knows only the requests of workers that it
gets itself, so `no_worker` counts on jobs that were claimed anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

from pinlater.client.jobs import JobInfo
from pinlater.domain.job import QUARANTINED, TIMED_OUT, JobState, source_of_claim
from pinlater.domain.queue import PartitionNumber
from pinlater.domain.transitions import STATUS_CANCELLED, given_up
from pinlater.domain.wording import counted, moment, span

ASKED_LATELY_MS = 60_000
"""A worker that has asked for jobs within this time counts as asking. The rates of a server are of the same time."""
ASKS_NOW_MS = 10_000
"""A worker that waits for jobs asks more often than this."""
AT_ITS_LIMIT = 0.9
"""A queue of which this share of its rate limit was claimed waits for the limit."""
FEW_CLAIMS_PER_SECOND = 5 / 60
"""A queue with fewer claims was quiet in the last minute, which tells nothing of its speed now."""

_WORKERS_SHOWN = 3
_AHEAD_IN_KEY_MAX = 10_000  # to which servers count
"""Workers whose claims of a quarantined job timed out."""

Figure = bool | int | float | str


class Reason(NamedTuple):
    """`code`: for programs, a word in small letters. `text`: a sentence or two for people. `brief`: a few words for a table.

    `figures`: what the text says in numbers, for programs; what is not known is left out. Times end in `_at_ms`, spans in `_ms`.
    """

    code: str
    text: str
    brief: str
    figures: Mapping[str, Figure] = {}


class JobsAhead(NamedTuple):
    """Waiting jobs that come before a job, on all shards. `at_least`: there may be more. `incomplete`: a shard is unreachable, and its
    jobs are not counted."""

    jobs: int
    at_least: bool = False
    incomplete: bool = False


class BehindKey(NamedTuple):
    """Jobs that come before a job under its ordering key. `first`: the descriptor of the first, for whose end they wait. `jobs`: how many,
    counted up to 10,000."""

    first: str
    jobs: int


class BehindFormer(NamedTuple):
    """Jobs with ordering keys on the shard that had those of the queue before, for whose end all on the job's shard wait. `jobs`: how many,
    counted up to 10,000; None if that shard can't be asked."""

    shard: str
    jobs: int | None


class QueueFacts(NamedTuple):
    """What holds for the jobs of a queue, as the server that answers knows it.

    `max_jobs_per_second`: the limit of all servers together; `next_slot_ms`: how long until this server may hand out a job, None if it
    may now, or if only a change of settings helps. `claimed_per_second`: in the last minute, of all servers together. `running`: jobs in
    progress. `waiting_dequeues`, `last_dequeue_at_ms`: at this server; None if none came since its start. `servers`: that share the shards;
    `servers_asked`: whose requests are counted. `partition_number`: how many partitions the queue is to have, and who chose that; None
    where there is one shard only.
    """

    paused: bool = False
    paused_at_ms: int | None = None
    paused_by: str = ""
    max_jobs_per_second: float | None = None
    next_slot_ms: int | None = None
    claimed_per_second: float = 0.0
    running: int = 0
    waiting_dequeues: int = 0
    last_dequeue_at_ms: int | None = None
    server_started_at_ms: int = 0
    servers: int = 1
    servers_asked: int = 1
    partition_number: PartitionNumber | None = None

    def joined(self, others: Sequence[QueueFacts]) -> QueueFacts:
        """With the requests of workers that other servers know of."""
        asked = [each.last_dequeue_at_ms for each in (self, *others) if each.last_dequeue_at_ms is not None]
        return self._replace(
            waiting_dequeues=self.waiting_dequeues + sum(each.waiting_dequeues for each in others),
            last_dequeue_at_ms=max(asked, default=None),
            server_started_at_ms=max(each.server_started_at_ms for each in (self, *others)),
            servers_asked=max(1, len(others)),
        )


class ShardFacts(NamedTuple):
    """The shard of a job, as the server that answers sees it. `drains`: it gets no new jobs."""

    name: str
    in_reach: bool = True
    drains: bool = False


class JobExplanation(NamedTuple):
    """What tells why a job waits, as the server that answers knows it; `reasons` tells it. `now_ms`: the server's clock.

    `job` is None if its shard is not in reach (`shard.in_reach`); else there is no such job. `ahead`: for a waiting job; `behind`: for
    one that waits behind others of its ordering key, or for those on the former shard.
    """

    descriptor: str
    now_ms: int
    job: JobInfo | None
    shard: ShardFacts
    queue: QueueFacts
    ahead: JobsAhead | None = None
    behind: BehindKey | BehindFormer | None = None

    @property
    def missing(self) -> bool:
        """Whether there is no such job."""
        return self.job is None and self.shard.in_reach

    def reasons(self) -> list[Reason]:
        """Why the job waits, what an operator has to change first. Or how it ended, or who runs it. None if there is no such job."""
        if self.missing:
            return []
        return reasons(self.now_ms, self.job, self.ahead, self.queue, self.shard, self.behind)


def reasons(
    now_ms: int,
    job: JobInfo | None,
    ahead: JobsAhead | None,
    queue: QueueFacts,
    shard: ShardFacts,
    behind: BehindKey | BehindFormer | None = None,
) -> list[Reason]:
    """What the job waits for, what an operator has to change first; or how it ended, or who runs it. Never empty.

    `job` is None if its shard is unreachable; `ahead` if that is not known.
    """
    found = list(_reasons(now_ms, job, ahead, queue, shard, behind))
    if shard.drains:
        text = f"Its shard {shard.name} drains: it gets no new jobs, and workers still get those that it has."
        found.append(Reason("shard_drains", text, "its shard drains", {"shard": shard.name}))
    return found


def _reasons(
    now_ms: int,
    job: JobInfo | None,
    ahead: JobsAhead | None,
    queue: QueueFacts,
    shard: ShardFacts,
    behind: BehindKey | BehindFormer | None,
) -> Iterator[Reason]:
    if job is None:
        text = f"Its shard {shard.name} is unreachable, and nothing more is known of the job."
        yield Reason("shard_unreachable", text, "its shard is unreachable", {"shard": shard.name})
        if queue.paused:
            yield _paused(queue, now_ms)
    elif job.state is JobState.PENDING and behind is not None:
        yield from [_paused(queue, now_ms)] if queue.paused else []
        yield _behind_key(job, behind) if isinstance(behind, BehindKey) else _behind_former(behind)
    elif job.state is JobState.PENDING:
        yield from _waiting(now_ms, job, ahead, queue)
    elif job.state is JobState.IN_PROGRESS:
        yield _claimed(job, now_ms)
    elif job.state is JobState.SUCCEEDED:
        yield Reason("succeeded", "It has succeeded.", "succeeded")
    else:
        yield _failed(job, now_ms)


def _waiting(now_ms: int, job: JobInfo, ahead: JobsAhead | None, queue: QueueFacts) -> Iterator[Reason]:
    later = not_due(job, now_ms)
    found = [_paused(queue, now_ms) if queue.paused else None, later, _of_limit(queue), _of_workers(queue, now_ms)]
    known = [reason for reason in found if reason is not None]
    yield from known
    if ahead is not None and ahead.jobs:
        due_in_ms = 0 if later is None else (job.run_after_ms or 0) - now_ms
        yield _behind(ahead, queue, due_in_ms, _idle_now(queue, now_ms))
    elif not known:
        yield _next(queue, now_ms)


def known_to_store(now_ms: int, job: JobInfo, queue: QueueFacts) -> list[Reason]:
    """What an unfinished job waits for, or who runs it, as far as its store tells that, which knows no workers. Empty for a job that is due
    in a queue that is neither paused nor stopped."""
    if job.state is JobState.IN_PROGRESS:
        return [_claimed(job, now_ms)]
    stopped = _of_limit(queue._replace(claimed_per_second=0.0, next_slot_ms=None))
    found = [_paused(queue, now_ms) if queue.paused else None, not_due(job, now_ms), stopped]
    return [reason for reason in found if reason is not None]


def not_due(job: JobInfo, now_ms: int) -> Reason | None:
    """Why a waiting job is not due yet; None for one that is, and for others.

    The server does not record why a job was put off without an attempt that counts.
    """
    due_at_ms = job.run_after_ms
    if job.state is not JobState.PENDING or due_at_ms is None or due_at_ms <= now_ms:
        return None
    left_ms = due_at_ms - now_ms
    due, left = f"until {_at(due_at_ms)}, in {span(left_ms)}", span(left_ms)
    figures: dict[str, Figure] = {"due_at_ms": due_at_ms, "due_in_ms": left_ms}
    if was_put_off(job):
        ago_ms = max(0, now_ms - (job.updated_at_ms or 0))
        text = f"It was put off {span(ago_ms)} ago without an attempt, and is not due {due}."
        brief = f"put off {span(ago_ms)} ago without an attempt, due in {left}"
        return Reason("not_due", text, brief, {**figures, "put_off_at_ms": job.updated_at_ms or 0})
    if job.attempts:
        latest = job.attempts[-1]
        words = f"Attempt {latest.number} ended ({latest.outcome.replace('_', ' ')})"
        text = f"{words}, and its retry is not due {due}."
        return Reason("not_due", text, f"retry in {left}", {**figures, "ended_attempt": latest.number})
    return Reason("not_due", f"It is not due {due}.", f"due in {left}", figures)


def was_put_off(job: JobInfo) -> bool:
    """Whether a waiting job's latest change was neither its enqueue nor the end of an attempt."""
    changed_ms = job.updated_at_ms or 0
    return changed_ms > max(job.created_at_ms, *(attempt.ended_at_ms for attempt in job.attempts), 0)


def _paused(queue: QueueFacts, now_ms: int) -> Reason:
    figures: dict[str, Figure] = {}
    text = "The queue is paused"
    if queue.paused_by:
        text += f" by {queue.paused_by}"
        figures["paused_by"] = queue.paused_by
    if queue.paused_at_ms is not None:
        text += f", since {_at(queue.paused_at_ms)}, for {span(now_ms - queue.paused_at_ms)}"
        figures["paused_at_ms"] = queue.paused_at_ms
    return Reason("paused", f"{text}.", "the queue is paused", figures)


def _of_limit(queue: QueueFacts) -> Reason | None:
    limit = queue.max_jobs_per_second
    if limit is None or queue.paused:
        return None
    if limit == 0:
        text = "The rate limit of the queue is 0, which stops dequeues."
        return Reason("stopped", text, "the rate limit is 0", {"max_jobs_per_second": 0.0})
    figures: dict[str, Figure] = {"max_jobs_per_second": limit, "claimed_per_second": queue.claimed_per_second}
    text = f"The rate limit allows {_rate(limit)}."
    if queue.next_slot_ms is not None:
        figures["next_slot_ms"] = queue.next_slot_ms
        return Reason(
            "rate_limit", f"{text} This server hands out the next in {span(queue.next_slot_ms)}.", "rate limit", figures
        )
    if queue.claimed_per_second < AT_ITS_LIMIT * limit:
        return None
    text = f"{text} In the last minute, {_rate(queue.claimed_per_second)} were claimed."
    return Reason("rate_limit", text, "rate limit", figures)


def _of_workers(queue: QueueFacts, now_ms: int) -> Reason | None:
    """None if workers ask for jobs, as far as is known. Requests count while a queue is paused or limited, too."""
    asked_at_ms = queue.last_dequeue_at_ms
    asked_lately = asked_at_ms is not None and now_ms - asked_at_ms <= ASKED_LATELY_MS
    if queue.waiting_dequeues or queue.claimed_per_second or asked_lately:
        return None
    figures: dict[str, Figure] = {"running": queue.running, "servers": queue.servers}
    if asked_at_ms is None:
        started = span(now_ms - queue.server_started_at_ms)
        last = f"None has asked this server since its start {started} ago."
        if queue.servers_asked > 1:
            last = f"None has asked these {queue.servers_asked} servers since the last of them started {started} ago."
        figures["server_started_at_ms"] = queue.server_started_at_ms
    else:
        last = f"The last one asked {_here(queue)} {span(now_ms - asked_at_ms)} ago."
        figures["last_dequeue_at_ms"] = asked_at_ms
    if queue.servers > queue.servers_asked:
        last += f" {_shared(queue)}, and each knows only the workers that ask it."
    if queue.running:
        text = f"No worker asks for jobs of the queue; {counted(queue.running, 'job')} of it {_are(queue.running)} claimed. {last}"
        return Reason("workers_busy", text, "no worker asks for more jobs", figures)
    return Reason("no_worker", f"No worker asks for jobs of the queue. {last}", "no worker", figures)


def _next(queue: QueueFacts, now_ms: int) -> Reason:
    text = "It is due and comes first: the next request of a worker gets it."
    asked_at_ms = queue.last_dequeue_at_ms
    if queue.waiting_dequeues or asked_at_ms is None:
        return Reason("next", text, "comes first")
    ago = span(now_ms - asked_at_ms)
    if queue.servers > queue.servers_asked:
        text = f"{text} No worker waits for it at {_asked(queue)} now. The last one asked {ago} ago; {_shared(queue)}."
    else:
        text = f"{text} No worker waits for it now. The last one asked {_here(queue)} {ago} ago."
    return Reason("next", text, "comes first", {"last_dequeue_at_ms": asked_at_ms})


def _idle_now(queue: QueueFacts, now_ms: int) -> str:
    """A sentence if workers have asked lately and do not ask now, so they may be gone, whatever was claimed in the last minute."""
    asked_at_ms = queue.last_dequeue_at_ms
    if queue.waiting_dequeues or asked_at_ms is None or not ASKS_NOW_MS <= now_ms - asked_at_ms <= ASKED_LATELY_MS:
        return ""
    ago = span(now_ms - asked_at_ms)
    if queue.servers > queue.servers_asked:
        return f"No worker asks {_asked(queue)} now: the last one asked {ago} ago; {_shared(queue)}."
    return f"No worker asks now: the last one asked {_here(queue)} {ago} ago."


def _asked(queue: QueueFacts) -> str:
    return "this server" if queue.servers_asked == 1 else f"these {queue.servers_asked} servers"


def _shared(queue: QueueFacts) -> str:
    return f"{queue.servers} servers share the shards"


def _here(queue: QueueFacts) -> str:
    return "this server" if queue.servers_asked == 1 else f"one of the {queue.servers_asked} servers"


def _behind(ahead: JobsAhead, queue: QueueFacts, due_in_ms: int, idle_now: str) -> Reason:
    figures: dict[str, Figure] = {
        "jobs_ahead": ahead.jobs,
        "at_least": ahead.at_least,
        "incomplete": ahead.incomplete,
        "claimed_per_second": queue.claimed_per_second,
    }
    many = counted(ahead.jobs, "job")
    text = f"{'At least ' if ahead.at_least else ''}{many} {'comes' if ahead.jobs == 1 else 'come'} before it."
    stopped = queue.paused or queue.max_jobs_per_second == 0  # until an operator changes that, no time can be told
    pace = None if stopped else _pace(queue)
    if pace is not None:
        turn_in_ms = max(due_in_ms, pace.starts_in_ms + round(1000 * ahead.jobs / pace.per_second))
        figures["turn_in_ms"] = turn_in_ms
        comes = "its turn comes in more than" if ahead.at_least else "its turn comes in about"
        text = f"{text} At {_rate(pace.per_second)}, {pace.source}, {comes} {span(turn_in_ms)}."
    elif not stopped:
        few = "Hardly any job" if queue.claimed_per_second else "No job"
        text = f"{text} {few} was claimed in the last minute, so no time can be told."
    if idle_now:
        text = f"{text} {idle_now}"
    if ahead.incomplete:
        text += " A shard is unreachable, and its jobs are not counted."
    return Reason("behind", text, f"behind {'at least ' if ahead.at_least else ''}{many}", figures)


def _behind_key(job: JobInfo, behind: BehindKey) -> Reason:
    """Nothing else counts until the first of the key has ended."""
    at_least = behind.jobs >= _AHEAD_IN_KEY_MAX
    many = f"{'at least ' if at_least else ''}{counted(behind.jobs, 'job')}"
    text = (
        f"It waits behind {behind.first}, the first job of its ordering key {job.ordering_key!r}: {many} of the key "
        f"{'comes' if behind.jobs == 1 else 'come'} before it. It is due once these have ended. If the first one has failed, it has "
        "stopped its key: retry it, delete it, or unblock the key (pinlater queue unblock)."
    )
    figures: dict[str, Figure] = {"first": behind.first, "jobs_ahead": behind.jobs, "at_least": at_least}
    return Reason("behind_key", text, f"behind {many} of its ordering key", figures)


def _behind_former(behind: BehindFormer) -> Reason:
    """Nothing else counts until that shard has none left."""
    where = f"shard {behind.shard}, where the jobs with ordering keys of its queue went before"
    figures: dict[str, Figure] = {"shard": behind.shard}
    if behind.jobs is None:
        text = f"It waits for those on {where}; that shard can't be asked how many it still has."
        return Reason("behind_former", text, f"behind jobs on shard {behind.shard}", figures)
    at_least = behind.jobs >= _AHEAD_IN_KEY_MAX
    many = f"{'at least ' if at_least else ''}{counted(behind.jobs, 'job')}"
    figures |= {"jobs_ahead": behind.jobs, "at_least": at_least}
    text = f"It waits for {many} on {where}. It is due once these have ended."
    return Reason("behind_former", text, f"behind {many} on shard {behind.shard}", figures)


class _Pace(NamedTuple):
    """How fast the jobs of a queue are handed out. `source`: what tells that. `starts_in_ms`: until the first."""

    per_second: float
    source: str
    starts_in_ms: int = 0


def _pace(queue: QueueFacts) -> _Pace | None:
    """None if neither a rate limit nor the claims of the last minute tell it."""
    claimed, limit = queue.claimed_per_second, queue.max_jobs_per_second
    if limit is not None and queue.next_slot_ms is not None and queue.waiting_dequeues:
        return _Pace(limit, "the rate limit", queue.next_slot_ms)
    if claimed < FEW_CLAIMS_PER_SECOND:
        return None
    if limit is not None and limit < claimed:
        return _Pace(limit, "the rate limit")
    return _Pace(claimed, "as all servers claimed in the last minute")


def _claimed(job: JobInfo, now_ms: int) -> Reason:
    holder = source_of_claim(job.claim_descriptor or "") or job.claim_descriptor or "A worker"
    figures: dict[str, Figure] = {"holder": holder} if job.claim_descriptor else {}
    ends_at_ms = job.claim_deadline_ms
    if ends_at_ms is None:
        return Reason("claimed", f"{holder} has claimed it.", f"claimed by {holder}", figures)
    figures["claim_deadline_at_ms"] = ends_at_ms
    if ends_at_ms > now_ms:
        text = f"{holder} has claimed it until {_at(ends_at_ms)}, for another {span(ends_at_ms - now_ms)}."
    else:
        text = f"The claim of {holder} ended {span(now_ms - ends_at_ms)} ago; a server is about to end the attempt."
    return Reason("claimed", text, f"claimed by {holder}", figures)


def _failed(job: JobInfo, now_ms: int) -> Reason:
    """A claim that timed out leaves no error with the job, so the text tells it."""
    rest = "and does not run again by itself."
    latest = job.attempts[-1] if job.attempts else None
    cause = given_up(job.custom_status, job.finished_at_ms, latest)
    if cause:
        how = "was cancelled" if cause == STATUS_CANCELLED else "expired while it waited"
        if job.finished_at_ms is None:
            return Reason(cause, f"It {how}, {rest}", cause)
        ago = span(now_ms - job.finished_at_ms)
        return Reason(cause, f"It {how}, {ago} ago, {rest}", cause, {"finished_at_ms": job.finished_at_ms})
    text = f"It has failed, {rest}"
    if job.error_type == QUARANTINED and latest is not None and latest.outcome == TIMED_OUT:
        text = f"It is quarantined, {rest} {job.error_text[:1].upper()}{job.error_text[1:]}.{_lost_workers(job)}"
        return Reason("quarantined", text, "quarantined", {"ended_attempt": latest.number})
    if latest is None or latest.outcome != TIMED_OUT:
        return Reason("failed", text, "failed")
    text = f"{text} Attempt {latest.number}, its last, timed out: its worker neither ended it nor renewed the claim."
    return Reason("failed", text, "failed", {"ended_attempt": latest.number})


def _lost_workers(job: JobInfo) -> str:
    """A sentence with the workers of the attempts that timed out last."""
    latest = takewhile(lambda attempt: attempt.outcome == TIMED_OUT, reversed(job.attempts))
    workers = list(dict.fromkeys(source_of_claim(attempt.claimed_by) or attempt.claimed_by for attempt in latest))
    shown = [worker for worker in workers if worker][:_WORKERS_SHOWN]
    return f" Its last workers: {', '.join(reversed(shown))}." if shown else ""


def _at(at_ms: int) -> str:
    return moment(at_ms, "seconds")


def _rate(per_second: float) -> str:
    if per_second < 0.1:
        return f"{per_second:.2g} jobs a second"
    number = f"{per_second:,.1f}".removesuffix(".0") if per_second < 100 else f"{per_second:,.0f}"
    return f"{number} job{'' if number == '1' else 's'} a second"


def _are(number: int) -> str:
    return "is" if number == 1 else "are"
