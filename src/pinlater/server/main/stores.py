"""The shards that the settings name. Making one imports only its store, so that no driver need be installed for another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple
from hashlib import sha256

from pinlater.server.config.kinds import EMBEDDED, SHARDED
from pinlater.server.config.settings import Settings
from pinlater.server.config.shard_entry import ConfiguredShard
from pinlater.server.config.shard_file import find_shards
from pinlater.server.sharding.reload import DesiredShard
from pinlater.server.storage.interface import Shard


def make_shards(settings: Settings) -> Sequence[DesiredShard]:
    """The shards that the settings name. Raises `FileBroken` if a shard file can't be read."""
    store = settings.store
    if store.is_sharded:
        return sharded(find_shards(settings), settings)
    shown = "" if store.path is None else str(store.path)
    return [DesiredShard("1", lambda: EMBEDDED[store.kind].make(store.path, settings), shown_address=shown)]


def sharded(places: Sequence[ConfiguredShard], settings: Settings) -> Sequence[DesiredShard]:
    """Each place as a shard that is not opened yet. Two are the same shard only if their logins are the same, too."""

    def maker(place: ConfiguredShard) -> Callable[[], Shard]:
        return lambda: SHARDED[settings.store.kind].make(place, settings)

    return [
        DesiredShard(
            place.name,
            maker(place),
            sha256(repr(astuple(place.endpoint)).encode()).hexdigest(),  # it has the password in it
            place.takes_enqueues,
            str(place.endpoint),
            place.lost,
        )
        for place in places
    ]
