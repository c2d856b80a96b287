"""Jobs: store one or several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, UnsetType

from pinlater.client import Job, UniqueKey, UniqueScope
from pinlater.console.endpoint import ApiCall, Content, HeaderParameter, endpoint
from pinlater.console.endpoints.fields import (
    AnswerShape,
    Attempts,
    Delay,
    Key,
    Moment,
    Nothing,
    Priority,
    RequestShape,
    RunAfter,
    Span,
    doc,
)
from pinlater.console.endpoints.forms import body_given, due_ms
from pinlater.console.problems import invalid

_JOBS = "/v1/queues/{queue}/jobs"
_IDEMPOTENCY_KEY = HeaderParameter(
    "Idempotency-Key",
    "The request key. Send a repeat at most 45 s after the first request, with the same content: with times, not with durations from now.",
)


class NewJobOptions(RequestShape, frozen=True, kw_only=True):
    """The options of a job."""

    priority: Priority = 1
    run_after_ms: RunAfter = None
    delay_ms: Delay = None
    attempts_allowed: Annotated[Attempts | None, doc("Without it, the default of the queue applies.")] = None
    custom_status: Annotated[str, doc("Text to show with the job.")] = ""
    unique_key: Annotated[Key | None, doc("At most one job of the queue holds this key.")] = None
    unique_scope: Annotated[
        Literal["pending", "unfinished", "time"],
        doc("How long the job holds the unique key: until its first claim, until it is finished, or for a duration."),
    ] = "unfinished"
    unique_for_ms: Annotated[Span | None, doc("The duration for the scope `time`.")] = None
    ordering_key: Annotated[
        str | None, doc("Jobs of the queue with the same key run one after the other. 1 to 128 bytes.")
    ] = None
    claim_timeout_ms: Annotated[Span | None, doc("The claim timeout of this job.")] = None
    expires_at_ms: Annotated[Moment | None, doc("The job fails if it still waits at this time.")] = None
    expires_in_ms: Annotated[Span | None, doc("The same as a duration from now. Excludes `expires_at_ms`.")] = None


class EnqueueQuery(NewJobOptions, frozen=True, kw_only=True):
    """The options of a job whose body is the body of the request."""

    header: Annotated[Sequence[str], doc("A header of the job, as `NAME=VALUE`; may be repeated.")] = ()


class NewJobItem(NewJobOptions, frozen=True, kw_only=True):
    """A job to store. Exactly one of the three bodies must be given."""

    body: Annotated[str | UnsetType, doc("The body as text.")] = UNSET
    body_json: Annotated[Raw, doc("The body as a JSON value, stored exactly as written here.")] | UnsetType = UNSET
    body_base64: Annotated[str | UnsetType, doc("The body in base64.")] = UNSET
    headers: Annotated[Mapping[str, str], doc("Headers of the job.")] = {}


class EnqueueBatchRequest(RequestShape, frozen=True, kw_only=True):
    """Jobs to store; on one shard all of them are stored, or none."""

    jobs: Annotated[Sequence[NewJobItem], Meta(min_length=1)]


class EnqueuedItem(AnswerShape, frozen=True, kw_only=True):
    """A stored job, or the one that holds its unique key."""

    descriptor: str
    existing: Annotated[bool, doc("Another job held the unique key; nothing was stored.")]


class EnqueueBatchAnswer(AnswerShape, frozen=True, kw_only=True):
    """The stored jobs, in the order of the request."""

    jobs: Sequence[EnqueuedItem]


_Enqueue = ApiCall[EnqueueQuery, Content] | ApiCall[Nothing, EnqueueBatchRequest]


@endpoint("POST", _JOBS, calls="enqueue", status=HTTPStatus.CREATED, header=_IDEMPOTENCY_KEY)
async def enqueue(call: ApiCall[EnqueueQuery, Content]) -> EnqueuedItem:
    """Stores a job. The body of the request is the body of the job: text, JSON or bytes, according to its Content-Type. The options are
    parameters of the URL. With an Idempotency-Key, a repeat within 45 s stores nothing and gets the first answer."""
    job = _job(call, call.query, call.body.data, _headers(call.query.header), "")
    return (await _stored(call, [job]))[0]


@endpoint("POST", f"{_JOBS}/batch", calls="enqueue", status=HTTPStatus.CREATED, header=_IDEMPOTENCY_KEY)
async def enqueue_batch(call: ApiCall[Nothing, EnqueueBatchRequest]) -> EnqueueBatchAnswer:
    """Stores several jobs. An Idempotency-Key works as for one job."""
    jobs = []
    for index, item in enumerate(call.body.jobs):
        body = body_given(item, f"jobs[{index}]")
        if body is None:
            raise invalid(f"jobs[{index}].body", "a job needs body, body_json or body_base64")
        jobs.append(_job(call, item, body, item.headers, f"jobs[{index}]."))
    return EnqueueBatchAnswer(jobs=await _stored(call, jobs))


async def _stored(call: _Enqueue, jobs: Sequence[Job]) -> Sequence[EnqueuedItem]:
    # A repeated HTTP request is not marked as such: with a key, the servers look for the first one.
    stored = await call.client.enqueue(call.queue, jobs, request_key=call.header or None, repeat=bool(call.header))
    existing = set(stored.existing)
    return [EnqueuedItem(descriptor=name, existing=index in existing) for index, name in enumerate(stored.descriptors)]


def _job(call: _Enqueue, options: NewJobOptions, body: bytes, headers: Mapping[str, str], where: str) -> Job:
    """The job. `where`: the path of its options, for errors."""
    return Job(
        body,
        priority=options.priority,
        run_after_ms=_moment(call, options, "run_after_ms", "delay_ms", where),
        attempts_allowed=options.attempts_allowed,
        custom_status=options.custom_status,
        headers=dict(headers) or None,
        unique=_unique(options, where),
        claim_timeout_ms=options.claim_timeout_ms,
        expires_at_ms=_moment(call, options, "expires_at_ms", "expires_in_ms", where),
        ordering_key=options.ordering_key,
    )


def _moment(call: _Enqueue, options: NewJobOptions, moment: str, span: str, where: str) -> int | None:
    """The moment, or the span from now. A repeat would ask for another moment, which the servers refuse as another request."""
    if call.header and getattr(options, span) is not None:
        raise invalid(f"{where}{span}", f"a request with an Idempotency-Key uses {moment}, not {span}")
    given = getattr(options, moment), getattr(options, span)
    return due_ms(*given, call.now_ms, f"{where}{moment} {where}{span}")


def _unique(options: NewJobOptions, where: str) -> UniqueKey | None:
    scope = UniqueScope[options.unique_scope.upper()]
    if options.unique_key is None:
        if options.unique_for_ms is not None:
            raise invalid(f"{where}unique_for_ms", "unique_for_ms needs unique_key")
        return None
    if (scope is UniqueScope.TIME) != bool(options.unique_for_ms):
        raise invalid(f"{where}unique_for_ms", "unique_scope time and unique_for_ms must be given together")
    return UniqueKey(options.unique_key, scope, options.unique_for_ms or 0)


def _headers(given: Sequence[str]) -> dict[str, str]:
    headers = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise invalid("header", f"{text[:200]!r} is not NAME=VALUE")
        headers[name] = value
    return headers
