"""Queues: their settings, pause and statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from pinlater.console.shapes.fields import (
    AnswerShape,
    Attempts,
    Incomplete,
    NotNegative,
    RequestShape,
    Span,
)


class CreateQueueRequest(RequestShape, frozen=True, kw_only=True):
    """The queue to create."""

    name: Annotated[str, Meta(description="1 to 64 ASCII letters, digits and underscores.")]


class QueueItem(AnswerShape, frozen=True, kw_only=True):
    """A queue."""

    name: str


class QueuesAnswer(AnswerShape, frozen=True, kw_only=True):
    """All queues, by name."""

    queues: Sequence[QueueItem]


class PausedAnswer(AnswerShape, frozen=True, kw_only=True):
    """A queue and its pause."""

    name: str
    paused: bool


Rate = Annotated[NotNegative | None, Meta(description="Jobs handed out per second; 0 stops dequeues.")]


class SettingsValues(RequestShape, frozen=True, kw_only=True):
    """The settings of a queue. Null leaves a setting to the server."""

    max_jobs_per_second: Rate = None
    claim_timeout_ms: Annotated[Span | None, Meta(description="Of jobs that set none.")] = None
    succeeded_ttl_ms: Annotated[Span | None, Meta(description="How long succeeded jobs are kept.")] = None
    failed_ttl_ms: Annotated[Span | None, Meta(description="How long failed jobs are kept.")] = None
    max_backlog: Annotated[Span | None, Meta(description="The largest number of pending jobs.")] = None
    default_attempts: Annotated[Attempts | None, Meta(description="Of jobs that set none.")] = None
    default_expiry_ms: Annotated[Span | None, Meta(description="Of jobs that set none.")] = None


class ChangedSettings(RequestShape, frozen=True, kw_only=True):
    """The settings to change. Null leaves a setting to the server; a setting that is left out does not change."""

    max_jobs_per_second: Rate | UnsetType = UNSET
    claim_timeout_ms: Span | UnsetType | None = UNSET
    succeeded_ttl_ms: Span | UnsetType | None = UNSET
    failed_ttl_ms: Span | UnsetType | None = UNSET
    max_backlog: Span | UnsetType | None = UNSET
    default_attempts: Attempts | UnsetType | None = UNSET
    default_expiry_ms: Span | UnsetType | None = UNSET


class SettingsAnswer(AnswerShape, frozen=True, kw_only=True):
    """A queue with its settings."""

    name: str
    paused: bool
    settings: Annotated[SettingsValues, Meta(description="As they are stored with the queue.")]
    in_force: Annotated[SettingsValues, Meta(description="As they apply on the server that answered.")]
    origins: Annotated[Mapping[str, str], Meta(description="Where each value in force comes from.")]


class CountsItem(AnswerShape, frozen=True, kw_only=True):
    """Jobs of one priority. `pending` includes `future`, the jobs that are not due yet. Totals count since the queue was created."""

    priority: int
    pending: int
    future: int
    in_progress: int
    succeeded: int
    failed: int
    enqueued_total: int
    claimed_total: int
    succeeded_total: int
    failed_total: int
    retried_total: int


class RatesItem(AnswerShape, frozen=True, kw_only=True):
    """Jobs a second over the last minute, as the server that answered saw them."""

    enqueued: float
    claimed: float
    succeeded: float
    failed: float
    retried: float


class StatsItem(AnswerShape, frozen=True, kw_only=True):
    """Counts and rates of a queue, from counters."""

    queue: str
    paused: bool
    priorities: Sequence[CountsItem]
    rates: RatesItem
    oldest_waiting_ms: Annotated[int | None, Meta(description="How long the oldest due job has waited.")]
    waiting_dequeues: int
    incomplete: Incomplete


class StatsQuery(RequestShape, frozen=True, kw_only=True):
    """Says which queues are asked about."""

    queue: Annotated[Sequence[str], Meta(description="A queue; may be repeated. Without it: all queues.")] = ()


class StatsAnswer(AnswerShape, frozen=True, kw_only=True):
    """Counts and rates of queues."""

    queues: Sequence[StatsItem]
