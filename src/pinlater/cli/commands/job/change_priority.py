"""`pinlater job change-priority`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from pinlater.cli import exits, options, output
from pinlater.cli.each_queue import change_each_queue
from pinlater.cli.ordering import behind_others
from pinlater.client import AsyncClient, MovedJob
from pinlater.domain.job import Outcome


def change_priority(
    descriptors: options.Descriptors,
    priority: Annotated[int, typer.Option("--priority", min=1, max=127, help="That the jobs get; 1 is the highest.")],
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """Give waiting or failed jobs another priority. Their descriptors change with it. Exit code 1 if any did not change. A repeat is
    safe.

    Example: pinlater job change-priority emails:s1:p3:42 --priority 1
    """

    async def change(client: AsyncClient, queue: str, names: Sequence[str]) -> Sequence[tuple[MovedJob, str]]:
        results = await client.change_priority(queue, names, priority)
        behind = await behind_others(client, queue, results)
        return [(result, behind.get(result.descriptor, "")) for result in results]

    found = change_each_queue(server, timeout, descriptors, change)
    found.show(lambda results: _print(results, priority, json))
    if not all(result.applied for result, _ in found.done):
        raise typer.Exit(exits.REFUSED)


def _print(results: Sequence[tuple[MovedJob, str]], priority: int, as_json: bool) -> None:
    """Prints results, each with the reason why the job did not change; '' if the result itself shows it."""
    if as_json:
        shown = [{**output.moved_json(result), "reason": reason or None} for result, reason in results]
        output.print_json({"results": shown})
    else:
        output.print_text([_said(result, reason, priority) for result, reason in results])


def _said(result: MovedJob, reason: str, priority: int) -> str:
    if reason:
        return f"{reason}: {result.descriptor}"
    if result.outcome is Outcome.STALE_CLAIM:
        return f"held by {output.source_of(result.holder) or 'a worker'}: {result.descriptor}"
    if not result.applied:
        return f"{_WORDS[result.outcome]} {result.descriptor}"
    if result.moved_to == result.descriptor:
        return f"has priority {priority} already: {result.descriptor}"
    return f"moved to {result.moved_to}"


_WORDS = {Outcome.ALREADY_FINAL: "succeeded before:", Outcome.NOT_FOUND: "no such job:"}
