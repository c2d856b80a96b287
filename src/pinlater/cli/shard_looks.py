"""What the `shards` commands know of shards: from the settings, from the databases themselves, and from a server's pages."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pinlater.cli import exits
from pinlater.domain.errors import PinLaterError

if TYPE_CHECKING:
    from pinlater.config.settings import Settings
    from pinlater.config.shard_file import ShardPlace
    from pinlater.storage.mysql.offline import Look

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

    if settings.store.kind != "mysql":
        exits.fail(f"{settings.store} is no MySQL store, and has but one shard", exits.REFUSED)
    try:
        return find_shards(settings)
    except FileBroken as error:
        exits.fail(str(error), exits.SETTINGS)


async def look_at(places: Sequence[ShardPlace], settings: Settings) -> list[Seen]:
    """Asks all at once, each within the settings' time limits."""
    from pinlater.storage.mysql.offline import look_at_shard

    async def one(place: ShardPlace) -> Seen:
        try:
            return Seen(place, await look_at_shard(place.endpoint, settings.mysql), None)
        except PinLaterError as error:
            return Seen(place, None, error.message)

    return list(await asyncio.gather(*(one(place) for place in places)))


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
