"""A job: what it waits for, its attempts in time, its body and headers."""

from __future__ import annotations

import shlex
from base64 import b64decode
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pinlater.client.errors import UnknownMethod
from pinlater.console.endpoint import Content
from pinlater.console.endpoints.fields import RequestShape
from pinlater.console.endpoints.jobs import BodiesQuery, JobItem, ReasonItem, explain_job, get_job, get_job_body
from pinlater.console.pages.bodies import Way, body_view
from pinlater.console.pages.formats import TEXT_CHARACTERS, ShownText, shown
from pinlater.console.pages.listed_job import worker_of
from pinlater.console.pages.page import PageCall, PageView, job_path, paths
from pinlater.domain.descriptor import parse_descriptor
from pinlater.domain.errors import DescriptorInvalid
from pinlater.domain.job import TASK_HEADER, TIMED_OUT
from pinlater.domain.link_urls import source_link, trace_link

_WHOLE_CHARACTERS = 2_000_000
_OF_WAITING = ("reschedule", "priority", "cancel", "delete")


class JobPageQuery(RequestShape, frozen=True, kw_only=True):
    """`view`: the representation of the body; the best one by default. `whole`: shows texts completely that are otherwise truncated."""

    view: Way | None = None
    whole: bool = False


class JobMoment(NamedTuple):
    """Something that happened to a job, or will. `kind`: determines its colour. `error`: why an attempt failed."""

    at_ms: int
    kind: str
    text: str
    error: ShownText | None = None


async def show(call: PageCall) -> PageView:
    """Shows the page. Makes two calls: for the job, and for what it waits for."""
    query = call.read(JobPageQuery)
    job = await call.api.ask(get_job, descriptor=call.descriptor, query=BodiesQuery(bodies=True))
    queue = job.descriptor.partition(":")[0]
    try:
        explained = await call.api.ask(explain_job, descriptor=job.descriptor)
        # If the state changed between the two calls, the reasons contradict what the page shows.
        same_state = explained.state in (None, job.state)
        reasons: Sequence[ReasonItem] = explained.reasons if same_state else ()
    except UnknownMethod:  # an older server
        reasons = ()
    characters = _WHOLE_CHARACTERS if query.whole else TEXT_CHARACTERS
    return PageView(
        job.descriptor,
        polls=job.state in ("pending", "in_progress") and not query.whole,
        path=paths(job_path(job.descriptor), query),
        job=job,
        queue=queue,
        priority=priority_of(job),
        task=job.headers.get(TASK_HEADER, ""),
        reasons=reasons,
        actions=_actions(job, call.now_ms),
        attempts_ended=_attempts_ended(job),
        moments=sorted(moments(job, characters), key=lambda one: one.at_ms),
        error=shown(job.error_text, characters),
        status=shown(job.custom_status, characters),
        progress=shown(job.progress, characters),
        headers=[(name, shown(value, characters)) for name, value in job.headers.items()],
        trace=trace_link(call.links, job.headers),
        source=source_link(call.links, job.error_text),
        body=body_view(_bytes(job), query.view, whole=query.whole),
        commands=commands(job),
    )


async def download(call: PageCall) -> Content:
    """The body of the job as a file."""
    return await call.api.ask(get_job_body, descriptor=call.descriptor)


def _attempts_ended(job: JobItem) -> int:
    """A failed job without any never ran: it was cancelled, or has expired. Others may have lost their history."""
    if job.attempts:
        return job.attempts[-1].number
    return 0 if job.state == "failed" else job.attempts_allowed - job.attempts_remaining


def _actions(job: JobItem, now_ms: int) -> Sequence[str]:
    match job.state:
        case "pending":
            later = (job.run_after_ms or 0) > now_ms
            return ("run", *_OF_WAITING) if later else _OF_WAITING
        case "in_progress":
            return ("cancel", "delete")
        case "failed":
            return ("retry", "reschedule", "priority", "delete")
    return ("delete",)


def _bytes(job: JobItem) -> bytes:
    return b64decode(job.body_base64) if job.body_base64 is not None else (job.body or "").encode()


def moments(job: JobItem, characters: int) -> Iterator[JobMoment]:
    """Returns what has happened to the job as far as known, and what will."""
    yield JobMoment(job.created_at_ms, "start", "Enqueued")
    for attempt in job.attempts:
        worker = worker_of(attempt.claimed_by) or "a worker"
        yield JobMoment(attempt.claimed_at_ms, "running", f"Attempt {attempt.number} claimed by {worker}")
        text = ": ".join(part for part in (attempt.error_type, attempt.error_text) if part)
        error = shown(text, characters) if text else None
        ended = f"Attempt {attempt.number} {attempt.outcome.replace('_', ' ')}"
        if attempt.outcome == TIMED_OUT:
            ended += f": {worker} neither ended it nor renewed the claim"
        yield JobMoment(attempt.ended_at_ms, "failed" if attempt.outcome != "succeeded" else "succeeded", ended, error)
    if job.state == "pending" and job.run_after_ms:
        yield JobMoment(job.run_after_ms, "scheduled", "Due")
    if job.state == "in_progress" and job.claim_deadline_at_ms:
        if job.updated_at_ms:
            yield JobMoment(job.updated_at_ms, "running", f"Claimed or renewed by {worker_of(job.claim_descriptor)}")
        yield JobMoment(job.claim_deadline_at_ms, "scheduled", "The claim ends")
    if job.finished_at_ms:
        yield JobMoment(job.finished_at_ms, job.state, job.state.capitalize())
    if job.expires_at_ms and not job.finished_at_ms:
        yield JobMoment(job.expires_at_ms, "scheduled", "Expires if it still waits")


def priority_of(job: JobItem) -> int | None:
    """Returns the priority in the descriptor, or None if the server answered with something else."""
    try:
        return parse_descriptor(job.descriptor).priority
    except DescriptorInvalid:
        return None


def commands(job: JobItem) -> dict[str, str]:
    """Returns commands for a shell, by their purpose."""
    name = shlex.quote(job.descriptor)
    found = {"Look up": f"pinlater job show {name} --body"}
    if job.state in ("pending", "in_progress"):
        found["Explain"] = f"pinlater job explain {name}"
    if job.state in ("pending", "failed"):
        found["Run now"] = f"pinlater job run-now {name}"
        other = 2 if priority_of(job) == 1 else 1
        found["Change priority"] = f"pinlater job change-priority {name} --priority {other}"
    if job.state in ("pending", "in_progress"):
        found["Cancel"] = f"pinlater job cancel {name}"
    return found
