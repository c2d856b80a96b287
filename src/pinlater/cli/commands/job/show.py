"""`pinlater job show`."""

from __future__ import annotations

from typing import Annotated

import typer

from pinlater.cli import exits, options, output, unique_key_argument
from pinlater.cli.queue_notes import say_if_missing
from pinlater.client import AsyncClient, JobInfo, waiting
from pinlater.domain.job import JobState

_FINISHED = (JobState.SUCCEEDED, JobState.FAILED)


def show(
    descriptors: unique_key_argument.Named = None,
    unique_key: unique_key_argument.UniqueKey = None,
    queue: unique_key_argument.InQueue = None,
    body: Annotated[bool, typer.Option("--body", help="Show the bodies too.")] = False,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """Show all details of jobs. The descriptors name the jobs, or --unique-key names the key that they hold. Exit code 1 if any of them
    does not exist, or if no job holds the key.

    Example: pinlater job show emails:s1:p1:42 --body
    """
    names = unique_key_argument.descriptors_of(descriptors, unique_key, queue, server, timeout)

    async def ask(client: AsyncClient) -> dict[str, JobInfo]:
        jobs = await client.lookup(names, bodies=body)
        if lacking := options.by_queue([name for name in names if name not in jobs]):
            await say_if_missing(client, *lacking)
        return jobs

    found = options.ask(server, timeout, ask)
    missing = [name for name in names if name not in found]
    if json:
        output.print_json({"jobs": [output.info_json(job) for job in found.values()], "missing": missing})
    else:
        for number, job in enumerate(found.values()):
            output.print_lines([""] * bool(number))
            _print_job(job)
    if missing:
        exits.fail(f"no such job: {', '.join(missing)}", exits.REFUSED)


def _print_job(job: JobInfo) -> None:
    output.print_fields(_fields(job))
    if output.waits_for(job) and waiting.was_put_off(job):
        output.print_text([f"put off without an attempt: {output.why_put_off(job)}"])
    if job.attempts:
        rows = [
            (
                attempt.number,
                attempt.outcome,
                output.source_of(attempt.claimed_by) or attempt.claimed_by or None,
                output.age(attempt.ended_at_ms - attempt.claimed_at_ms),
                output.error_line(attempt.error_type, attempt.error_text),
            )
            for attempt in job.attempts
        ]
        output.print_blocks(["attempt", "outcome", "claimed by", "took", "error"], rows, head="attempt ")
    text, _, trace = job.error_text.partition("\n")
    if trace:
        head = "error of an earlier attempt:" if job.state is JobState.SUCCEEDED else "last error:"
        output.print_text([head, text, *trace.splitlines()])


def _fields(job: JobInfo) -> dict[str, object]:
    """Returns what is known about a job, in the order in which an operator looks for it."""
    shown: dict[str, object] = {
        "descriptor": job.descriptor,
        "state": job.state,
        "waits": output.waits_for(job),
        "task": output.task_of(job),
        "holder": output.holder_of(job),
        "age": output.age_of(job),
        "progress": job.progress,
    }
    for name, value in job._asdict().items():
        if name == "run_after_ms" and job.state is not JobState.PENDING:
            continue  # of a job that ran, it is the time of its last claim, checkpoint or retry
        if name == "attempts_remaining" and job.state in _FINISHED:
            continue
        if name.endswith("_ms"):
            shown[name.removesuffix("_ms")] = output.iso(value)
        elif name not in ("attempts", "body", "body_masked"):
            shown.setdefault(name, value)
    shown["custom_status"] = output.status_without_progress(job).rstrip()
    shown["error_text"] = job.error_text.partition("\n")[0]
    if job.state is JobState.SUCCEEDED:  # the attempts show the error, which is an old one
        shown["error_type"] = shown["error_text"] = None
    if job.body is not None:
        shown["body"] = output.shown_body(job)
    return {name: value for name, value in shown.items() if value not in (None, "", {}, ())}
