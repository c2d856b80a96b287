"""`pinlater shards ...`: lists shards and their state, and takes one out of service for good.

Reads the settings and the shard file as `serve` does, and queries the databases themselves, so that it works while no server runs, or
while one doesn't answer. Changes nothing but the shard file, with a note of its user for the audit; the servers read both by themselves.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pinlater.cli import exits, notes, output
from pinlater.cli.call import CommandReply
from pinlater.cli.local_user import local_author
from pinlater.cli.server_settings import StoreOptions, load_settings
from pinlater.cli.server_views import ServerView, ask_pages, ask_servers
from pinlater.cli.shard_queries import (
    Seen,
    as_json,
    find_lost,
    forget_timed_keys,
    look_at,
    places_of,
)
from pinlater.cli.shard_standstill import DrainStandstill, why_jobs_remain
from pinlater.cli.shard_status import LOST, print_status, refuse_to_drain, refuse_to_remove, status_as_json
from pinlater.client._servers import SERVERS_VARIABLE
from pinlater.domain.clock import SystemClock
from pinlater.domain.errors import PinLaterError
from pinlater.domain.wording import counted

if TYPE_CHECKING:
    from pinlater.server.config.load import Loaded
    from pinlater.server.config.settings import Settings
    from pinlater.server.config.shard_entry import ConfiguredShard
    from pinlater.server.storage.offline import Look

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The shard's name (1, or s1 as in descriptors), or its key in the file.")
]

_NAMES = ["shard", "key", "address", "dequeue only"]
_LOOK_EVERY_S = 0.5
_QUEUES_NAMED_MAX = 5
# A server that reads its files at the last moment has applied the change by then.
_SLACK_MS = 2_000


def list_shards(reply: CommandReply, place: StoreOptions) -> None:
    """List the shards of the settings or of the shard file. Shows those that are marked as lost, too. Asks no database.

    Example: pinlater shards list --shards shards.json
    """
    settings = place.settings(driver_needed=False)
    found = [*places_of(settings), *find_lost(settings)]
    reply.answer({"shards": list(map(as_json, found))}, lambda: output.print_table(_NAMES, list(map(_row, found))))


def _row(shard: ConfiguredShard) -> output.Row:
    return (shard.name, shard.key or None, str(shard.endpoint), LOST if shard.lost else not shard.takes_enqueues)


def status(
    reply: CommandReply,
    context: typer.Context,
    place: StoreOptions,
    server: Annotated[
        str | None,
        typer.Option(
            "--server",
            "-s",
            envvar=SERVERS_VARIABLE,
            metavar="HOST:PORT",
            help="Also ask this server which shards it uses; of several with commas between, the first that uses these shards.",
        ),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Ask the HTTP port of a server instead. Default without a server: the one in the settings, if they name one.",
        ),
    ] = None,
) -> None:
    """Show whether each shard answers, and what it holds. Shows its schema, its servers, its jobs and its size, which promise its
    database does not keep, and whether the server at --server uses it. The answer of a server that uses other shards does not count.

    Example: pinlater shards status --shards shards.json --server 127.0.0.1:9010 --json
    """
    source = context.get_parameter_source("server")
    named = source is not None and source.name == "COMMANDLINE"
    if named and http is not None:
        raise typer.BadParameter("--server and --http exclude each other", param_hint="--http")
    if http is not None and "," in http:
        raise typer.BadParameter("--http takes the HTTP port of one server", param_hint="--http")
    loaded = load_settings(place.config, None, {"store": place.named})
    settings = loaded.settings
    seen = asyncio.run(look_at(places_of(settings), settings))
    lost = [Seen(place, None, None) for place in find_lost(settings)]
    configured = None if named else _configured_http(loaded)
    view = _view(None if http else server, http or configured, seen, settings.database.connect_timeout_ms / 1000)
    shown = [*seen, *lost]
    reply.answer(
        {
            "server": None if view is None else view._asdict(),
            "shards": [status_as_json(shard, view) for shard in shown],
        },
        lambda: print_status(shown, view, settings.jobs.max_body_bytes),
    )
    if any(shard.look is None for shard in seen):
        raise typer.Exit(exits.BUSY)
    if (named or http is not None) and view is not None and view.problem is not None:
        raise typer.Exit(exits.REFUSED)


def _view(server: str | None, http: str | None, seen: Sequence[Seen], timeout_s: float) -> ServerView | None:
    """Returns the view of the server, from its HTTP port if the Thrift port does not serve these shards, or None if there is no server to
    ask.
    """
    view = None if server is None else ask_servers(server, seen, timeout_s)
    if http is None or (view is not None and view.in_use is not None):
        return view
    of_pages = ask_pages(http, seen, timeout_s)
    return of_pages if view is None or of_pages.in_use is not None else view


def _configured_http(loaded: Loaded) -> str | None:
    """Returns the HTTP address from file, environment or flags, or None for the default, which may belong to any server."""
    if loaded.origins["http.port"].source == "default":
        return None
    settings = loaded.settings.http
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::") else settings.host  # noqa: S104 - compared only
    return f"{host}:{settings.port}"


def drain(
    reply: CommandReply,
    name: Name,
    place: StoreOptions,
    undo: Annotated[bool, typer.Option("--undo", help="Allow enqueues on the shard again.")] = False,
    anyway: Annotated[
        bool,
        typer.Option(
            "--anyway",
            help="Drain a shard that does not answer, too. Servers may then refuse all unique keys until it does.",
        ),
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Show the number of live jobs until there are none.")
    ] = True,
) -> None:
    """Give a shard no new jobs, while workers finish its jobs. Writes dequeueOnly into the shard file. Afterwards `remove` removes the
    shard. If the number of live jobs stands still, some of them are named, with the reason. Refused if the shard does not answer.

    Example: pinlater shards drain 3 --shards shards.json --no-wait
    """
    settings = place.settings(driver_needed=not undo)
    places = places_of(settings)
    chosen = _chosen(name, places, settings)
    if not undo and not any(place.takes_enqueues for place in places if place not in chosen):
        exits.fail(f"{name} can't drain: no other shard takes enqueues", exits.REFUSED)
    if any(place.takes_enqueues != undo for place in chosen):
        if not undo and not anyway:
            refuse_to_drain(name, asyncio.run(look_at(chosen, settings)))
        _edit(settings, chosen, flag="dequeueOnly", value=not undo)
    left = None if undo else asyncio.run(_wait_until_empty(chosen, settings, wait=wait, quiet=reply.json))
    _answer_drained(reply, name, chosen, left)


async def _wait_until_empty(
    chosen: Sequence[ConfiguredShard], settings: Settings, *, wait: bool, quiet: bool
) -> list[Seen]:
    """Repeats the check; an empty shard counts once every server has had the time to learn that it drains."""
    said = ""
    standstill = DrainStandstill()
    while True:
        seen = await look_at(chosen, settings)
        text = _left(seen)
        if wait and not quiet:
            if text != said:
                output.print_text([text])
            if not said:
                notes.write(_waits_for(seen))
        said = text
        if wait and not quiet and standstill.begins(text):
            output.print_text(await why_jobs_remain(seen, settings))
        empty = all(shard.look is not None and not shard.look.live for shard in seen)
        if not wait or (empty and not _too_early_ms(settings)):
            return seen
        await asyncio.sleep(_LOOK_EVERY_S)


def _waits_for(seen: Sequence[Seen]) -> str:
    """Prints what the command waits for, and how to avoid the wait."""
    silent = [shard.place.name for shard in seen if shard.look is None]
    until = "no live jobs are left"
    if silent:
        until = f"shard {', '.join(silent)} answers and has no live jobs"
    return f"the file is changed; waiting until {until}. Ctrl-C ends only the display; with `--no-wait` there is no waiting"


def _left(seen: Sequence[Seen]) -> str:
    parts = [f"{shard.place.name}: " + ("unreachable" if shard.look is None else _live(shard.look)) for shard in seen]
    return ", ".join(parts)


def _live(look: Look) -> str:
    """Prints how many live jobs there are, and in which queues, the fullest first."""
    queues: Counter[str] = Counter()
    for row in look.counts:
        queues[row.queue] += row.counts.pending + row.counts.in_progress
    named = [f"{queue} {jobs}" for queue, jobs in queues.most_common(_QUEUES_NAMED_MAX) if jobs]
    more = sum(jobs > 0 for jobs in queues.values()) - len(named)
    where = ", ".join(named) + (f" and {counted(more, 'more queue')}" if more else "")
    return f"{counted(look.live, 'live job')} left" + (f" ({where})" if where else "")


def _answer_drained(
    reply: CommandReply, name: str, chosen: Sequence[ConfiguredShard], seen: Sequence[Seen] | None
) -> None:
    """`seen`: the shards that drain, or None for those that take enqueues again."""
    found = {"shards": [place.name for place in chosen], "dequeue_only": seen is not None}
    if seen is None:
        reply.answer(found, [f"{name} takes enqueues again, as soon as the servers have looked at the file"])
        return
    live = [None if shard.look is None else shard.look.live for shard in seen]
    if any(jobs != 0 for jobs in live):
        told = f"{name} drains; {_left(seen)}"
    elif held := [str(shard.look.timed_keys) for shard in seen if shard.look and shard.look.timed_keys.number]:
        told = f"{name} is empty, but holds {'; '.join(held)}. Run `pinlater shards remove {name}` after that time"
    else:
        told = f"{name} is empty; `pinlater shards remove {name}` removes it"
    reply.answer({**found, "live": live}, [told])


def remove(
    reply: CommandReply,
    name: Name,
    place: StoreOptions,
    lose_keys: Annotated[
        bool,
        typer.Option(
            "--lose-keys", help="Delete unique keys for a time that have not ended: their jobs can come again."
        ),
    ] = False,
    lost: Annotated[
        bool,
        typer.Option(
            "--lost",
            help="Give up a shard that does not answer, with all its jobs and keys: its data are lost for good, and there is no backup.",
        ),
    ] = False,
) -> None:
    """Remove a drained shard from the shard file. Refused while it holds live jobs or unique keys for a time. Its finished jobs cannot be
    looked up afterwards. With --lost, the entry stays and is marked; a new shard needs another name.

    Example: pinlater shards remove 3 --shards shards.json
    """
    settings = place.settings()
    places = places_of(settings)
    chosen = _chosen(name, places, settings)
    if lost:
        _give_up(reply, name, chosen, places, settings)
        return
    seen = asyncio.run(look_at(chosen, settings))
    refuse_to_remove(name, seen)
    if any(place.takes_enqueues for place in chosen):
        exits.fail(f"{name} takes enqueues: `pinlater shards drain {name}` first", exits.REFUSED)
    early_ms = _too_early_ms(settings)
    if early_ms:
        exits.fail(
            f"the file was changed just now, and servers may not know it yet: again in {early_ms / 1000:.0f} s",
            exits.BUSY,
        )
    for shard in seen:
        if shard.look is not None:
            _check_removable(shard.place.name, shard.look, lose_keys=lose_keys)
    keys_lost = asyncio.run(_forget_keys(chosen, settings)) if lose_keys else 0
    _edit(settings, chosen)
    finished = sum(shard.look.finished for shard in seen if shard.look is not None)
    names = [place.name for place in chosen]
    kept = f"finished jobs that remain in its database: {finished}"
    kept += f", unique keys that were deleted: {keys_lost}" if keys_lost else ""
    reply.answer(
        {"removed": names, "finished": finished, "keys_lost": keys_lost}, [f"removed {', '.join(names)} ({kept})"]
    )


def _check_removable(name: str, look: Look, *, lose_keys: bool) -> None:
    """Ends the command if the shard has data that would be lost with it."""
    if look.live:
        exits.fail(f"{name} still holds {counted(look.live, 'live job')}, and stays in the file", exits.BUSY)
    if look.timed_keys.number and not lose_keys:
        exits.fail(
            f"{name} still holds {look.timed_keys}, and stays in the file. --lose-keys deletes them; "
            "jobs with these keys then count as new",
            exits.BUSY,
        )


def _give_up(
    reply: CommandReply,
    name: str,
    chosen: Sequence[ConfiguredShard],
    places: Sequence[ConfiguredShard],
    settings: Settings,
) -> None:
    """Marks the shard as lost, unless it answers with data, or no other shard takes enqueues."""
    if not any(place.takes_enqueues for place in places if place not in chosen):
        exits.fail(f"{name} can't be given up: no other shard takes enqueues; add one first", exits.REFUSED)
    for shard in asyncio.run(look_at(chosen, settings)):
        if shard.look is not None and shard.look.schema:
            exits.fail(
                f"{shard.place.name} answers, so its data are not lost: `pinlater shards drain {name}`, then "
                "`pinlater shards remove` without --lost",
                exits.REFUSED,
            )
    _edit(settings, chosen, flag="lostForGood")
    names = [place.name for place in chosen]
    within = f"{settings.maintenance.file_interval_ms / 1000:.0f} s"
    told = (
        f"{', '.join(names)} is marked as lost: servers give it up, with all its jobs, within {within}. Its entry stays in the file, "
        "so that no new shard gets its name"
    )
    reply.answer({"removed": names, "lost": True}, [told])


async def _forget_keys(chosen: Sequence[ConfiguredShard], settings: Settings) -> int:
    """Deletes the keys on the shard itself, so that servers that still use it release it."""
    try:
        return sum([await forget_timed_keys(place, settings) for place in chosen])
    except PinLaterError as error:
        exits.fail(f"the unique keys can't be deleted: {error.message}", exits.BUSY)


# --- the shard file -----------------------------------------------------------------------------------------------------


def _chosen(name: str, places: Sequence[ConfiguredShard], settings: Settings) -> list[ConfiguredShard]:
    """All shards of the replica set that `name` means; ends the command if there is none, or if only some of its shards are meant."""
    if settings.store.shard_file is None:
        exits.fail("a store named by a URL has one shard; only a shard file has several to choose from", exits.REFUSED)
    found = next((place for place in places if name in (place.name, place.key)), None)
    if found is None:  # it may be named as in descriptors
        found = next((place for place in places if name == f"s{place.name}"), None)
        name = name if found is None else found.name
    if found is None:
        first, names = places[0].name, ", ".join(place.name for place in places)
        if any(name in (place.name, place.key, f"s{place.name}") for place in find_lost(settings)):
            exits.fail(f"{name} is marked as lost (lostForGood); the other shards are {names}", exits.REFUSED)
        exits.fail(f"there is no shard {name}, only {names} (s{first} in a descriptor is shard {first})", exits.REFUSED)
    chosen = [place for place in places if place.key == found.key]
    if name not in (found.key, chosen[0].name):
        exits.fail(
            f"{name} is one of the databases of {found.key}, which drain together: name {chosen[0].name}", exits.REFUSED
        )
    return chosen


def _edit(settings: Settings, chosen: Sequence[ConfiguredShard], *, flag: str = "", value: bool = True) -> None:
    """Sets a flag in the entry of these shards, or removes the entry if no flag is given."""
    from pinlater.server.config.file_authors import note_author
    from pinlater.server.config.shard_edit import read_text, replace_text, with_flag, without_entry

    path, key = settings.store.shard_file or Path(), chosen[0].key
    try:
        before = read_text(path)
        after = with_flag(before, key, flag, value) if flag else without_entry(before, key)
        note_author(path, [shard.name for shard in chosen], local_author(), before.encode(), after.encode())
        replace_text(path, before, after)
    except OSError as error:
        exits.fail(f"{path} can't be written: {error.strerror or error}", exits.REFUSED)
    except ValueError as error:
        exits.fail(str(error), exits.REFUSED)


def _too_early_ms(settings: Settings) -> int:
    """How long it takes until every server has read the file as it is."""
    path = settings.store.shard_file or Path()
    age_ms = SystemClock().now_ms() - int(path.stat().st_mtime * 1000)
    return max(0, settings.maintenance.file_interval_ms + _SLACK_MS - max(0, age_ms))
