"""The actions of forms: each calls an endpoint and reports the result in numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Annotated, Any

from msgspec import Meta

from pinlater.console.cookies import fits
from pinlater.console.endpoint import Endpoint
from pinlater.console.endpoints.claims import ResultItem, ResultsAnswer
from pinlater.console.endpoints.failures import MuteRequest, mute_failures
from pinlater.console.endpoints.fields import Attempts, Moment, Priority, RequestShape, State
from pinlater.console.endpoints.jobs_change import (
    ChangePriorityRequest,
    DescriptorsRequest,
    RetryFailedRequest,
    RunNowRequest,
    cancel_jobs,
    delete_jobs_by_descriptor,
    retry_failed_jobs,
    run_jobs_now,
)
from pinlater.console.endpoints.jobs_change import change_priority as change_job_priority
from pinlater.console.endpoints.queues import change_settings, pause_queue, resume_queue
from pinlater.console.pages.formats import moment
from pinlater.console.pages.page import Goto, PageCall, job_path, moment_ms, queue_path
from pinlater.console.pages.setting_fields import SETTINGS, changed_fields, settings_of
from pinlater.console.problems import refused
from pinlater.console.reading import fields_of
from pinlater.domain.durations import duration_ms
from pinlater.domain.wording import counted

_OWN_PATH = re.compile(r"/(?![/\\])[!-\[\]-~]*", re.ASCII)
_NOT_DONE: Mapping[str, str] = {
    "already_final": "it has ended already",
    "stale_claim": "its state changed meanwhile",
    "not_found": "the job no longer exists",
}


_MORE = " There was not enough time for all of them: repeat it, or use a bulk change if a repeat changes none."


class BackForm(RequestShape, frozen=True, kw_only=True):
    """`back`: the page to show afterwards."""

    back: str = ""


class RetryForm(BackForm, frozen=True, kw_only=True):
    """`attempts`: of each job."""

    attempts: Attempts = 1


class RunForm(RetryForm, frozen=True, kw_only=True):
    """`due`: a duration from now, such as `10m`, or a time, such as `2030-01-31T12:00`; now without it. `was`: the state of the job on
    the page."""

    due: str = ""
    was: State = "pending"


class PriorityForm(BackForm, frozen=True, kw_only=True):
    """`priority`: the new one of the job."""

    priority: Priority


class RetryFailedForm(RetryForm, frozen=True, kw_only=True):
    """`number`: the jobs that the page announced; no more are retried."""

    number: Annotated[int, Meta(ge=1, le=100_000)]
    group: str = ""


class MuteForm(BackForm, frozen=True, kw_only=True):
    """`until_ms`: 0 ends the mute of the group."""

    group: str
    until_ms: Moment


async def pause(call: PageCall) -> Goto:
    """Stops dequeues."""
    await call.api.ask(pause_queue, queue=call.queue)
    return Goto(_back(call, queue_path(call.queue)), f"{call.queue} is paused. Enqueues and acks continue.")


async def resume(call: PageCall) -> Goto:
    """Allows dequeues again."""
    await call.api.ask(resume_queue, queue=call.queue)
    return Goto(_back(call, queue_path(call.queue)), f"{call.queue} is resumed.")


async def pin(call: PageCall) -> Goto:
    """Keeps a queue at the top of the overview of this browser. Raises RequestRefused if too many queues are kept."""
    pins = {*call.pins, call.queue}
    if not fits(pins):
        detail = f"{len(call.pins)} queues are pinned, and a browser cannot keep more. Unpin some."
        raise refused(HTTPStatus.CONFLICT, "TOO_MANY", detail)
    return Goto(_back(call, "/"), pins=pins)


async def unpin(call: PageCall) -> Goto:
    """Lets a queue have the place again that its figures determine."""
    return Goto(_back(call, "/"), pins=set(call.pins) - {call.queue})


async def change(call: PageCall) -> Goto:
    """Changes the settings whose fields were changed."""
    changed = changed_fields(call.fields)
    if not changed:
        return Goto(queue_path(call.queue), "No setting was changed.")
    await call.api.ask(change_settings, queue=call.queue, body=settings_of(changed))
    told = "; ".join(
        f"{SETTINGS[name].label}: {value or 'the default of the server'}" for name, value in changed.items()
    )
    return Goto(queue_path(call.queue), f"Changed {len(changed)} of {len(SETTINGS)} settings. {told}.")


async def retry_failed(call: PageCall) -> Goto:
    """Returns failed jobs of a queue to it, at most the number that the page announced."""
    form = call.read(RetryFailedForm)
    wanted = fields_of(
        {"limit": form.number, "attempts": form.attempts, "group": form.group or None}, RetryFailedRequest, "form"
    )
    done = await call.api.ask(retry_failed_jobs, queue=call.queue, body=wanted)
    told = f"Retried {done.jobs:,} of {form.number:,} failed jobs of {call.queue}"
    if form.group:
        told = f"Retried {counted(done.jobs, 'failed job')} of this group in {call.queue}"
    if done.jobs:
        told += f"; {'it is' if done.jobs == 1 else 'they are'} due now"
    told += f".{_MORE if form.group and done.incomplete else ''}"
    return Goto(_back(call, queue_path(call.queue, tab="failed")), told)


async def mute(call: PageCall) -> Goto:
    """Moves a group of failures to the end of its queue's groups, or back."""
    form = call.read(MuteForm)
    await call.api.ask(mute_failures, queue=call.queue, body=MuteRequest(group=form.group, until_ms=form.until_ms))
    told = "is listed last from now on; its failures still count" if form.until_ms else "is no longer muted"
    return Goto(_back(call, "/failed"), f"The group of failures in {call.queue} {told}.")


async def run(call: PageCall) -> Goto:
    """Makes a waiting job due now or at another time, or returns a failed one to its queue."""
    form = call.read(RunForm)
    due_ms = _due_ms(form.due, call.now_ms)
    wanted = RunNowRequest(descriptors=[call.descriptor], attempts=form.attempts, run_after_ms=due_ms)
    await _of_one(call, run_jobs_now, wanted)
    own = job_path(call.descriptor)
    back = _back(call, own)
    when = "now" if due_ms is None else f"at {moment(due_ms)}"
    told = f"Retried 1 job; it is due {when}" if form.was == "failed" else f"1 job is due {when}"
    return Goto(back, f"{told}: {call.descriptor}.", "" if back == own else call.descriptor)


async def change_priority(call: PageCall) -> Goto:
    """Gives a job another priority, and shows it under its new descriptor."""
    form = call.read(PriorityForm)
    wanted = ChangePriorityRequest(descriptors=[call.descriptor], priority=form.priority)
    [result] = (await call.api.ask(change_job_priority, queue=_queue_of(call.descriptor), body=wanted)).results
    if result.moved_to is None:
        why = _NOT_DONE[result.outcome]
        raise refused(HTTPStatus.CONFLICT, result.outcome.upper(), f"{call.descriptor} did not change: {why}.")
    told = f"1 job has priority {form.priority} now: {result.moved_to}."
    if result.moved_to == call.descriptor:
        told = f"The job has priority {form.priority} already: {result.moved_to}."
    return Goto(_back(call, job_path(result.moved_to)), told)


async def cancel(call: PageCall) -> Goto:
    """Ends a job that has not ended."""
    await _of_one(call, cancel_jobs, DescriptorsRequest(descriptors=[call.descriptor]))
    return Goto(_back(call, job_path(call.descriptor)), f"1 job is cancelled: {call.descriptor}.")


async def delete(call: PageCall) -> Goto:
    """Deletes a job in any state."""
    queue = _queue_of(call.descriptor)
    wanted = DescriptorsRequest(descriptors=[call.descriptor])
    done = await call.api.ask(delete_jobs_by_descriptor, queue=queue, body=wanted)
    text = f"1 job is deleted: {call.descriptor}." if done.jobs else f"There was no job {call.descriptor} to delete."
    return Goto(_back(call, queue_path(queue)), text)


async def _of_one(call: PageCall, act: Endpoint[Any, Any, ResultsAnswer], body: RequestShape) -> None:
    """Calls an endpoint for the job of the path. Raises RequestRefused if the job did not change."""
    [result] = (await call.api.ask(act, queue=_queue_of(call.descriptor), body=body)).results
    if result.outcome != "applied":
        raise refused(HTTPStatus.CONFLICT, result.outcome.upper(), f"{call.descriptor} did not change: {_why(result)}.")


def _due_ms(text: str, now_ms: int) -> int | None:
    """Returns the time that a duration or a time means, or None for an empty text. Raises RequestRefused."""
    if text:
        with suppress(ValueError):
            return now_ms + duration_ms(text)
    return moment_ms(text, "due", "is neither a span such as 10m nor a time such as 2030-01-31T12:00")


def _why(result: ResultItem) -> str:
    if result.error is not None:
        return result.error.detail.rstrip(".")
    return _NOT_DONE[result.outcome]


def _queue_of(descriptor: str) -> str:
    return descriptor.partition(":")[0]


def _back(call: PageCall, otherwise: str) -> str:
    """The page that the form names, if it is a page of this console."""
    return own_path(call.fields.get("back", ""), otherwise)


def own_path(path: str, otherwise: str) -> str:
    """Returns the path if it is a path of this console, otherwise the other one."""
    return path if _OWN_PATH.fullmatch(path) else otherwise
