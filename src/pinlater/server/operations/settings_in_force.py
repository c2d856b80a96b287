"""The settings in force for a queue on this server, and their sources: the queue's own settings, the limits file, the server's settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinlater.wire.generated.structs import QueueConfig, SettingsInForce
from pinlater.wire.queue_settings import WIRE_NAMES

if TYPE_CHECKING:
    from pinlater.server.operations.service import Service

OF_THE_QUEUE, OF_THE_LIMITS_FILE = "queue", "limits file"
_WITH_SERVER_DEFAULT = ("claim_timeout_ms", "succeeded_ttl_ms", "failed_ttl_ms", "max_backlog", "default_attempts")


class QueueSettings:
    """Answers for one queue at a time."""

    def __init__(self, service: Service) -> None:
        self._queue_cache = service.queue_cache
        self._limits = service.dispatcher.limits
        self._settings = service.settings

    async def in_force(self, name: str) -> SettingsInForce:
        """The values that this server uses; None if nothing is set. Raises `QueueNotFound`."""
        config = (await self._queue_cache.require(name)).config
        values = config._asdict()
        origins = {field: OF_THE_QUEUE for field, value in values.items() if value is not None}
        for field in _WITH_SERVER_DEFAULT:
            default = getattr(self._settings, field)
            if field not in origins and default is not None:
                values[field], origins[field] = default, f"jobs.{field}"
        of_file = self._limits.of_file(name)
        if of_file is not None and (config.max_jobs_per_second is None or of_file < config.max_jobs_per_second):
            values["max_jobs_per_second"], origins["max_jobs_per_second"] = of_file, OF_THE_LIMITS_FILE
        return SettingsInForce(QueueConfig(**values), {WIRE_NAMES[field]: origin for field, origin in origins.items()})
