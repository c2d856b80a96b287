"""`pinlater job delete`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from pinlater.cli import notes, options
from pinlater.cli.commands.bulk import show_fitting
from pinlater.cli.commands.job.retry import (
    UNREACHABLE,
    Changed,
    DryRun,
    Limit,
    change_found,
    count_left,
    print_changed,
)
from pinlater.cli.filter_options import ALL_JOBS, ChosenJobs, with_filter
from pinlater.cli.queue_notes import say_if_no_group
from pinlater.client import AsyncClient, BulkAction, BulkOrder, BulkState, JobFilter
from pinlater.client._filtered_jobs import wait_for_end
from pinlater.client.errors import CallerError, InvalidArgument, UnknownMethod
from pinlater.domain.errors import adding


@with_filter
def delete_jobs(
    queue: options.QueueIfAny = None,
    chosen: ChosenJobs = ALL_JOBS,
    state: options.StateIfAny = None,
    descriptor: Annotated[
        list[str] | None, typer.Option("--descriptor", "-d", help="These jobs, in whatever state; may be repeated.")
    ] = None,
    limit: Limit = 1000,
    for_good: Annotated[
        bool, typer.Option("--for-good", help="Delete chosen jobs without copies: frees space at once; no undo.")
    ] = False,
    dry_run: DryRun = False,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """Delete jobs of one state, or the jobs of --descriptor. Prints their number.

    With an option that chooses jobs, other than --priority, it deletes the jobs that `job list` shows, newest first, by a bulk run:
    `bulk undo` brings them back for a day. Other deletes, and those with --for-good, cannot be undone.

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
    if state is None:
        if not chosen.is_all or dry_run:
            raise typer.BadParameter("--descriptor excludes --dry-run and the options that choose jobs")
        deleted = options.ask(server, timeout, lambda c: c.delete_jobs_by_descriptor(of_queue, descriptor or []))
        print_changed("deleted", Changed(deleted, incomplete=False), json)
        return
    wanted = chosen.of(state.wire)
    if dry_run:
        show_fitting(server, timeout, of_queue, wanted, json, limit)
        return

    async def ask(client: AsyncClient) -> Changed:
        if wanted.is_plain or (for_good and not wanted.compares):
            return await _delete_by_state(client, of_queue, state, wanted, limit)
        if not for_good:
            return await _delete_by_run(client, of_queue, wanted, limit, json)

        async def delete(piece: Sequence[str]) -> int:
            return await client.delete_jobs_by_descriptor(of_queue, piece, state=wanted.state)

        return await change_found("deleted", client, of_queue, wanted, delete, limit, json)

    changed = options.ask(server, timeout, ask)
    print_changed("deleted", changed, json, "" if changed.run else UNREACHABLE)


async def _delete_by_state(
    client: AsyncClient, queue: str, state: options.State, wanted: JobFilter, limit: int
) -> Changed:
    number = await client.delete_jobs(queue, wanted.state, priority=wanted.priority, regex=wanted.regex, limit=limit)
    left = await count_left(client, queue, state, wanted.priority)
    more = number == limit and (left.jobs > 0 or left.incomplete)
    return Changed(number, left.incomplete, more)


async def _delete_by_run(client: AsyncClient, queue: str, wanted: JobFilter, limit: int, as_json: bool) -> Changed:
    """Deletes by a bulk run, and waits for its end. If the command is stopped, the run continues, and its id has been printed."""
    try:
        run = await client.start_bulk_run(BulkOrder(queue, BulkAction.DELETE, wanted, max_jobs=limit))
    except CallerError as error:
        if isinstance(error, UnknownMethod) or error.detail == "TOO_MANY":
            raise adding(error, " (--for-good deletes without a bulk run)") from None
        raise
    notes.write(
        f"run {run.id} deletes the jobs, also if this command ends; `pinlater bulk stop {queue} {run.id}` stops it"
    )
    run = await wait_for_end(client, run, tell=lambda detail: notes.write(f"run {run.id} {detail}"))
    if run.state is BulkState.FAILED:
        raise InvalidArgument(f"run {run.id} failed after {run.changed} jobs: {run.detail}")
    if run.detail:
        notes.write(f"run {run.id}: {run.detail}")
    if run.state is BulkState.STOPPED:
        notes.write(f"run {run.id} was stopped before its end")
    if not run.changed:
        await say_if_no_group(client, queue, wanted.group)
    elif not as_json:
        notes.write(f"for a day, `pinlater bulk undo {queue} {run.id}` brings them back")
    return Changed(run.changed, run.state is not BulkState.DONE, run.changed >= limit, run.id)
