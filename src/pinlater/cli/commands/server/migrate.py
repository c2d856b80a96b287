"""`pinlater server migrate`: upgrades the store's schema by hand, on each shard. `serve` does the same at its start."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from pinlater.cli import exits
from pinlater.cli.call import CommandReply
from pinlater.cli.server_settings import StoreOptions, store_file
from pinlater.cli.shard_queries import migrate_place, places_of
from pinlater.domain.errors import PinLaterError

if TYPE_CHECKING:
    from pinlater.server.config.settings import Settings
    from pinlater.server.storage.offline import Migrated


def migrate(
    reply: CommandReply,
    place: StoreOptions,
) -> None:
    """Bring the store's schema to this program's version. Creates missing databases and tables. Stop the server of an SQLite file first.

    Example: pinlater server migrate --store sqlite:pinlater.db
    """
    settings = place.settings()
    if settings.store.is_sharded:
        _migrate_shards(reply, settings)
        return
    from pinlater.server.storage.sqlite.offline import migrate_file

    path = store_file(place.config, place.named)
    try:
        done = migrate_file(path)
    except PinLaterError as error:
        exits.fail(error.message, exits.BUSY if error.retryable else exits.REFUSED)
    reply.answer({"store": str(path), **_json(done)}, lines(str(path), done))


def _migrate_shards(reply: CommandReply, settings: Settings) -> None:
    """Migrates every reachable shard. Names the others, and then the command fails."""
    places = places_of(settings)

    async def migrate_all() -> Sequence[Migrated | BaseException]:
        calls = (migrate_place(place, settings) for place in places)
        return await asyncio.gather(*calls, return_exceptions=True)

    results = dict(zip(places, asyncio.run(migrate_all()), strict=True))
    failures = [(place, result) for place, result in results.items() if isinstance(result, BaseException)]
    for _, failure in failures:
        if not isinstance(failure, PinLaterError):
            raise failure
    done = [(place, result) for place, result in results.items() if not isinstance(result, BaseException)]
    reply.answer(
        {"shards": [{"name": p.name, "address": str(p.endpoint), **_json(result)} for p, result in done]},
        [line for p, result in done for line in lines(f"shard {p.name} ({p.endpoint})", result)],
    )
    retryable = all(isinstance(failure, PinLaterError) and failure.retryable for _, failure in failures)
    code = exits.BUSY if retryable else exits.REFUSED
    for place, failure in failures:
        exits.write_error(f"shard {place.name}: {failure}", code)
    if failures:
        raise typer.Exit(code)


def _json(migrated: Migrated) -> dict[str, object]:
    before, after, done = migrated
    return {"schema_before": before, "schema_after": after, "migrations": list(done)}


def lines(what: str, migrated: Migrated) -> list[str]:
    """What was done to a store, for people."""
    before, after, done = migrated
    if not done:
        return [f"{what}: schema {after}, nothing to do"]
    return [f"{what}: schema {before} -> {after}", *(f"  {name}" for name in done)]
