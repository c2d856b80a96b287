"""`pinlater job failures`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from pinlater.cli import notes, options, output
from pinlater.client import AsyncClient, FailureGroup, FailureGroups
from pinlater.client._many_failures import failures_of_many
from pinlater.domain.clock import SystemClock
from pinlater.domain.failures import MUTED_MS_MAX, is_group_name


def failures(
    queues: options.QueueNames = None,
    mute: Annotated[
        list[str] | None,
        typer.Option("--mute", metavar="GROUP", help="Mute this group of the queue; may be repeated."),
    ] = None,
    unmute: Annotated[
        list[str] | None, typer.Option("--unmute", metavar="GROUP", help="End that; may be repeated.")
    ] = None,
    span: Annotated[
        str, typer.Option("--for", metavar="SPAN", help="How long --mute lasts: 12h, 7d; at most 30d.")
    ] = "30d",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="The most groups to show.")] = 50,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """Show failed attempts in groups that look alike. Groups with the most attempts of the last 24 hours come first. Without QUEUE, it
    shows all queues.

    A muted group comes last, and is still counted. `job retry --group NAME` retries the failed jobs of a group. `job list`
    and `job delete` take --group, too, with --state failed.

    With --mute or --unmute it says only what it did; with --json, the groups.

    Example: pinlater job failures emails
    """

    changes = _changes(queues or [], mute or [], unmute or [], span)

    async def ask(client: AsyncClient) -> FailureGroups:
        for queue, group, until_ms in changes:
            await client.mute_failures(queue, group, until_ms=until_ms)
        found = await failures_of_many(client, queues or sorted(await client.queue_names()))
        return FailureGroups(found.groups, found.incomplete)

    found = options.ask(server, timeout, ask)
    if changes and not json:
        output.print_lines([_done(*change) for change in changes])
    else:
        _print(found, limit, json)
    names = {group.name for group in found.groups}
    for queue, group, _ in changes:
        if group not in names and not found.incomplete:
            notes.note(f"{queue} has no group {group} now")


def _changes(queues: list[str], mute: list[str], unmute: list[str], span: str) -> list[tuple[str, str, int]]:
    """Returns what to mute, and until when; 0 ends a mute. A missing queue or an invalid name is a usage error."""
    if not mute and not unmute:
        return []
    if len(queues) != 1:
        raise typer.BadParameter("name the one queue of the group", param_hint="QUEUE")
    for group in (*mute, *unmute):
        if not is_group_name(group):
            raise typer.BadParameter(
                f"{group!r} is not the name of a group: 16 hexadecimal digits", param_hint="--mute"
            )
    span_ms = options.span_ms(span, "--for") or 0
    if not 0 < span_ms <= MUTED_MS_MAX:
        raise typer.BadParameter(f"{span!r} must be more than 0 and at most 30d", param_hint="--for")
    until_ms = SystemClock().now_ms() + span_ms
    return [(queues[0], group, until_ms) for group in mute] + [(queues[0], group, 0) for group in unmute]


def _done(queue: str, group: str, until_ms: int) -> str:
    return f"muted {group} of {queue} until {output.iso(until_ms)}" if until_ms else f"unmuted {group} of {queue}"


def _print(found: FailureGroups, limit: int, as_json: bool) -> None:
    shown = found.groups[:limit]
    if as_json:
        output.print_json({"groups": [group._asdict() for group in shown], "incomplete": found.incomplete})
        return
    output.print_blocks(
        ["group", "queue", "task", "error", "failures", "last 24 hours", "first", "last", "newest job", "muted until"],
        [_row(group) for group in shown],
        without_rows="no failed attempts in the last 30 days",
    )
    if len(found.groups) > limit:
        notes.write(f"{len(found.groups) - limit} more groups: raise --limit")
    if found.incomplete:
        output.warn_incomplete("a shard is unreachable, and its failures are not counted")


def _row(group: FailureGroup) -> Sequence[object]:
    return (
        group.name,
        group.queue,
        group.task or None,
        ": ".join(part for part in (group.error_type, group.pattern) if part) or None,
        group.failures,
        sum(group.hours),
        output.iso(group.first_ms),
        output.iso(group.last_ms),
        group.sample,
        output.iso(group.muted_until_ms or None),
    )
