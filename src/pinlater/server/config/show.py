"""The effective settings as an operator may see them: each value with its source, without secrets."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from pinlater.server.config.load import Loaded
from pinlater.server.config.schema import keys
from pinlater.server.config.sources import Origin
from pinlater.server.config.store import StoreLocation

HIDDEN = "(set, not shown)"


class Shown(NamedTuple):
    """One effective setting. `value` can be encoded as JSON."""

    path: str
    value: object
    origin: Origin


def shown_settings(loaded: Loaded) -> list[Shown]:
    """Returns all settings in the order of the reference page."""
    found = []
    for path, key in keys().items():
        table = getattr(loaded.settings, key.table) if key.table else loaded.settings
        value = getattr(table, key.field)
        plain = HIDDEN if key.secret and value is not None else _plain(value)
        found.append(Shown(path, plain, loaded.origins[path]))
    return found


def _plain(value: object) -> object:
    if isinstance(value, Path | StoreLocation):
        return str(value)
    return list(value) if isinstance(value, tuple) else value
