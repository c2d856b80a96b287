"""Which file `migrate` and `backup` work on: the store that `serve` would use with the same settings."""

from __future__ import annotations

import os
from pathlib import Path

from pinlater.cli import exits


def store_file(config: Path | None, store: str | None) -> Path:
    """The SQLite file; ends the command with a line where the settings are wrong or name another kind of store."""
    from pinlater.config.errors import SettingsError
    from pinlater.config.load import load

    try:
        location = load(config, os.environ, {"store": store}).settings.store
    except SettingsError as error:
        exits.fail(str(error), exits.SETTINGS)
    if location.path is None:
        exits.fail(f"{location} is not kept in a file", exits.REFUSED)
    return location.path
