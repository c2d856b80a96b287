"""`pinlater server import-original`: the waiting jobs of an original PinLater's MySQL tables, copied into a running server.

It uses the server's public API, so it works for every store and while the server is in use. `Copy` explains how each job is copied once.
"""

from __future__ import annotations

import asyncio
import csv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pinlater.cli import exits, notes, options, output
from pinlater.cli.call import CommandReply, ServerCall
from pinlater.cli.commands.server.import_original.progress import Progress
from pinlater.cli.commands.server.import_original.servers import old_servers
from pinlater.client import AsyncClient
from pinlater.domain.clock import SystemClock
from pinlater.domain.job import JobState
from pinlater.domain.wording import counted
from pinlater.import_original.copy import TOO_FAR, Copy, CopyCounts, CopyPlan, Imported, Told
from pinlater.import_original.old_server import PASSWORD_VARIABLE, OldServer, OriginalTls, SourceFailed

if TYPE_CHECKING:  # its driver is an extra
    from pinlater.import_original.source import Original

_LEFT = ("in_progress", "succeeded", "failed", "other")
_ORIGIN_MAX = 64
_WAITING = (JobState.PENDING,)


Origin = Annotated[
    str, typer.Option("--origin", help="A name for the installation, where several with equal names are merged.")
]


def import_original(
    call: ServerCall,
    source: Annotated[
        list[str] | None,
        typer.Option(
            "--from", metavar="URL", help="The old database server, as mysql://USER@HOST:PORT/; may be repeated."
        ),
    ] = None,
    from_shards: Annotated[
        Path | None, typer.Option(metavar="FILE", help="All servers of the original's shard file, as its users.")
    ] = None,
    host_prefix: Annotated[
        str | None, typer.Option(help="Only keys of that file that begin so, before a number.")
    ] = None,
    password_file: Annotated[
        Path | None,
        typer.Option(
            help=f"Its first line is the database user's password. Else the environment's {PASSWORD_VARIABLE}."
        ),
    ] = None,
    queue: Annotated[list[str] | None, typer.Option(help="Only this queue of the original; may be repeated.")] = None,
    include_in_progress: Annotated[
        bool,
        typer.Option("--include-in-progress", help="Jobs IN_PROGRESS too, as waiting ones. Stop their workers first."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count; the new server isn't asked.")] = False,
    map_file: Annotated[
        Path | None, typer.Option("--map", metavar="FILE", help="Write old and new descriptors there, as CSV.")
    ] = None,
    remember: Annotated[
        str, typer.Option(help="How long the new server remembers what was copied, so that a run can be repeated.")
    ] = "30d",
    origin: Origin = "",
    retry_for: Annotated[str, typer.Option(help="How long a failure may last before it gives up.")] = "60s",
    tls: Annotated[bool, typer.Option("--tls", help="Talk TLS to the database.")] = False,
    tls_ca: Annotated[Path | None, typer.Option(help="TLS, with a certificate that this authority signed.")] = None,
    tls_any_host: Annotated[
        bool, typer.Option("--tls-any-host", help="Whatever host name the certificate is for.")
    ] = False,
) -> None:
    """Copy the waiting jobs of an original PinLater to a server. Reads the MySQL tables of the original, and counts the jobs.

    The tables are only read. Interrupted, or run again, it doubles nothing: begin it again in the same way until it ends with 0.

    Example: pinlater server import-original --from mysql://pinlater@olddb:3306/ --queue emails --dry-run
    """
    import_module("pinlater.import_original.source")  # fail for a missing driver before asking for a password
    plan = CopyPlan(
        queue or (),
        (*_WAITING, JobState.IN_PROGRESS) if include_in_progress else _WAITING,
        options.span_ms(remember, "--remember") or 0,
        (options.span_ms(retry_for, "--retry-for") or 0) / 1000,
        _checked_origin(origin),
    )
    how = OriginalTls(tls or tls_any_host or tls_ca is not None, tls_ca, check_hostname=not tls_any_host)
    if dry_run and map_file is not None:
        raise typer.BadParameter("--dry-run and --map exclude each other")
    found = old_servers(source or [], from_shards, host_prefix, password_file)
    client = None if dry_run else options.client_for(call.server, call.timeout, request_keys=False)
    _copy(call, plan, client, found, how, map_file)


def _copy(
    reply: CommandReply,
    plan: CopyPlan,
    client: AsyncClient | None,
    found: Sequence[OldServer],
    tls: OriginalTls,
    map_file: Path | None,
) -> None:
    """Copies, or counts if there is no client, and prints the result, even after a failure."""
    from pinlater.import_original.source import Original

    progress = Progress()
    with _map(map_file) as told:
        copy = Copy(plan, client, told, progress.show, SystemClock())
        originals = [Original(each, tls) for each in found]
        try:
            with exits.reported():
                asyncio.run(_run(copy, client, originals))
        except SourceFailed as failed:
            exits.fail(failed.message, exits.UNREACHABLE if failed.passing else exits.REFUSED)
        finally:
            progress.close()
            if copy.counts:
                answer_counts(reply, copy.counts, client is None)


async def _run(copy: Copy, client: AsyncClient | None, originals: Sequence[Original]) -> None:
    async with AsyncExitStack() as open_ones:
        for each in originals:
            await open_ones.enter_async_context(each)
        if client is not None:
            await open_ones.enter_async_context(client)
        await copy.run(originals)


def _checked_origin(name: str) -> str:
    if len(name.encode()) > _ORIGIN_MAX:
        raise typer.BadParameter(f"at most {_ORIGIN_MAX} bytes", param_hint="--origin")
    return name


@contextmanager
def _map(path: Path | None) -> Iterator[Told]:
    """Records the names of each batch once it is stored: in a new file, or nowhere."""
    if path is None:
        yield lambda _: None
        return
    try:
        file = path.open("w", encoding="utf-8", newline="")
    except OSError as error:
        exits.fail(f"{path}: {error.strerror}", exits.USAGE)
    with file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Imported._fields)

        def tell(names: Sequence[Imported]) -> None:
            writer.writerows(names)
            file.flush()

        yield tell


def answer_counts(reply: CommandReply, counts: Mapping[tuple[str, int], CopyCounts], dry_run: bool) -> None:
    """Prints what was found and copied, and notes what was left."""
    entries = sorted(counts.items())
    columns = ["queue", "priority", "found", "copied", "there already", *(f"left: {word}" for word in _LEFT)]
    reply.answer(
        {"dry_run": dry_run, "queues": [_counts_json(*entry) for entry in entries]},
        lambda: output.print_table(columns, [_row(*entry) for entry in entries]),
    )
    if reply.json:
        return
    running = sum(counts.left["in_progress"] for _, counts in entries)
    too_far = sum(counts.left[TOO_FAR] for _, counts in entries)
    if too_far:
        notes.note(
            f"{counted(too_far, 'job')} left in the original, since a server takes no job that is due in more than a year (366 days). "
            "Enqueue such jobs later, or with an earlier time."
        )
    if running:
        notes.note(
            f"{counted(running, 'job')} IN_PROGRESS left in the original, where workers may still run. "
            "Stop the workers, then take such jobs too with --include-in-progress."
        )


def _counts_json(key: tuple[str, int], counts: CopyCounts) -> dict[str, object]:
    left = {word: counts.left[word] for word in _LEFT}
    if counts.left[TOO_FAR]:
        left[TOO_FAR] = counts.left[TOO_FAR]
    counted = {"found": counts.found, "copied": counts.copied, "already_there": counts.already_there}
    return {"queue": key[0], "priority": key[1], **counted, "left": left}


def _row(key: tuple[str, int], counts: CopyCounts) -> tuple[object, ...]:
    return (*key, counts.found, counts.copied, counts.already_there, *(counts.left[word] for word in _LEFT))
