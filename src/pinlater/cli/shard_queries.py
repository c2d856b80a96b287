"""Reads what is known about shards, from the settings and from the databases."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pinlater.cli import exits
from pinlater.cli.server_settings import default_store_hint
from pinlater.domain.clock import SystemClock
from pinlater.domain.errors import PinLaterError

if TYPE_CHECKING:
    from pinlater.server.config.settings import Settings
    from pinlater.server.config.shard_entry import ConfiguredShard
    from pinlater.server.storage.offline import LiveJobs, Look, Migrated, Offline


class Seen(NamedTuple):
    """A shard and its answer: `look`, or `error` if it can't be asked."""

    place: ConfiguredShard
    look: Look | None
    error: str | None


def places_of(settings: Settings) -> Sequence[ConfiguredShard]:
    """Returns the shards except the lost ones. Ends the command with a line if the store has no shards, or the file is broken."""
    from pinlater.server.config.kinds import SHARDED

    if not settings.store.is_sharded:
        titles = " or ".join(kind.title for kind in SHARDED.values())
        hint = default_store_hint(settings.store, "--shards, --store or --config")
        exits.fail(f"{settings.store} is no {titles} store, and has but one shard{hint}", exits.REFUSED)
    return [place for place in _all_places(settings) if not place.lost]


def find_lost(settings: Settings) -> Sequence[ConfiguredShard]:
    """The shards that are marked as lost."""
    return [place for place in _all_places(settings) if place.lost]


def _all_places(settings: Settings) -> Sequence[ConfiguredShard]:
    from pinlater.server.config.files import FileBroken
    from pinlater.server.config.shard_file import find_shards

    try:
        return find_shards(settings)
    except FileBroken as error:
        exits.fail(str(error), exits.SETTINGS)


async def look_at(places: Sequence[ConfiguredShard], settings: Settings) -> list[Seen]:
    """Asks all at once, each within the settings' time limits."""

    now_ms, offline, table = SystemClock().now_ms(), _offline(settings), settings.database

    async def one(place: ConfiguredShard) -> Seen:
        try:
            return Seen(place, await offline.look_at_shard(place.endpoint, table, place.name, now_ms), None)
        except PinLaterError as error:
            return Seen(place, None, error.message)

    return list(await asyncio.gather(*(one(place) for place in places)))


async def find_live_jobs(place: ConfiguredShard, settings: Settings, limit: int) -> LiveJobs:
    """Returns some of the jobs that wait or run on the shard. Raises `Unavailable`."""
    now_ms = SystemClock().now_ms()
    return await _offline(settings).live_jobs(place.endpoint, settings.database, place.name, now_ms, limit)


async def forget_timed_keys(place: ConfiguredShard, settings: Settings) -> int:
    """Deletes the shard's unique keys that only time would free. Returns how many there were. Raises `Unavailable`."""
    now_ms = SystemClock().now_ms()
    return await _offline(settings).forget_timed_keys(place.endpoint, settings.database, place.name, now_ms)


async def migrate_place(place: ConfiguredShard, settings: Settings) -> Migrated:
    """Migrates the shard's schema. Raises `Unavailable`."""
    return await _offline(settings).migrate_shard(place.endpoint, settings.database, place.name)


def _offline(settings: Settings) -> Offline:
    from pinlater.server.config.kinds import SHARDED

    return SHARDED[settings.store.kind].offline()


def as_json(place: ConfiguredShard) -> dict[str, Any]:
    """A shard according to the settings."""
    return {
        "name": place.name,
        "key": place.key or None,
        "address": str(place.endpoint),
        "user": place.endpoint.user,
        "dequeue_only": not place.takes_enqueues,
        "lost": place.lost,
    }
