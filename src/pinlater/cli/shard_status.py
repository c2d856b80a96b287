"""How `shards` shows the reports of databases and a server, and refuses to drain or remove a shard that does not answer: the operator waits
for it, or gives it up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pinlater.cli import exits, notes, output
from pinlater.cli.server_views import ServerView
from pinlater.cli.shard_queries import Seen, as_json
from pinlater.client._servers import SERVERS_VARIABLE

LOST = "lost"
"""Shown instead of whether a shard is reachable, or whether it accepts enqueues."""
_ABOUT_LOST_SHARDS = '"A shard whose data are lost for good" in docs/how-to/operate-mysql.md'
_NO_DRAIN = (
    "Do not drain it: after a change of the shards, servers refuse all unique keys until it answers, and not only those "
    "that belong to it. "
)
_NO_SERVER = f"in use: no server was asked; --server HOST:PORT or {SERVERS_VARIABLE} names one"


def print_status(seen: Sequence[Seen], view: ServerView | None, max_body_bytes: int) -> None:
    """Prints a table of what the databases and the server report, followed by notes about single shards."""
    names = ["shard", "address", "reachable", "in use", "dequeue only", "schema", "servers", "live", "finished", "size"]
    output.print_rows(names, [_row(shard, view) for shard in seen], head="shard ")
    notes.write(_NO_SERVER if view is None else view.problem or _source(view))
    for shard in seen:
        for line in _remarks(shard, max_body_bytes):
            notes.write(f"shard {shard.place.name}: {line}")


def _source(view: ServerView) -> str:
    """Returns which server reports what is in use, with the address that `cluster status` shows."""
    reached = "" if view.cluster_address is None else f"; other servers reach it at {view.cluster_address}"
    return f"in use: according to {view.name} at {view.address}{reached}"


def _row(shard: Seen, view: ServerView | None) -> tuple[object, ...]:
    place, look = shard.place, shard.look
    known: tuple[object, ...] = (None,) * 5
    if look is not None:
        known = (look.schema, len(look.members), look.live, look.finished, output.size(look.size.used_bytes))
    used = None if view is None else view.of(place.name)
    reachable = LOST if place.lost else look is not None
    return (place.name, str(place.endpoint), reachable, used, not place.takes_enqueues, *known)


def _remarks(shard: Seen, max_body_bytes: int) -> Iterator[str]:
    if shard.place.lost:
        yield "it is marked as lost (lostForGood): servers have given it up, and no other shard may have its name"
    if shard.error is not None:
        yield shard.error
    if shard.look is not None:
        yield from shard.look.warnings
    if shard.look is not None and shard.look.timed_keys.number and not shard.place.takes_enqueues:
        yield f"it holds {shard.look.timed_keys}, and stays until then"
    most = None if shard.look is None else shard.look.body_bytes_max
    if most is not None and most < max_body_bytes and shard.place.takes_enqueues:
        yield (
            f"its max_allowed_packet holds bodies of {most} bytes, so servers take none longer, "
            f"though jobs.max_body_bytes is {max_body_bytes}"
        )


def status_as_json(shard: Seen, view: ServerView | None) -> dict[str, Any]:
    """Returns everything that is known about a shard."""
    look = shard.look
    return {
        **as_json(shard.place),
        "reachable": None if shard.place.lost else look is not None,
        "error": shard.error,
        "in_use": None if view is None else view.of(shard.place.name),
        "schema": None if look is None else look.schema,
        "servers": None if look is None else [member._asdict() for member in look.members],
        "live": None if look is None else look.live,
        "finished": None if look is None else look.finished,
        "timed_keys": None if look is None else look.timed_keys.number,
        "timed_keys_until_ms": None if look is None else look.timed_keys.until_ms,
        "warnings": None if look is None else list(look.warnings),
        "body_bytes_max": None if look is None else look.body_bytes_max,
        "used_bytes": None if look is None else look.size.used_bytes,
        "limit_bytes": None if look is None else look.size.limit_bytes,
    }


def refuse_to_remove(name: str, seen: Sequence[Seen]) -> None:
    """Ends the command if one of these databases of the shard does not answer."""
    for shard in seen:
        if shard.look is None:
            warning = _NO_DRAIN if shard.place.takes_enqueues else ""
            _fail(name, shard, f"can't be asked whether it is empty: {_reason(shard)}. {warning}")


def refuse_to_drain(name: str, seen: Sequence[Seen]) -> None:
    """Ends the command if one of these databases of the shard does not answer."""
    for shard in seen:
        if shard.look is None:
            _fail(name, shard, f"does not answer: {_reason(shard)}. {_NO_DRAIN}--anyway drains it all the same. ")


def _reason(shard: Seen) -> str:
    """Returns the reason as part of a sentence."""
    return (shard.error or "").removesuffix(".")


def _fail(name: str, shard: Seen, problem: str) -> None:
    exits.fail(
        f"{shard.place.name} {problem}If its data may come back, wait until it answers. If they are lost for good, "
        f"`pinlater shards remove {name} --lost` gives it up, with all its jobs (see {_ABOUT_LOST_SHARDS})",
        exits.BUSY,
    )
