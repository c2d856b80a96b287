"""Converts between a queue's settings and the struct `QueueConfig`, which a client sends and a server answers."""

from __future__ import annotations

from typing import Any

from pinlater.domain.queue import QueueConfig
from pinlater.wire.generated import structs
from pinlater.wire.generated.structs import SPECS

WIRE_NAMES = {entry[2]: entry[4] for entry in SPECS[structs.QueueConfig] if entry and entry[2] in QueueConfig._fields}
"""The IDL's names of the settings, by ours."""


def config_of(struct: Any) -> QueueConfig:
    """The settings in a struct. `paused` is not among them."""
    return QueueConfig(**{field: getattr(struct, field) for field in QueueConfig._fields})
