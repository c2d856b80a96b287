"""`pinlater run-now`."""

from __future__ import annotations

from typing import Annotated

import typer

from pinlater.cli import options, output
from pinlater.cli.commands.ack import exit_unless_applied
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
    print_runs(options.ask(server, timeout, lambda client: run_all(client, descriptors, attempts, None)), json)


async def run_all(
    client: AsyncClient, descriptors: list[str], attempts: int, run_after_ms: int | None
) -> list[AckResult]:
    """The result of each job, queue by queue."""
    results: list[AckResult] = []
    for queue, names in options.by_queue(descriptors).items():
        results += await client.run_jobs(queue, names, attempts=attempts, run_after_ms=run_after_ms)
    return results


def print_runs(results: list[AckResult], as_json: bool) -> None:
    """Prints the result of each job; exit code 1 if any did not change."""
    if as_json:
        output.print_json({"results": [output.result_json(result) for result in results]})
    else:
        output.print_text([_said(result) for result in results])
    exit_unless_applied(results)


def _said(result: AckResult) -> str:
    if result.outcome is Outcome.STALE_CLAIM:
        return f"held by {output.source_of(result.holder) or 'a worker'}: {result.descriptor}"
    return f"{_WORDS[result.outcome]} {result.descriptor}"


_WORDS = {
    Outcome.APPLIED: "due",
    Outcome.ALREADY_FINAL: "succeeded or expired before, or its unique key is taken:",
    Outcome.NOT_FOUND: "no such job:",
    Outcome.ERROR: "unchanged:",
}
