"""`pinlater run-now`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from pinlater.cli import options, output
from pinlater.cli.commands.ack import exit_unless_applied, print_results_json
from pinlater.cli.each_queue import Results, change_each_queue
from pinlater.client import AckResult, AsyncClient
from pinlater.domain.job import Outcome


def run_now(
    descriptors: options.Descriptors,
    attempts: Annotated[
        int, typer.Option("--attempts", min=1, help="Attempts that a failed job gets; a waiting one keeps its own.")
    ] = 1,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """Make jobs due now: waiting jobs whose time has not come, and failed jobs. Exit code 1 if any did not change.

    Example: pinlater run-now emails:s1:p1:42
    """
    found = run_each_queue(server, timeout, descriptors, attempts, None)
    found.show(lambda results: print_runs(results, json, "due now: {}"))
    exit_unless_applied(found.done)


def run_each_queue(
    server: str, timeout_s: float, descriptors: Sequence[str], attempts: int, run_after_ms: int | None
) -> Results[AckResult]:
    """Makes the jobs due, queue by queue."""

    async def change(client: AsyncClient, queue: str, names: Sequence[str]) -> Sequence[AckResult]:
        return await client.run_jobs(queue, names, attempts=attempts, run_after_ms=run_after_ms)

    return change_each_queue(server, timeout_s, descriptors, change)


def print_runs(results: Sequence[AckResult], as_json: bool, done: str) -> None:
    """Prints the result of each job. `done`: what happened to the job that takes the place of the braces."""
    if as_json:
        print_results_json(results)
    else:
        output.print_text([_said(result, done) for result in results])


def _said(result: AckResult, done: str) -> str:
    if result.applied:
        return done.format(result.descriptor)
    if result.outcome is Outcome.STALE_CLAIM:
        return f"held by {output.source_of(result.holder) or 'a worker'}: {result.descriptor}"
    return f"{_WORDS[result.outcome]} {result.descriptor}"


_WORDS = {
    Outcome.ALREADY_FINAL: "succeeded or expired before, or its unique key is taken:",
    Outcome.NOT_FOUND: "no such job:",
    Outcome.ERROR: "unchanged:",
}
