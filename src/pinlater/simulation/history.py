"""What clients saw, in the order of one machine's clock, and what it proves about the service.

A call is two records: when it was sent, and when its answer arrived; a call whose answer never arrived has only the first, and then both
"it happened" and "it didn't" are possible. `check` reports a violation only if no order of the possible grants could have been right, so
each one is real. It uses only the clients' records and the lookups at the end; the server's log does not count as evidence.

Times are `time.monotonic_ns`, which all processes of a machine share, or a simulation's. A claim counts as held from the earliest instant
at which it can have been granted: its timeout before the deadline in its answer, if the client recorded that, else the moment the call
was sent. Weakness: without the deadline, `check` misses a second hand-out at the end of a long call; with the deadline, it misses one
within `CLOCKS_NS` of it.

Three more things `check` does not find: that two acks of one claim counted, if one of them is a failure that leaves attempts, or a release;
that an operator's run counted although the job had not failed; and, of a failed job that was run again and so took the last place of its
key, that a job of a later place began before it.
"""

from __future__ import annotations

import itertools
import json
import math
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from pinlater.domain.descriptor import shard_of
from pinlater.domain.queue import STOP, TO_BACK, QueueConfig
from pinlater.simulation.key_order import PlacedJob, out_of_turn, side_by_side

NO_SETTINGS: Mapping[str, QueueConfig] = {}
_NOTHING_SET = QueueConfig()
PENDING, IN_PROGRESS, SUCCEEDED, FAILED = 0, 1, 2, 3
APPLIED, ALREADY_FINAL, STALE_CLAIM, NOT_FOUND = 0, 1, 2, 3
# By how much a server's clock, in which deadlines are given, may differ from the clients'.
CLOCKS_NS = 250_000_000


class SeenEnqueue(NamedTuple):
    """`descriptors` is None if no answer arrived. `ordering_keys`: those of the jobs, None for a job without; empty if no job has one."""

    started_ns: int
    ended_ns: int | None
    bodies: tuple[str, ...]
    descriptors: tuple[str, ...] | None
    ordering_keys: tuple[str | None, ...] = ()


class SeenClaim(NamedTuple):
    """One job of an answered dequeue. `timeout_ns` is the job's claim timeout, `until_ns` the claim's deadline according to the answer."""

    started_ns: int
    ended_ns: int
    worker: str
    descriptor: str
    token: str
    body: str
    timeout_ns: int
    until_ns: int | None = None

    @property
    def granted_ns(self) -> int:
        """The earliest instant at which it can have been granted. A long poll may have waited for most of its call."""
        if self.until_ns is None:
            return self.started_ns
        return max(self.started_ns, self.until_ns - self.timeout_ns - CLOCKS_NS)


class SeenAck(NamedTuple):
    """One job's ack, or its release. `outcome` is None if no answer arrived."""

    started_ns: int
    ended_ns: int | None
    descriptor: str
    token: str
    succeeded: bool
    outcome: int | None
    final: bool = False  # a failure that leaves no attempt

    @property
    def ends_job(self) -> bool:
        """Whether the job has ended if this counted."""
        return self.succeeded or self.final


class SeenHeartbeat(NamedTuple):
    """A heartbeat that was answered. With APPLIED the claim lasts its whole time from then on."""

    started_ns: int
    descriptor: str
    token: str
    outcome: int
    ended_ns: int | None = None


class SeenCancel(NamedTuple):
    """One job's cancelling. `outcome` is None if no answer arrived."""

    started_ns: int
    ended_ns: int | None
    descriptor: str
    outcome: int | None


class SeenUnblock(NamedTuple):
    """An operator unblocked a key that failed jobs had stopped. `ended_ns` is None if no answer arrived."""

    started_ns: int
    ended_ns: int | None
    queue: str
    key: str


class SeenRun(NamedTuple):
    """An operator made a failed job wait for a worker again. `outcome` is None where no answer came."""

    started_ns: int
    ended_ns: int | None
    descriptor: str
    outcome: int | None


class Delete(NamedTuple):
    """A queue's deletion with all its jobs. `ended_ns` is None if it was not answered, or with an error."""

    started_ns: int
    ended_ns: int | None
    queue: str


@dataclass(slots=True)
class History:
    """Everything the clients of a run saw."""

    enqueues: list[SeenEnqueue] = field(default_factory=list)
    claims: list[SeenClaim] = field(default_factory=list)
    acks: list[SeenAck] = field(default_factory=list)
    heartbeats: list[SeenHeartbeat] = field(default_factory=list)
    cancels: list[SeenCancel] = field(default_factory=list)
    deletes: list[Delete] = field(default_factory=list)
    unblocks: list[SeenUnblock] = field(default_factory=list)
    runs: list[SeenRun] = field(default_factory=list)

    def add(self, other: History) -> None:
        """Adds the records of another client."""
        self.enqueues += other.enqueues
        self.claims += other.claims
        self.acks += other.acks
        self.heartbeats += other.heartbeats
        self.cancels += other.cancels
        self.deletes += other.deletes
        self.unblocks += other.unblocks
        self.runs += other.runs

    def acknowledged(self) -> dict[str, str]:
        """Returns the body by descriptor, of every enqueue that was answered."""
        return {
            descriptor: body
            for enqueue in self.enqueues
            if enqueue.descriptors is not None
            for descriptor, body in zip(enqueue.descriptors, enqueue.bodies, strict=True)
        }

    def seen(self) -> set[str]:
        """Returns every descriptor that any client ever received."""
        return self.acknowledged().keys() | {claim.descriptor for claim in self.claims}

    def may_be_deleted(self) -> set[str]:
        """Jobs that were there, or may have been, when their queue was deleted."""
        if not self.deletes:
            return set()
        began: dict[str, int] = {}
        for enqueue in self.enqueues:
            began.update(dict.fromkeys(enqueue.descriptors or (), enqueue.started_ns))
        for claim in self.claims:
            began.setdefault(claim.descriptor, claim.started_ns)
        last: dict[str, float] = {}
        for delete in self.deletes:
            ended = math.inf if delete.ended_ns is None else delete.ended_ns
            last[delete.queue] = max(ended, last.get(delete.queue, 0))
        return {descriptor for descriptor, at in began.items() if at <= last.get(descriptor.split(":")[0], -1)}

    def may_be_cancelled(self) -> set[str]:
        """Jobs that were cancelled, or may have been: a client whose first attempt took effect gets ALREADY_FINAL at its second."""
        return {cancel.descriptor for cancel in self.cancels if cancel.outcome in (None, APPLIED, ALREADY_FINAL)}

    def may_have_failed(self) -> set[str]:
        """Returns the jobs that a worker may have given up after the last run of which an operator was told that it counted.

        Such a run ends the claims before it, so that only the holder of a later one can have given the job up since.
        """
        run_ns: dict[str, int] = {}
        for run in self.runs:
            if run.outcome == APPLIED:
                run_ns[run.descriptor] = max(run.started_ns, run_ns.get(run.descriptor, 0))
        given_up = {(ack.descriptor, ack.token) for ack in self.acks if ack.final and ack.outcome in (None, APPLIED)}
        return {
            claim.descriptor
            for claim in self.claims
            if (claim.descriptor, claim.token) in given_up and claim.ended_ns > run_ns.get(claim.descriptor, 0)
        }

    def has_failed(self) -> set[str]:
        """Returns the jobs that were surely given up or cancelled, and that no operator can have run again since."""
        return {end.descriptor for end in _ends(self) if end.state == FAILED and end.until_ns == math.inf}

    def runs_by_job(self) -> Mapping[str, Sequence[SeenRun]]:
        """Returns by descriptor the runs by operators that counted, or may have."""
        runs: defaultdict[str, list[SeenRun]] = defaultdict(list)
        for run in self.runs:
            if run.outcome in (None, APPLIED):
                runs[run.descriptor].append(run)
        return runs

    def counted_claims(self) -> set[tuple[str, str]]:
        """Returns the descriptors and tokens of the claims of which an ack surely counted."""
        return {(ack.descriptor, ack.token) for ack in self.acks if ack.outcome == APPLIED}

    def by_claim(self) -> dict[tuple[str, str], SeenClaim]:
        """Returns the claims by descriptor and token."""
        return {(claim.descriptor, claim.token): claim for claim in self.claims}


class PromiseKind(Enum):
    """The kinds of violations."""

    LOST = "an acknowledged enqueue is gone"
    REVERSED = "an acknowledged success or final failure was turned back"
    TWICE = "a job was handed out twice within its claim"
    STALE_APPLIED = "an ack counted although another worker held the job"
    STUCK = "a job never ended"
    GAVE_UP = "a job failed without a failed attempt"
    INVENTED = "a job was handed out that was not enqueued"
    DAMAGED = "a body came back changed"
    DOUBLED = "one enqueued job became two"
    DISORDERED = "a job was handed out before one that comes before it under its ordering key had ended"


class Violation(NamedTuple):
    """One broken promise."""

    kind: PromiseKind
    descriptor: str
    text: str = ""


def check(
    history: History,
    final: Mapping[str, int],
    *,
    failures_allowed: bool = False,
    slack_ns: int = 0,
    settings: Mapping[str, QueueConfig] = NO_SETTINGS,
) -> list[Violation]:
    """Returns every promise that the history shows broken. `final` is each descriptor's state at the end; missing ones were not found.

    Run it after everything was drained: a job that still waits counts as stuck. `slack_ns`: by how much the servers' clocks may have
    differed, so a claim may have ended that much earlier. `settings`: those of queues, which did not change meanwhile; a queue that is
    not in it has no settings.
    """
    return [
        *_check_final(history, final, failures_allowed),
        *_check_ends_stay(history, final),
        *_check_exclusive(history, slack_ns),
        *_check_stale_acks(history),
        *_check_bodies(history),
        *_check_order(history, final, settings, slack_ns),
    ]


def _check_final(history: History, final: Mapping[str, int], failures_allowed: bool) -> Iterable[Violation]:
    deleted, ended = history.may_be_deleted(), history.may_be_cancelled() | history.may_have_failed()
    for descriptor in history.acknowledged():
        state = final.get(descriptor)
        if state is None and descriptor not in deleted:
            yield Violation(PromiseKind.LOST, descriptor)
        elif state == FAILED and not failures_allowed and descriptor not in ended:
            yield Violation(PromiseKind.GAVE_UP, descriptor)
    for descriptor in history.seen():
        if final.get(descriptor) in (PENDING, IN_PROGRESS):
            yield Violation(PromiseKind.STUCK, descriptor, f"state {final[descriptor]} at the end")


class _End(NamedTuple):
    """A success, a final failure or a cancelling that was told to have counted."""

    descriptor: str
    state: int
    # When the claim that earned it was answered, or the cancelling.
    since_ns: int
    # When an operator can first have run the failed job again.
    until_ns: float


def _ends(history: History) -> Iterable[_End]:
    claims, runs = history.by_claim(), history.runs_by_job()

    def until_ns(end: SeenAck | SeenCancel) -> float:
        later = [run for run in runs.get(end.descriptor, ()) if run.ended_ns is None or run.ended_ns >= end.started_ns]
        return min((run.started_ns for run in later), default=math.inf)

    for ack in history.acks:
        if ack.ends_job and ack.outcome == APPLIED and ack.ended_ns is not None:
            mine = claims.get((ack.descriptor, ack.token))
            since_ns = mine.ended_ns if mine is not None else ack.ended_ns
            if ack.succeeded:
                yield _End(ack.descriptor, SUCCEEDED, since_ns, math.inf)
            else:
                yield _End(ack.descriptor, FAILED, since_ns, until_ns(ack))
    for cancel in history.cancels:
        if cancel.outcome == APPLIED and cancel.ended_ns is not None:
            yield _End(cancel.descriptor, FAILED, cancel.ended_ns, until_ns(cancel))


def _check_ends_stay(history: History, final: Mapping[str, int]) -> Iterable[Violation]:
    """Checks that a job ends once, stays as it ended, and is not handed out later than the claim that earned its end, or than it was
    cancelled. Only an operator's run changes this, and not after a success. So a job may end once more than it was run, and succeed once.

    A hand-out between that claim and its ack would have made the ack stale, so it is as wrong as one after the ack.
    """
    deleted, runs = history.may_be_deleted(), history.runs_by_job()
    claims: defaultdict[str, list[SeenClaim]] = defaultdict(list)
    for claim in history.claims:
        claims[claim.descriptor].append(claim)
    ends = list(_ends(history))
    ended = Counter(end.descriptor for end in ends)
    succeeded = Counter(end.descriptor for end in ends if end.state == SUCCEEDED)
    for descriptor, times in ended.items():
        if times > 1 + len(runs.get(descriptor, ())) or succeeded[descriptor] > 1:
            yield Violation(PromiseKind.REVERSED, descriptor, "it ended more than once")
    for end in ends:
        descriptor, state = end.descriptor, final.get(end.descriptor)
        for claim in claims[descriptor]:
            if end.since_ns < claim.granted_ns and claim.ended_ns < end.until_ns:
                yield Violation(PromiseKind.REVERSED, descriptor, f"handed out again, to {claim.worker}")
        if end.until_ns == math.inf and state != end.state and not (state is None and descriptor in deleted):
            yield Violation(PromiseKind.REVERSED, descriptor, f"state {state} at the end")


def _given_back(history: History) -> dict[tuple[str, str], int]:
    """Returns by (descriptor, token) when its holder first asked for the job to go back, answered or not. A success never gives it
    back."""
    ends: dict[tuple[str, str], int] = {}
    for ack in history.acks:
        if not ack.succeeded:
            key = ack.descriptor, ack.token
            ends[key] = min(ack.started_ns, ends.get(key, ack.started_ns))
    return ends


def _renewed(history: History) -> dict[tuple[str, str], int]:
    """Returns by (descriptor, token) when the latest heartbeat that surely renewed the claim was sent."""
    latest: dict[tuple[str, str], int] = {}
    for heartbeat in history.heartbeats:
        if heartbeat.outcome == APPLIED:
            key = heartbeat.descriptor, heartbeat.token
            latest[key] = max(heartbeat.started_ns, latest.get(key, 0))
    return latest


def _by_job(claims: Sequence[SeenClaim]) -> Iterable[Sequence[SeenClaim]]:
    jobs: defaultdict[str, list[SeenClaim]] = defaultdict(list)
    for claim in claims:
        jobs[claim.descriptor].append(claim)
    return (group for group in jobs.values() if len(group) > 1)


def _check_exclusive(history: History, slack_ns: int) -> Iterable[Violation]:
    """Checks that of two claims of a job, one can have ended before the other was granted."""
    ends, renewed = _given_back(history), _renewed(history)

    def may_end(claim: SeenClaim) -> int:
        key = claim.descriptor, claim.token
        timed_out = max(claim.granted_ns, renewed.get(key, 0)) + claim.timeout_ns - slack_ns
        return min(timed_out, ends.get(key, timed_out))

    for group in _by_job(history.claims):
        for one, other in itertools.combinations(group, 2):
            one_first = may_end(one) <= other.ended_ns and one.granted_ns <= other.ended_ns
            other_first = may_end(other) <= one.ended_ns and other.granted_ns <= one.ended_ns
            if not (one_first or other_first):
                yield Violation(PromiseKind.TWICE, one.descriptor, f"by {one.worker} and {other.worker}")


def _check_stale_acks(history: History) -> Iterable[Violation]:
    """Checks that an ack does not count once another claim of the job was certainly granted after its own."""
    claims = history.by_claim()
    groups = {group[0].descriptor: group for group in _by_job(history.claims)}
    for ack in history.acks:
        mine = claims.get((ack.descriptor, ack.token))
        if mine is None or ack.outcome != APPLIED:
            continue
        for other in groups.get(ack.descriptor, ()):
            if other.token != mine.token and other.granted_ns > mine.ended_ns and other.ended_ns < ack.started_ns:
                yield Violation(
                    PromiseKind.STALE_APPLIED, ack.descriptor, f"{mine.worker}'s ack, while {other.worker} held it"
                )


def _check_bodies(history: History) -> Iterable[Violation]:
    """Bodies are unique in a run, so a body names the enqueue that made it. A request key is deleted with its queue, so a repeat of an
    enqueue whose queue was deleted stores new jobs."""
    deleted = history.may_be_deleted()
    sent = {body for enqueue in history.enqueues for body in enqueue.bodies}
    acknowledged = history.acknowledged()
    home = {body: descriptor for descriptor, body in acknowledged.items()}
    for claim in history.claims:
        if claim.body not in sent:
            yield Violation(PromiseKind.INVENTED, claim.descriptor, claim.body[:80])
        elif acknowledged.get(claim.descriptor, claim.body) != claim.body:
            yield Violation(PromiseKind.DAMAGED, claim.descriptor, claim.body[:80])
        elif home.setdefault(claim.body, claim.descriptor) != claim.descriptor and home[claim.body] not in deleted:
            yield Violation(PromiseKind.DOUBLED, claim.descriptor, f"also {home[claim.body]}")


def _check_order(
    history: History, final: Mapping[str, int], settings: Mapping[str, QueueConfig], slack_ns: int
) -> Iterable[Violation]:
    """Checks that the jobs of a key begin in the order of their places, and that no more of them are in hand at a time than their queue
    allows, from the first hand-out of each until it ends or takes another place.

    The home of a queue moves only when the former one has no live job left. So a job never begins while one of its key is live on another
    shard, whatever the queue allows, and a job that goes to the end of its key there still comes first.

    Jobs that do not exist at the end do not count.
    """
    leaves = _places_left(history, settings)
    for (queue, _), jobs in _by_ordering_key(history, final, leaves, slack_ns).items():
        most = settings.get(queue, _NOTHING_SET).max_in_hand_per_key or 1
        on_shard: defaultdict[str, list[PlacedJob]] = defaultdict(list)
        for job in jobs:
            on_shard[shard_of(job.descriptor)].append(job)
        for here in on_shard.values():
            for early in [*out_of_turn(here), *side_by_side(here)]:
                if len(early.others) >= most:
                    yield Violation(PromiseKind.DISORDERED, early.descriptor, f"{early.how} {early.others[-1]}")
    final_leaves = {
        job: {token: leave for token, leave in by_token.items() if leave.final} for job, by_token in leaves.items()
    }
    for jobs in _by_ordering_key(history, final, final_leaves, slack_ns).values():
        for early in [*out_of_turn(jobs), *side_by_side(jobs)]:
            elsewhere = [other for other in early.others if shard_of(other) != shard_of(early.descriptor)]
            if elsewhere:
                yield Violation(
                    PromiseKind.DISORDERED, early.descriptor, f"{early.how} {elsewhere[-1]}, on another shard"
                )


def _by_ordering_key(
    history: History,
    final: Mapping[str, int],
    leaves: Mapping[tuple[str, str | None], Mapping[str, _Leave]],
    slack_ns: int,
) -> dict[tuple[str, str], list[PlacedJob]]:
    """Returns by queue and key the jobs with the places that they took, those of one request in the order of its list."""
    places = {claim.body: claim.descriptor for claim in history.claims}
    places |= {body: descriptor for descriptor, body in history.acknowledged().items()}
    claims, ended_ns = _claims_in_order(history, slack_ns), _ended_ns(history)
    found: defaultdict[tuple[str, str], list[PlacedJob]] = defaultdict(list)
    for number, enqueue in enumerate(history.enqueues):
        for body, key in zip(enqueue.bodies, enqueue.ordering_keys, strict=False):
            descriptor = places.get(body)
            if key is not None and descriptor is not None and descriptor in final:
                place = _KeyPlace(enqueue.started_ns, math.inf if enqueue.ended_ns is None else enqueue.ended_ns)
                found[descriptor.partition(":")[0], key] += _stays(
                    PlacedJob(descriptor, number, *place, math.inf, ended_ns.get(descriptor, math.inf)),
                    claims.get(descriptor, ()),
                    leaves.get((descriptor, key), {}),
                )
    return found


def _claims_in_order(history: History, slack_ns: int) -> Mapping[str, Sequence[SeenClaim]]:
    """Returns by job its claims in the order of their answers, without those that were answered after a later one.

    Only a claim that had timed out before the next one was granted can be answered after that one. No ack of such a claim counts.
    """
    claims: defaultdict[str, list[SeenClaim]] = defaultdict(list)
    counted = history.counted_claims()
    for claim in sorted(history.claims, key=lambda one: one.ended_ns):
        before = claims[claim.descriptor]
        timed_out_ns = claim.granted_ns + claim.timeout_ns - slack_ns
        if not before or timed_out_ns > before[-1].ended_ns or (claim.descriptor, claim.token) in counted:
            before.append(claim)
    return claims


def _may_have_counted(history: History) -> Iterable[SeenAck | SeenCancel]:
    """Returns the acks and cancels that may have counted, each as if it had been sent at the earliest instant at which it can have.

    A claim ends once, and so does a job that no operator can have run again: if one of its ends was told to have counted, those of unknown
    outcome did not. A heartbeat that counted came before the end of its claim.
    """
    ended_once = {end.descriptor for end in _ends(history)} - history.runs_by_job().keys()
    counted, renewed = history.counted_claims(), _renewed(history)
    for ack in history.acks:
        claim = ack.descriptor, ack.token
        another = claim in counted or (ack.ends_job and ack.descriptor in ended_once)
        if ack.outcome == APPLIED or (ack.outcome in (None, ALREADY_FINAL) and not another):
            yield ack._replace(started_ns=max(ack.started_ns, renewed.get(claim, 0)))
    for cancel in history.cancels:
        another = cancel.descriptor in ended_once
        if cancel.outcome == APPLIED or (cancel.outcome in (None, ALREADY_FINAL) and not another):
            yield cancel


def _ended_ns(history: History) -> Mapping[str, int]:
    """Returns by job the earliest instant at which it can have succeeded or been cancelled."""
    ended_ns: dict[str, int] = {}
    for end in _may_have_counted(history):
        if isinstance(end, SeenCancel) or end.succeeded:
            ended_ns[end.descriptor] = min(end.started_ns, ended_ns.get(end.descriptor, end.started_ns))
    return ended_ns


class _KeyPlace(NamedTuple):
    """The earliest and the latest instant at which a job can have taken its place."""

    since_ns: int
    placed_ns: float


class _Leave(NamedTuple):
    """How a job gives its place up by a failure."""

    # The earliest instant at which that can have been.
    at_ns: int
    # The place that it takes then. None: not known.
    next: _KeyPlace | None
    # Whether the job ends with that, unless an operator runs it again.
    final: bool


def _places_left(
    history: History, settings: Mapping[str, QueueConfig]
) -> dict[tuple[str, str | None], dict[str, _Leave]]:
    """Returns for jobs and their keys the places that they may have given up by failures, by the token of the claim."""
    failures: defaultdict[tuple[str, str], list[SeenAck]] = defaultdict(list)
    for ack in _may_have_counted(history):
        if isinstance(ack, SeenAck) and not ack.succeeded and ack.outcome != ALREADY_FINAL:
            failures[ack.descriptor, ack.token].append(ack)
    keys = {
        descriptor: key
        for enqueue in history.enqueues
        for descriptor, key in zip(enqueue.descriptors or (), enqueue.ordering_keys, strict=False)
    }
    runs = history.runs_by_job()
    found: defaultdict[tuple[str, str | None], dict[str, _Leave]] = defaultdict(dict)
    for (descriptor, token), acks in failures.items():
        queue, key = descriptor.partition(":")[0], keys.get(descriptor)
        config = settings.get(queue, _NOTHING_SET)
        at_ns = min(ack.started_ns for ack in acks)
        counted_ns = min((ack.ended_ns or 0 for ack in acks if ack.outcome == APPLIED), default=None)
        if acks[0].final and config.after_failure != STOP:
            found[descriptor, key][token] = _Leave(at_ns, None, final=True)
        elif acks[0].final:
            back_ns = math.inf if counted_ns is None else _back_ns(runs.get(descriptor, ()), counted_ns)
            let_go = [
                one.started_ns
                for one in history.unblocks
                if (one.queue, one.key) == (queue, key)
                and (one.ended_ns is None or one.ended_ns >= at_ns)
                and one.started_ns <= back_ns
            ]
            if let_go:
                found[descriptor, key][token] = _Leave(max(at_ns, min(let_go)), None, final=True)
        elif config.retry_place == TO_BACK:
            place = None if counted_ns is None else _KeyPlace(at_ns, counted_ns)
            found[descriptor, key][token] = _Leave(at_ns, place, final=False)
    return found


def _back_ns(runs: Iterable[SeenRun], failed_ns: int) -> float:
    """Returns when a run had surely put the job that had failed by `failed_ns` back in its place, so that its key did not stop any more."""
    return min(
        (run.ended_ns for run in runs if run.ended_ns is not None and run.started_ns >= failed_ns), default=math.inf
    )


def _stays(job: PlacedJob, claims: Sequence[SeenClaim], leaves: Mapping[str, _Leave]) -> Iterable[PlacedJob]:
    """Returns the job once for each place that it took. `job`: its first one, as if it had not begun. A place that it would have left
    after it was handed out again is still its own."""
    first = job
    for claim, following in itertools.zip_longest(claims, claims[1:]):
        job = job._replace(begun_ns=min(job.begun_ns, claim.ended_ns))
        leave = leaves.get(claim.token)
        if leave is not None and (following is None or leave.at_ns <= following.ended_ns):
            yield job._replace(ended_ns=min(job.ended_ns, leave.at_ns))
            place = leave.next or _KeyPlace(int(first.since_ns), math.inf)
            job = first._replace(request=None, since_ns=place.since_ns, placed_ns=place.placed_ns)
    yield job


Record = dict[str, Any]
"""One line: a call has the key `call`; its answer has the same `n`."""


class HistoryRecorder:
    """Records a client's calls as they happen; threads may share it.

    With a file, each line is written before the call continues, so that the actions of a killed worker are known up to its end.
    """

    def __init__(self, path: Path | None = None, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._now_ns = now_ns
        self._lock = threading.Lock()
        self._lines: list[str] = []
        self._file: TextIO | None = path.open("a", encoding="utf-8") if path is not None else None
        self._numbers = itertools.count()

    def call(self, kind: str, **facts: object) -> int:
        """Records that a call is about to be sent; returns its number for `answer`."""
        number = next(self._numbers)
        self._write({"n": number, "at": self._now_ns(), "call": kind, **facts})
        return number

    def answer(self, number: int, **facts: object) -> None:
        self._write({"n": number, "at": self._now_ns(), **facts})

    def close(self) -> None:
        """Closes the file, if there is one."""
        if self._file is not None:
            self._file.close()

    def _write(self, record: Record) -> None:
        line = json.dumps(record)
        with self._lock:
            if self._file is None:
                self._lines.append(line)
            else:
                self._file.write(line + "\n")
                self._file.flush()

    def lines(self, first: int = 0) -> list[str]:
        """Returns the lines that were recorded in memory so far, from a line on."""
        with self._lock:
            return self._lines[first:]

    def history(self) -> History:
        """Returns the same lines, parsed."""
        return read_history(self.lines())


def read_history(lines: Iterable[str]) -> History:
    """Pairs calls with answers. A last line that its writer did not finish is left out: nothing is known from it."""
    calls: dict[int, Record] = {}
    answers: dict[int, Record] = {}
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        (calls if "call" in record else answers)[record["n"]] = record
    history = History()
    for number, call in calls.items():
        _ADD[str(call["call"])](history, call, answers.get(number))
    return history


def _add_enqueue(history: History, call: Record, answer: Record | None) -> None:
    descriptors = tuple(answer["descriptors"]) if answer else None
    ended_ns = answer["at"] if answer else None
    ordering_keys = tuple(call.get("ordering_keys", ()))
    history.enqueues.append(SeenEnqueue(call["at"], ended_ns, tuple(call["bodies"]), descriptors, ordering_keys))


def _add_claims(history: History, call: Record, answer: Record | None) -> None:
    """Adds claims. A job's body may be followed by the number of milliseconds that the claim still held when its answer came."""
    for descriptor, token, body, *held_ms in answer["jobs"] if answer else ():
        timeout_ns = call["timeout_ms"] * 1_000_000
        assert answer is not None
        until_ns = answer["at"] + held_ms[0] * 1_000_000 if held_ms else None
        history.claims.append(
            SeenClaim(call["at"], answer["at"], call["worker"], descriptor, token, body, timeout_ns, until_ns)
        )


def _add_acks(history: History, call: Record, answer: Record | None) -> None:
    acks = call["acks"]
    ended_ns = answer["at"] if answer else None
    outcomes = answer["outcomes"] if answer else [None] * len(acks)
    for (descriptor, token, succeeded, *final), outcome in zip(acks, outcomes, strict=True):
        history.acks.append(SeenAck(call["at"], ended_ns, descriptor, token, succeeded, outcome, any(final)))


def _add_heartbeat(history: History, call: Record, answer: Record | None) -> None:
    if answer:
        history.heartbeats.append(
            SeenHeartbeat(call["at"], call["descriptor"], call["token"], answer["outcome"], answer["at"])
        )


def _add_cancel(history: History, call: Record, answer: Record | None) -> None:
    ended_ns, outcome = (answer["at"], answer["outcome"]) if answer else (None, None)
    history.cancels.append(SeenCancel(call["at"], ended_ns, call["descriptor"], outcome))


def _add_delete(history: History, call: Record, answer: Record | None) -> None:
    history.deletes.append(Delete(call["at"], answer["at"] if answer else None, call["queue"]))


def _add_unblock(history: History, call: Record, answer: Record | None) -> None:
    ended_ns = answer["at"] if answer else None
    history.unblocks.append(SeenUnblock(call["at"], ended_ns, call["queue"], call["key"]))


def _add_run(history: History, call: Record, answer: Record | None) -> None:
    ended_ns, outcome = (answer["at"], answer["outcome"]) if answer else (None, None)
    history.runs.append(SeenRun(call["at"], ended_ns, call["descriptor"], outcome))


_ADD = {
    "enqueue": _add_enqueue,
    "claim": _add_claims,
    "ack": _add_acks,
    "heartbeat": _add_heartbeat,
    "cancel": _add_cancel,
    "delete": _add_delete,
    "unblock": _add_unblock,
    "run": _add_run,
}
