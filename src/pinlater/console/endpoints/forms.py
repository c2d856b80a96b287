"""Converts between the shapes of the API and the values of the client: bodies, times, results. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from msgspec import UNSET

from pinlater.client.values import AckResult, JobExplanation, JobInfo, JobState, MovedJob
from pinlater.console.problems import invalid, reason_of
from pinlater.console.shapes.claims import (
    CheckpointItem,
    ItemError,
    MovedJobItem,
    MovedJobsAnswer,
    ResultItem,
    ResultsAnswer,
)
from pinlater.console.shapes.fields import AnswerShape, PartitionNumberItem
from pinlater.console.shapes.jobs import AttemptItem, ExplainAnswer, JobItem, NewJobItem, ReasonItem
from pinlater.domain.job_filter import FILTER_FIELDS, FilterFault, JobFilter, filter_from, group_of
from pinlater.domain.queue import PartitionNumber

S = TypeVar("S", bound=AnswerShape)


def like(shape: type[S], value: Any, **given: Any) -> S:
    """The shape with the attributes of `value` that have the names of its fields; those in `given` are not read from it."""
    fields = {name: getattr(value, name) for name in shape.__struct_fields__ if name not in given}
    return shape(**fields, **given)


def state_of(name: str) -> JobState:
    """The state with the API's name."""
    return JobState[name.upper()]


def due_ms(
    run_after_ms: int | None, delay_ms: int | None, now_ms: int, names: str = "run_after_ms delay_ms"
) -> int | None:
    """A time, given as such or as a duration from now; `names` are those of the two fields."""
    time_field, span_field = names.split()
    if run_after_ms is not None and delay_ms is not None:
        raise invalid(span_field, f"{time_field} and {span_field} exclude each other")
    return run_after_ms if delay_ms is None else now_ms + delay_ms


def filter_of(chosen: Any, state: JobState, *, skip_cancelled: bool = False) -> JobFilter:
    """The filter in a `JobsFilter`. Raises RequestRefused, which names the field."""
    given = {field.word: getattr(chosen, field.word) for field in FILTER_FIELDS}
    try:
        return filter_from(state, given, skip_cancelled=skip_cancelled)
    except FilterFault as fault:
        raise invalid(fault.field.word, fault.text) from None


def body_given(item: NewJobItem | CheckpointItem, where: str) -> bytes | None:
    """The one body that an item gives, or None. `where`: the path of the item, for errors."""
    given = [name for name in ("body", "body_json", "body_base64") if getattr(item, name) is not UNSET]
    if len(given) > 1:
        raise invalid(f"{where}.{given[1]}", f"{' and '.join(given)} exclude each other")
    if isinstance(item.body, str):
        return item.body.encode()
    if isinstance(item.body_base64, str):
        return _from_base64(item.body_base64, f"{where}.body_base64")
    return None if item.body_json is UNSET else bytes(item.body_json)


def _from_base64(text: str, field: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise invalid(field, f"not base64: {error}") from None


def body_shown(body: bytes | None) -> dict[str, str | None]:
    """The two fields of a body in an answer."""
    if body is None:
        return {"body": None, "body_base64": None}
    try:
        return {"body": body.decode(), "body_base64": None}
    except UnicodeDecodeError:
        return {"body": None, "body_base64": base64.b64encode(body).decode()}


def job_shown(job: JobInfo) -> JobItem:
    """All that is known about a job."""
    return like(
        JobItem,
        job,
        state=job.state.name.lower(),
        claim_deadline_at_ms=job.claim_deadline_ms,
        headers=dict(job.headers),
        attempts=[like(AttemptItem, attempt) for attempt in job.attempts],
        failure_group=(group_of(job) or None) if job.state is JobState.FAILED else None,
        **body_shown(job.body),
    )


def explanation_shown(found: JobExplanation) -> ExplainAnswer:
    """The reasons, in their order."""
    return ExplainAnswer(
        descriptor=found.descriptor,
        state=None if found.job is None else found.job.state.name.lower(),  # type: ignore[arg-type]
        reasons=[like(ReasonItem, reason, figures=dict(reason.figures)) for reason in found.reasons()],
        partition_number=number_shown(found.queue.partition_number),
    )


def number_shown(number: PartitionNumber | None) -> PartitionNumberItem | None:
    """Returns the number of partitions that a queue is to have."""
    return None if number is None else like(PartitionNumberItem, number)


def results_shown(results: Iterable[AckResult]) -> ResultsAnswer:
    """Returns the outcome of each job."""
    return ResultsAnswer(results=result_items(results))


def moved_shown(results: Iterable[MovedJob]) -> MovedJobsAnswer:
    """Returns the outcome of each job whose priority was to be changed."""
    return MovedJobsAnswer(
        results=[
            MovedJobItem(
                descriptor=result.descriptor,
                outcome=result.outcome.name.lower(),  # type: ignore[arg-type]
                moved_to=result.moved_to or None,
                holder=result.holder or None,
                held_since_ms=result.held_since_ms,
            )
            for result in results
        ]
    )


def result_items(results: Iterable[AckResult]) -> Sequence[ResultItem]:
    """Returns the outcome of each job, in the order of `results`."""
    return [
        ResultItem(
            descriptor=result.descriptor,
            outcome=result.outcome.name.lower(),  # type: ignore[arg-type]
            holder=result.holder or None,
            held_since_ms=result.held_since_ms,
            claim_deadline_at_ms=result.deadline_ms,
            error=_item_error(result),
        )
        for result in results
    ]


def _item_error(result: AckResult) -> ItemError | None:
    error = result.error
    if error is None:
        return None
    return ItemError(
        code="" if error.code is None else error.code.name,
        reason=reason_of(error),
        detail=error.message,
        retryable=error.retryable,
        retry_after_ms=error.retry_after_ms,
    )
