"""One job as the model keeps it, and what it shows of it. The only mutable thing that a job is anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pinlater.domain.job import Attempt, HandedOutJob, Holder, JobState, UniqueKey, progress_of
from pinlater.domain.transitions import MYSQL_STATUS, StatusRule
from pinlater.server.storage.options import BEHIND_MS, NONE
from pinlater.server.storage.values import JobKey, NewJob
from pinlater.wire.generated import structs
from pinlater.wire.generated.structs import JobInfo


@dataclass(slots=True)
class HeldClaim:
    """A claim and its holder. `timeout_ms` is the job's own, or the queue's at the time of the claim; renewals use it again."""

    holder: Holder
    at_ms: int
    timeout_ms: int
    deadline_ms: int


@dataclass(slots=True)
class ModelJob:
    """A job. `attempts_ended` counts all that ended otherwise than by success or release, so the next one's number is one more."""

    id: int
    queue: str
    priority: int
    body: bytes
    run_after_ms: int
    attempts_allowed: int
    attempts_remaining: int
    custom_status: str
    headers: Mapping[str, str] | None
    unique: UniqueKey | None
    claim_timeout_ms: int | None
    expires_at_ms: int | None
    ordering_key: str | None
    created_at_ms: int
    updated_at_ms: int
    state: JobState = JobState.PENDING
    claim: HeldClaim | None = None
    last_claim_descriptor: str | None = None
    finished_at_ms: int | None = None
    error_type: str = ""
    error_text: str = ""
    attempts_ended: int = 0
    attempts: list[Attempt] = field(default_factory=list)
    status_rule: StatusRule = MYSQL_STATUS
    number: int = 0  # its place among the jobs of its ordering key
    is_behind: bool = False  # it waits behind others of its key

    @classmethod
    def of(cls, queue: str, new: NewJob, now_ms: int, rule: StatusRule = MYSQL_STATUS) -> ModelJob:
        """The record of a job that is stored now."""
        options = new.options or NONE
        return cls(
            id=new.id,
            queue=queue,
            priority=new.priority,
            body=new.body,
            run_after_ms=new.run_after_ms,
            attempts_allowed=new.attempts_allowed,
            attempts_remaining=new.attempts_allowed,
            custom_status=rule.at_enqueue(options.status),
            headers=dict(options.headers) if options.headers else None,
            unique=options.unique,
            claim_timeout_ms=options.timeout_ms,
            expires_at_ms=options.expires_ms,
            ordering_key=options.ordering_key,
            created_at_ms=now_ms,
            updated_at_ms=now_ms,
            status_rule=rule,
        )

    @property
    def sort_ms(self) -> int:
        """The time that orders jobs of this one's state: run-after, claim time or finish time."""
        if self.state is JobState.PENDING:
            return BEHIND_MS + self.number if self.is_behind else self.run_after_ms
        if self.claim is not None:
            return self.claim.at_ms
        assert self.finished_at_ms is not None
        return self.finished_at_ms

    def expired(self, now_ms: int) -> bool:
        return self.expires_at_ms is not None and self.expires_at_ms < now_ms

    def handed_out(self, deadline_ms: int) -> HandedOutJob:
        """What a claim gives; `deadline_ms` 0 for one that only looks."""
        return HandedOutJob(
            id=self.id,
            priority=self.priority,
            body=self.body,
            attempts_allowed=self.attempts_allowed,
            attempts_remaining=self.attempts_remaining,
            attempt=self.attempts_ended + 1,
            headers=self.headers,
            created_at_ms=self.created_at_ms,
            run_after_ms=self.run_after_ms,
            claim_deadline_ms=deadline_ms,
        )

    def shown(self, shard: str, *, body: bool) -> JobInfo:
        """All that is known of it. `shard`: the name of its shard."""
        return JobInfo(
            descriptor=JobKey(self.queue, self.priority, self.id).on(shard),
            state=self.state,
            attempts_allowed=self.attempts_allowed,
            attempts_remaining=self.attempts_remaining,
            custom_status=self.custom_status,
            created_at_ms=self.created_at_ms,
            run_after_ms=self.run_after_ms,
            updated_at_ms=self.updated_at_ms,
            claim_descriptor=self.claim.holder.descriptor if self.claim else self.last_claim_descriptor,
            claim_deadline_ms=self.claim.deadline_ms if self.claim else None,
            finished_at_ms=self.finished_at_ms,
            body=self.body if body else None,
            headers=self.headers or None,
            unique_key=self.unique.key if self.unique else None,
            expires_at_ms=self.expires_at_ms,
            ordering_key=self.ordering_key,
            error_type=self.error_type or None,
            error_text=self.error_text or None,
            attempts=[_shown(each) for each in self.attempts] or None,
            progress=progress_of(self.custom_status) or None,
        )


def _shown(attempt: Attempt) -> structs.Attempt:
    return structs.Attempt(*attempt[:5], attempt.error_type or None, attempt.error_text or None)
