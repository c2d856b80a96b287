"""What commands that work on a store without a server have in common: the settings that `serve` would use, and its SQLite file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pinlater.cli import exits
from pinlater.cli.arguments import hide_passwords

if TYPE_CHECKING:
    from pinlater.config.settings import Settings


def store_of(store: str | None, shards: Path | None) -> str | None:
    """What `--store` or, in its place, `--shards` say."""
    if store is not None and shards is not None:
        raise typer.BadParameter("--store and --shards exclude each other", param_hint="--shards")
    if shards is None:
        return store
    from pinlater.config.shard_file import kind_of_file

    return f"{kind_of_file(shards)}:{shards}"


def settings_for(config: Path | None, store: str | None) -> Settings:
    """The settings that `serve` would start with; ends the command with a line where they are wrong."""
    from pinlater.config.errors import SettingsError
    from pinlater.config.load import load

    hide_passwords()
    try:
        return load(config, os.environ, {"store": store}).settings
    except SettingsError as error:
        exits.fail(str(error), exits.SETTINGS)


def store_file(config: Path | None, store: str | None) -> Path:
    """The SQLite file; ends the command with a line where the settings are wrong or name another kind of store."""
    location = settings_for(config, store).store
    if location.is_sharded:
        exits.fail(f"{location} is not kept in a file of ours; its databases have tools of their own", exits.REFUSED)
    if location.path is None:
        exits.fail(f"{location} is not kept in a file", exits.REFUSED)
    return location.path
