"""`pinlater job run-now`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import typer

from pinlater.cli import options, output
from pinlater.cli.commands.job.ack import exit_unless_applied
from pinlater.cli.each_queue import Results, change_each_queue
from pinlater.cli.ordering import behind_others
from pinlater.cli.queue_notes import say_if_paused
from pinlater.client import AckResult, AsyncClient, JobInfo, JobState, Outcome
from pinlater.client.errors import PinLaterError
from pinlater.domain.clock import SystemClock


def run_now(
    descriptors: options.Descriptors,
    attempts: Annotated[
        int, typer.Option("--attempts", min=1, help="Attempts that a failed job gets; a waiting one keeps its own.")
    ] = 1,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """Make waiting and failed jobs due now. Exit code 1 if any did not change.

    Example: pinlater job run-now emails:s1:p1:42
    """
    found = run_each_queue(server, timeout, descriptors, attempts, None)
    show_runs(found, json, "due now: {}")


class RunResult(NamedTuple):
    """The outcome for a job. `reason`: why it can't run again or now; '' if that is unknown."""

    result: AckResult
    reason: str = ""


def run_each_queue(
    server: str, timeout_s: float, descriptors: Sequence[str], attempts: int, run_after_ms: int | None
) -> Results[RunResult]:
    """Makes the jobs due, queue by queue. Notes if a queue is paused."""

    async def change(client: AsyncClient, queue: str, names: Sequence[str]) -> Sequence[RunResult]:
        results = await client.run_jobs(queue, names, attempts=attempts, run_after_ms=run_after_ms)
        if any(result.applied for result in results):
            await say_if_paused(client, queue)
        return await _with_reasons(client, queue, results)

    return change_each_queue(server, timeout_s, descriptors, change)


async def _with_reasons(client: AsyncClient, queue: str, results: Sequence[AckResult]) -> list[RunResult]:
    """Returns the results. The results of jobs that can't run have the reason, unless the jobs can't be looked up."""
    final = [result.descriptor for result in results if result.outcome is Outcome.ALREADY_FINAL]
    try:
        jobs = await client.lookup(final) if final else {}
    except PinLaterError:  # the caller must still learn what was changed
        jobs = {}
    behind = await behind_others(client, queue, results)
    return [
        RunResult(result, behind.get(result.descriptor) or _reason(jobs.get(result.descriptor))) for result in results
    ]


def _reason(job: JobInfo | None) -> str:
    """Why it can't run again; '' if that is not certain: this machine's clock may be behind the servers'."""
    if job is None:
        return ""
    if job.state is JobState.SUCCEEDED:
        return "succeeded before"
    if job.expires_at_ms is not None:
        has_expired = job.expires_at_ms <= SystemClock().now_ms()
        return f"expired at {output.iso(job.expires_at_ms)}" if has_expired else ""
    return f"another job has its unique key {job.unique_key!r}" if job.unique_key else ""


def show_runs(found: Results[RunResult], as_json: bool, done: str) -> None:
    """Prints the result of each job. `done`: a sentence about the job, which replaces the braces. Exit code 1 if any did not
    change."""
    found.show(lambda runs: _print(runs, as_json, done))
    exit_unless_applied([run.result for run in found.done])


def _print(runs: Sequence[RunResult], as_json: bool, done: str) -> None:
    if as_json:
        output.print_json(
            {"results": [{**output.result_json(run.result), "reason": run.reason or None} for run in runs]}
        )
    else:
        output.print_text([_said(run, done) for run in runs])


def _said(run: RunResult, done: str) -> str:
    result = run.result
    if result.applied:
        return done.format(result.descriptor)
    if result.outcome is Outcome.STALE_CLAIM and not run.reason:
        return f"held by {output.source_of(result.holder) or 'a worker'}: {result.descriptor}"
    return f"{run.reason or _WORDS[result.outcome]}: {result.descriptor}"


_WORDS = {
    Outcome.ALREADY_FINAL: "succeeded or expired before, or its unique key is taken",
    Outcome.NOT_FOUND: "no such job",
    Outcome.ERROR: "unchanged",
}
