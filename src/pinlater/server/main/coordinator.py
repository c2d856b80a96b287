"""The coordinator that the settings name. Only ZooKeeper's imports its client."""

from __future__ import annotations

from collections.abc import Callable

from pinlater.domain.clock import Clock
from pinlater.domain.errors import Unavailable
from pinlater.domain.servers import STORE_COORDINATOR
from pinlater.server.cluster.ownership.coordinator import Coordinator
from pinlater.server.cluster.settings import ClusterSettings
from pinlater.server.config.errors import SettingsError
from pinlater.server.config.files import WatchedFile
from pinlater.server.config.shard_file import parse_password
from pinlater.server.main.cluster import FindCoordinator


def find_coordinator(settings: ClusterSettings, clock: Clock) -> FindCoordinator | None:
    """Returns the coordinator, or None if the shards coordinate. It raises `SettingsError` if the ensemble refuses this server."""
    if settings.coordinator == STORE_COORDINATOR:
        return None

    async def begin(address: str, changed: Callable[[], None]) -> Coordinator:
        from pinlater.server.cluster.zookeeper.coordinator import ZooKeeperCoordinator

        file = settings.zookeeper_password_file
        password = "" if file is None else WatchedFile(file, parse_password).value
        coordinator = ZooKeeperCoordinator(settings, password, address, changed, clock)
        try:
            await coordinator.begin()
        except Unavailable as error:
            raise SettingsError([f"cluster.zookeeper: {error.message}"]) from error
        return coordinator

    return begin
