"""`pinlater job failures`."""

from __future__ import annotations

from typing import Annotated

import typer

from pinlater.cli import notes, options, output
from pinlater.cli.call import ServerCall
from pinlater.client import AsyncClient, FailureGroup, FailureGroups
from pinlater.client._many_failures import failures_of_many
from pinlater.domain.clock import SystemClock
from pinlater.domain.failures import MUTED_MS_MAX, is_group_name

_COLUMNS: output.Columns[FailureGroup] = {
    "group": lambda group: group.name,
    "queue": lambda group: group.queue,
    "task": lambda group: group.task or None,
    "error": lambda group: ": ".join(part for part in (group.error_type, group.pattern) if part) or None,
    "failures": lambda group: group.failures,
    "last 24 hours": lambda group: sum(group.hours),
    "first": lambda group: output.iso(group.first_ms),
    "last": lambda group: output.iso(group.last_ms),
    "newest job": lambda group: group.sample,
    "muted until": lambda group: output.iso(group.muted_until_ms or None),
}


def failures(
    call: ServerCall,
    queues: options.QueueNames = None,
    mute: Annotated[
        list[str] | None, typer.Option(metavar="GROUP", help="Mute this group of the queue; may be repeated.")
    ] = None,
    unmute: Annotated[list[str] | None, typer.Option(metavar="GROUP", help="End that; may be repeated.")] = None,
    span: Annotated[
        str, typer.Option("--for", metavar="SPAN", help="How long --mute lasts: 12h, 7d; at most 30d.")
    ] = "30d",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="The most groups to show.")] = 50,
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

    found = call.ask(ask)
    shown = found.groups[:limit]

    def print_text() -> None:
        if changes:
            output.print_lines([_done(*change) for change in changes])
        else:
            output.print_blocks(_COLUMNS, shown, without_rows="no failed attempts in the last 30 days")

    call.answer({"groups": [group._asdict() for group in shown], "incomplete": found.incomplete}, print_text)
    if not changes and not call.json:
        if len(found.groups) > limit:
            notes.write(f"{len(found.groups) - limit} more groups: raise --limit")
        if found.incomplete:
            output.warn_incomplete("a shard is unreachable, and its failures are not counted")
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
