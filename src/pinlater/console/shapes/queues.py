"""Queues: their settings, pause and statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType, defstruct

from pinlater.console.shapes.fields import (
    AnswerShape,
    Incomplete,
    Moment,
    PartitionNumberItem,
    RequestShape,
)
from pinlater.domain.history import MARK_CHARS_MAX, QUEUES_MAX
from pinlater.domain.queue_settings import QUEUE_SETTINGS, QueueSetting


class CreateQueueRequest(RequestShape, frozen=True, kw_only=True):
    """The queue to create."""

    name: Annotated[str, Meta(description="1 to 64 ASCII letters, digits and underscores.")]
    ordered: Annotated[bool, Meta(description="Its jobs run one after the other. This can't be changed later.")] = False


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


def _type_of(setting: QueueSetting) -> Any:
    if setting.words:
        value: Any = Literal[tuple(setting.words)]
    else:
        value = Annotated[float if setting.is_fraction else int, Meta(ge=setting.least, le=setting.most)]
    return Annotated[value | None, Meta(description=setting.help)]


SettingsValues: Any = defstruct(
    "SettingsValues",
    [(setting.field, _type_of(setting), None) for setting in QUEUE_SETTINGS],
    bases=(RequestShape,),
    namespace={"__doc__": "The settings of a queue. Null leaves a setting to the server."},
    module=__name__,
    frozen=True,
    kw_only=True,
)
ChangedSettings: Any = defstruct(
    "ChangedSettings",
    [(setting.field, _type_of(setting) | UnsetType, UNSET) for setting in QUEUE_SETTINGS],
    bases=(RequestShape,),
    namespace={
        "__doc__": "The settings to change. Null leaves a setting to the server; a setting that is left out does not change."
    },
    module=__name__,
    frozen=True,
    kw_only=True,
)


class SettingsAnswer(AnswerShape, frozen=True, kw_only=True):
    """A queue with its settings."""

    name: str
    paused: bool
    ordered: Annotated[bool, Meta(description="All its jobs run one after the other.")]
    settings: Annotated[SettingsValues, Meta(description="As they are stored with the queue.")]
    in_force: Annotated[SettingsValues, Meta(description="As they apply on the server that answered.")]
    origins: Annotated[Mapping[str, str], Meta(description="Where each value in force comes from.")]


class UnblockRequest(RequestShape, frozen=True, kw_only=True):
    """The ordering key that is to go on."""

    ordering_key: Annotated[str, Meta(min_length=1, max_length=128)]


class UnblockedAnswer(AnswerShape, frozen=True, kw_only=True):
    """How many failed jobs stopped the key."""

    jobs: int


class CountsItem(AnswerShape, frozen=True, kw_only=True):
    """Jobs of one priority. `pending` includes `future`, the jobs that are not due yet, and `future` includes `behind_key`, those that wait
    behind others of their ordering keys: 10,000 of a shard stand for that or more. Totals count since the queue was created."""

    priority: int
    pending: int
    future: int
    behind_key: int
    in_progress: int
    succeeded: int
    failed: int
    enqueued_total: int
    claimed_total: int
    succeeded_total: int
    failed_total: int
    retried_total: int


class RatesItem(AnswerShape, frozen=True, kw_only=True):
    """Jobs a second over the last minute, of all servers together."""

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
    max_jobs_per_second: Annotated[float | None, Meta(description="The limit of dequeues in force; null: none.")] = None
    partitions: Annotated[
        Sequence[str], Meta(description="The shards on which the queue is stored; empty where there is one shard only.")
    ] = ()
    strays: Annotated[Mapping[str, int], Meta(description="Unfinished jobs on other shards in reach, by shard.")] = {}
    partition_number: Annotated[
        PartitionNumberItem | None,
        Meta(description="How many partitions it is to have; null where there is one shard only."),
    ] = None


class HistoryQuery(RequestShape, frozen=True, kw_only=True):
    """The range of a history."""

    from_ms: Annotated[Moment | None, Meta(description="At most 30 days ago. Without it: an hour before the end.")] = (
        None
    )
    until_ms: Annotated[Moment | None, Meta(description="Without it: now.")] = None
    step_s: Annotated[
        Literal[60, 600, 3600] | None, Meta(description="Without it: the finest that is kept for the range.")
    ] = None


class HistoriesQuery(HistoryQuery, frozen=True, kw_only=True):
    """The range, and the queues."""

    queue: Annotated[Sequence[str], Meta(min_length=1, max_length=QUEUES_MAX, description="A queue; may be repeated.")]


class PercentilesItem(AnswerShape, frozen=True, kw_only=True):
    """Of `number` spans, in milliseconds; at most a sixteenth off."""

    number: int
    p50: int
    p90: int
    p99: int


class HistoryPointItem(AnswerShape, frozen=True, kw_only=True):
    """What happened in a step, on all servers, and the highest depth in it; null if that is not known.

    `failed` counts attempts, `timed_out` claims. `wait_ms`: from when a job was due to its hand-out; `run_ms`: from a claim to its ack.
    """

    at_ms: int
    enqueued: int
    claimed: int
    succeeded: int
    failed: int
    timed_out: int
    expired: int
    due: int | None
    scheduled: int | None
    running: int | None
    oldest_ms: Annotated[int | None, Meta(description="How long the oldest due job had waited.")]
    wait_ms: PercentilesItem | None
    run_ms: PercentilesItem | None


class MarkItem(AnswerShape, frozen=True, kw_only=True):
    """A deploy mark. `queue`: null for all queues."""

    at_ms: int
    text: str
    queue: str | None


class HistoryAnswer(AnswerShape, frozen=True, kw_only=True):
    """The points of a queue by time. A step without a point: nothing happened, and no unfinished job was there."""

    queue: str
    step_s: int
    from_ms: int
    until_ms: int
    points: Sequence[HistoryPointItem]
    marks: Sequence[MarkItem]
    incomplete: Incomplete


class QueuePointsItem(AnswerShape, frozen=True, kw_only=True):
    """A queue and its points."""

    queue: str
    points: Sequence[HistoryPointItem]


class HistoriesAnswer(AnswerShape, frozen=True, kw_only=True):
    """The points of several queues. Queues that do not exist are left out, unless a single one was asked for."""

    step_s: int
    from_ms: int
    until_ms: int
    queues: Sequence[QueuePointsItem]
    marks: Sequence[MarkItem]
    incomplete: Incomplete


class MarkRequest(RequestShape, frozen=True, kw_only=True):
    """A mark for the charts, such as a deployment."""

    text: Annotated[str, Meta(min_length=1, max_length=MARK_CHARS_MAX, description="Printable characters.")]
    at_ms: Annotated[Moment | None, Meta(description="At most an hour ahead. Without it: now.")] = None
    queue: Annotated[str | None, Meta(description="Without it: all queues, which needs a token for all.")] = None


class StatsQuery(RequestShape, frozen=True, kw_only=True):
    """Says which queues are asked about."""

    queue: Annotated[Sequence[str], Meta(description="A queue; may be repeated. Without it: all queues.")] = ()


class StatsAnswer(AnswerShape, frozen=True, kw_only=True):
    """Counts and rates of queues."""

    queues: Sequence[StatsItem]
