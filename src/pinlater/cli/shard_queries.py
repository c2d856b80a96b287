"""What the `shards` commands know of shards: from the settings, from the databases themselves, and from a server's pages."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pinlater.cli import exits
from pinlater.domain.clock import SystemClock
from pinlater.domain.errors import PinLaterError
from pinlater.storage.mysql.settings import Endpoint

if TYPE_CHECKING:
    from pinlater.config.settings import Settings
    from pinlater.config.shard_place import ShardPlace
    from pinlater.storage.offline import Look

_HEALTHY = "shard-healthy-"


class Seen(NamedTuple):
    """A shard and what it said: `look` or, where it can't be asked, `error`."""

    place: ShardPlace
    look: Look | None
    error: str | None


def places_of(settings: Settings) -> Sequence[ShardPlace]:
    """The shards; ends the command with a line where the store has none to speak of, or the file is broken."""
    from pinlater.config.files import FileBroken
    from pinlater.config.shard_file import find_shards

    if not settings.store.is_sharded:
        exits.fail(f"{settings.store} is no MySQL or Redis store, and has but one shard", exits.REFUSED)
    try:
        return find_shards(settings)
    except FileBroken as error:
        exits.fail(str(error), exits.SETTINGS)


async def look_at(places: Sequence[ShardPlace], settings: Settings) -> list[Seen]:
    """Asks all at once, each within the settings' time limits."""

    now_ms = SystemClock().now_ms()

    async def one(place: ShardPlace) -> Seen:
        try:
            return Seen(place, await _look(place, settings, now_ms), None)
        except PinLaterError as error:
            return Seen(place, None, error.message)

    return list(await asyncio.gather(*(one(place) for place in places)))


async def _look(place: ShardPlace, settings: Settings, now_ms: int) -> Look:
    """Raises `WorldError` where it can't be asked."""
    where = place.endpoint
    if isinstance(where, Endpoint):
        from pinlater.storage.mysql.offline import look_at_shard

        return await look_at_shard(where, settings.mysql, now_ms)
    from pinlater.storage.redis.offline import look_at_shard as look_at_redis

    return await look_at_redis(where, settings.redis, place.name, now_ms)


async def forget_timed_keys(place: ShardPlace, settings: Settings) -> int:
    """Deletes the shard's unique keys that only time would free; how many there were. Raises `WorldError`."""
    where = place.endpoint
    if isinstance(where, Endpoint):
        from pinlater.storage.mysql.offline import forget_timed_keys as forget_in_mysql

        return await forget_in_mysql(where, settings.mysql, SystemClock().now_ms())
    from pinlater.storage.redis.offline import forget_timed_keys as forget_in_redis

    return await forget_in_redis(where, settings.redis, place.name)


async def migrate_place(place: ShardPlace, settings: Settings) -> tuple[int, int, Sequence[str]]:
    """Takes the shard's schema forward: (version before, version after, what was run). Raises `WorldError`."""
    where = place.endpoint
    if isinstance(where, Endpoint):
        from pinlater.storage.mysql.offline import migrate_shard

        return await migrate_shard(where, settings.mysql)
    from pinlater.storage.redis.offline import migrate_shard as migrate_redis

    return await migrate_redis(where, settings.redis, place.name)


def health_by_server(address: str, timeout_s: float) -> dict[str, bool] | None:
    """Which shards a server has in use, by its HTTP port; None where none answers there."""
    try:
        with urllib.request.urlopen(f"http://{address}/stats.json", timeout=timeout_s) as answer:
            gauges: dict[str, Any] = json.load(answer)["gauges"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return {name.removeprefix(_HEALTHY): value > 0 for name, value in gauges.items() if name.startswith(_HEALTHY)}


def as_json(place: ShardPlace) -> dict[str, Any]:
    """A shard as the settings have it."""
    return {
        "name": place.name,
        "key": place.key or None,
        "address": str(place.endpoint),
        "user": place.endpoint.user,
        "dequeue_only": not place.takes_enqueues,
    }
