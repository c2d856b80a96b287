"""`pinlater settings`: what `serve` would start with, and where each value comes from. Starts nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pinlater.cli import exits
from pinlater.cli.arguments import hide_passwords
from pinlater.cli.store_file import store_of
from pinlater.config.extras import install_line

if TYPE_CHECKING:
    from pinlater.config.show import Shown


def settings(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="Settings file, .toml or the original's .properties.")
    ] = None,
    store: Annotated[
        str | None, typer.Option("--store", help="sqlite:PATH, memory:, mysql:FILE, redis://… and so on, as for serve.")
    ] = None,
    shards: Annotated[Path | None, typer.Option("--shards", help="The shard file, as for serve.")] = None,
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on, as for serve.")] = None,
    thrift_port: Annotated[str | None, typer.Option("--thrift-port", help="As for serve.")] = None,
    http_port: Annotated[str | None, typer.Option("--http-port", help="As for serve.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any other setting, as for serve.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the effective settings and where each came from; passwords and their hashes are left out.

    Example: pinlater settings --config pinlater.toml
    """
    try:
        from pinlater.config.errors import SettingsError
        from pinlater.config.load import load
        from pinlater.config.show import shown_settings
    except ImportError as error:
        typer.echo(f"error: {error.name} is missing; the server's settings need: {install_line('server')}", err=True)
        raise typer.Exit(exits.REFUSED) from None

    hide_passwords()
    flags: dict[str, object] = {**_pairs(set_ or [])}
    named = {"store": store_of(store, shards), "host": host, "thrift.port": thrift_port, "http.port": http_port}
    flags |= {key: value for key, value in named.items() if value is not None}
    try:
        loaded = load(config, os.environ, flags)
    except SettingsError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(exits.SETTINGS) from None
    for warning in loaded.warnings:
        typer.echo(f"warning: {warning}", err=True)
    rows = shown_settings(loaded)
    typer.echo(_as_json(rows) if as_json else _as_text(rows))


def _pairs(texts: list[str]) -> dict[str, str]:
    """`KEY=VALUE` texts as flags by path."""
    for text in texts:
        if "=" not in text:
            raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--set")
    return {key.strip(): value for key, _, value in (text.partition("=") for text in texts)}


def _as_json(rows: list[Shown]) -> str:
    return json.dumps(
        {
            row.path: {"value": row.value, "source": row.origin.source, "place": row.origin.place or None}
            for row in rows
        },
        indent=2,
    )


def _as_text(rows: list[Shown]) -> str:
    """`key = value  # origin`, in columns."""
    values = ["not set" if row.value is None else str(row.value) for row in rows]
    key_width = max(len(row.path) for row in rows)
    value_width = min(40, max(len(value) for value in values))
    return "\n".join(
        f"{row.path:<{key_width}} = {value:<{value_width}}  # {row.origin}"
        for row, value in zip(rows, values, strict=True)
    )
