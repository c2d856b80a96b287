"""The shards that the settings name. Making one imports only its store, so that no driver need be installed for another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from functools import partial
from hashlib import sha256

from pinlater.domain.servers import AboutServer, ServerRole
from pinlater.server.config.kinds import EMBEDDED, SHARDED
from pinlater.server.config.settings import Settings
from pinlater.server.config.shard_entry import ConfiguredShard
from pinlater.server.sharding.reload import DesiredShard
from pinlater.server.storage.interface import SharedShard


def embedded(settings: Settings) -> Sequence[DesiredShard]:
    """The shard inside the server's process, not opened yet."""
    store = settings.store
    shown = "" if store.path is None else str(store.path)
    return [DesiredShard("1", partial(EMBEDDED[store.kind].make, store.path, settings), shown_address=shown)]


def _shared_shard(place: ConfiguredShard, settings: Settings) -> SharedShard:
    shard = SHARDED[settings.store.kind].make(place, settings)
    shard.introduce(AboutServer(settings.cluster.coordinator, ServerRole(settings.role)))
    return shard


def sharded(places: Sequence[ConfiguredShard], settings: Settings) -> Sequence[DesiredShard]:
    """Each place as a shard that is not opened yet. Two are the same shard only if their logins are the same, too."""
    return [
        DesiredShard(
            place.name,
            partial(_shared_shard, place, settings),
            sha256(repr(astuple(place.endpoint)).encode()).hexdigest(),  # it has the password in it
            place.takes_enqueues,
            str(place.endpoint),
            place.lost,
        )
        for place in places
    ]
