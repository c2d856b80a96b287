"""`pinlater job delete`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from pinlater.cli import options
from pinlater.cli.commands.job.retry import (
    SCAN_ENDED,
    UNREACHABLE,
    Changed,
    Limit,
    change_in_pieces,
    count_left,
    print_changed,
)
from pinlater.cli.queue_notes import say_if_no_group
from pinlater.client import AsyncClient, Scanned
from pinlater.client._job_scan import ScanFilter, scan_by_task


def delete_jobs(
    queue: options.QueueIfAny = None,
    state: options.StateIfAny = None,
    descriptor: Annotated[
        list[str] | None, typer.Option("--descriptor", "-d", help="These jobs, in whatever state; may be repeated.")
    ] = None,
    priority: options.Priority = None,
    task: options.OfTask = None,
    header: options.WithHeader = None,
    error: options.WithError = None,
    min_attempts: options.MinAttempts = None,
    older_than: options.OlderThan = None,
    newer_than: options.NewerThan = None,
    group: options.OfGroup = None,
    regex: options.Regex = None,
    limit: Limit = 1000,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """Delete jobs of one state, or the jobs of --descriptor. Prints their number.

    With --task, --header, --error, --min-attempts or an age it deletes the jobs that `job list` shows, newest first, also if one of them
    has just changed its state.

    Example: pinlater job delete emails --state failed --regex 'example\\.org'
    """
    if state is not None and descriptor:
        raise typer.BadParameter("--state and --descriptor exclude each other")
    if state is None and not descriptor:
        raise typer.BadParameter(
            f"delete needs the state of the jobs: {options.STATES}; or name jobs with --descriptor",
            param_hint="--state",
        )
    of_queue = options.queue_of(queue, descriptor)
    wanted = options.criteria(task, header, error, min_attempts, older_than, newer_than, group)
    if state is None and not wanted.of_any_job:
        raise typer.BadParameter("--descriptor excludes the options that choose jobs")

    async def ask_for_some(client: AsyncClient) -> Changed:
        assert state is not None  # noqa: S101 - checked above
        descriptors: list[str] = []
        incomplete = False
        for future in (False, True) if state is options.State.PENDING else (False,):
            left = limit - len(descriptors)
            request = ScanFilter(state.wire, priority, future, regex)
            found = await scan_by_task(client, of_queue, request, wanted, left) if left else Scanned([], "", False)
            descriptors += [job.descriptor for job in found.jobs]
            incomplete |= found.incomplete

        async def delete(piece: Sequence[str]) -> int:
            return await client.delete_jobs_by_descriptor(of_queue, piece)

        deleted = await change_in_pieces("deleted", descriptors, delete, json)
        if not descriptors:
            await say_if_no_group(client, of_queue, wanted.group)
        return Changed(deleted, incomplete, more=len(descriptors) == limit)

    if not wanted.of_any_job:
        print_changed("deleted", options.ask(server, timeout, ask_for_some), json, SCAN_ENDED)
        return

    async def ask(client: AsyncClient) -> Changed:
        if state is None:
            return Changed(await client.delete_jobs_by_descriptor(of_queue, descriptor or []), incomplete=False)
        number = await client.delete_jobs(of_queue, state.wire, priority=priority, regex=regex, limit=limit)
        left = await count_left(client, of_queue, state, priority)
        more = number == limit and (left.jobs > 0 or left.incomplete)
        return Changed(number, left.incomplete, more)

    print_changed("deleted", options.ask(server, timeout, ask), json, UNREACHABLE)
