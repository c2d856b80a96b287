"""Between a queue's settings and the struct `QueueConfig`, which a client sends and a server answers."""

from __future__ import annotations

from typing import Any

from pinlater.domain.queue import QueueConfig

WIRE_NAMES = {
    "max_jobs_per_second": "maxJobsPerSecond",
    "claim_timeout_ms": "claimTimeoutMillis",
    "succeeded_ttl_ms": "succeededTtlMillis",
    "failed_ttl_ms": "failedTtlMillis",
    "max_backlog": "maxBacklog",
    "default_attempts": "defaultAttempts",
    "default_expiry_ms": "defaultExpiryMillis",
    "burst": "burst",
}
"""The names of the settings in the struct, by their names in `QueueConfig`."""


def config_of(struct: Any) -> QueueConfig:
    """The settings in a struct. `paused` is not among them."""
    return QueueConfig(**{field: getattr(struct, name) for field, name in WIRE_NAMES.items()})


def fields_of(config: QueueConfig) -> dict[str, Any]:
    """The arguments for a struct with these settings."""
    return {WIRE_NAMES[field]: value for field, value in config._asdict().items()}
