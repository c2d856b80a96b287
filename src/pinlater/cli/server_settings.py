"""The settings of a server as commands read them: the options that `serve` and the commands for its stores share."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pinlater.cli import exits
from pinlater.cli.call import OptionGroup
from pinlater.cli.hide_passwords import hide_passwords

if TYPE_CHECKING:
    from pinlater.server.config.load import Loaded
    from pinlater.server.config.settings import Settings
    from pinlater.server.config.sources import Given
    from pinlater.server.config.store import StoreLocation

ConfigFile = Annotated[
    Path | None, typer.Option("--config", "-c", help="Settings file: ours (.toml) or the original's (.properties).")
]
Store = Annotated[
    str | None,
    typer.Option(
        "--store",
        help="Where jobs are kept: sqlite:PATH, memory:, mysql:SHARD_FILE, mysql://USER@HOST/DATABASE, redis:SHARD_FILE"
        " or redis://USER@HOST/DB. If it is given twice, the last one counts; several databases need a shard file.",
    ),
]
ShardFile = Annotated[
    Path | None,
    typer.Option("--shards", help="MySQL's or Redis' shard file; the same as --store mysql:FILE or redis:FILE."),
]
MoreSettings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any other setting; may be repeated.")
]


@dataclass(frozen=True)
class StoreOptions(OptionGroup):
    """The options that name the store."""

    config: ConfigFile = None
    store: Store = None
    shards: ShardFile = None

    @property
    def named(self) -> str | Given | None:
        """The value of `--store` or, in its place, `--shards`; problems then name the flag that was given."""
        return store_of(self.store, self.shards)

    def settings(self, *, driver_needed: bool = True) -> Settings:
        """The settings that `serve` would start with, for commands that work on the store without a server."""
        return settings_for(self.config, self.named, driver_needed=driver_needed)


def store_of(store: str | None, shards: Path | None) -> str | Given | None:
    """Returns the value of `--store` or, in its place, `--shards`; problems then name the flag that was given."""
    if store is not None and shards is not None:
        raise typer.BadParameter("--store and --shards exclude each other", param_hint="--shards")
    if shards is None:
        return store
    from pinlater.server.config.shard_file import kind_of_file
    from pinlater.server.config.sources import Given, Origin

    return Given("store", f"{kind_of_file(shards)}:{shards}", Origin("flag", "--shards"))


def load_settings(
    config: Path | None,
    more: list[str] | None,
    named: Mapping[str, object],
    *,
    driver_needed: bool = True,
    tokens_needed: bool = True,
) -> Loaded:
    """Returns the settings from file, environment and flags. Ends the command with all problems if there are any.

    `named`: the settings with flags of their own, None if a flag is not given. `driver_needed`: False for a command that queries no
    database; `tokens_needed`: False for one that may create the tokens file.
    """
    from pinlater.server.config.errors import SettingsError
    from pinlater.server.config.load import load

    hide_passwords()
    flags = {**_pairs(more or []), **{key: value for key, value in named.items() if value is not None}}
    try:
        return load(config, os.environ, flags, driver_needed=driver_needed, tokens_needed=tokens_needed)
    except SettingsError as error:
        exits.fail(str(error), exits.SETTINGS, in_lines=True)


def settings_for(config: Path | None, store: str | Given | None, *, driver_needed: bool = True) -> Settings:
    """The settings that `serve` would start with, for commands that work on the store without a server."""
    return load_settings(config, None, {"store": store}, driver_needed=driver_needed).settings


def default_store_hint(location: StoreLocation, options: str = "--config or --store") -> str:
    """Returns what to add to an error about the store if that is the default one, since the operator may have meant another; otherwise ''.

    `options`: those of the command that name a store.
    """
    from pinlater.server.config.settings import DEFAULT_STORE

    return f" (this is the default store: {options} names another)" if location == DEFAULT_STORE else ""


def store_file(config: Path | None, store: str | Given | None, *, must_exist: bool = False) -> Path:
    """Returns the file of an SQLite store. Ends the command if the settings name another kind of store, or if
    the file must exist and does not."""
    location = settings_for(config, store).store
    if location.is_sharded:
        exits.fail(f"{location} is not kept in a file of ours; its databases have tools of their own", exits.REFUSED)
    if location.path is None:
        exits.fail(f"{location} is not kept in a file", exits.REFUSED)
    if must_exist and not location.path.is_file():
        exits.fail(f"There is no store at {location.path}{default_store_hint(location)}", exits.REFUSED)
    return location.path


def _pairs(texts: list[str]) -> dict[str, object]:
    """Returns options such as `--set jobs.claim_timeout_ms=5000` as flags by path."""
    pairs: dict[str, object] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--set")
        pairs[key.strip()] = value
    return pairs
