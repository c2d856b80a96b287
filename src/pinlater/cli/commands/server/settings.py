"""`pinlater server settings`: what `serve` would start with, and where each value comes from. Starts nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from pinlater.cli import notes
from pinlater.cli.call import CommandReply
from pinlater.cli.server_settings import MoreSettings, StoreOptions, load_settings

if TYPE_CHECKING:
    from pinlater.server.config.show import Shown


def settings(
    reply: CommandReply,
    place: StoreOptions,
    host: Annotated[str | None, typer.Option(help="Address to listen on, as for serve.")] = None,
    thrift_port: Annotated[str | None, typer.Option(help="As for serve.")] = None,
    http_port: Annotated[str | None, typer.Option(help="As for serve.")] = None,
    set_: MoreSettings = None,
) -> None:
    """Print the effective settings and where each came from. Passwords and their hashes are left out.

    Example: pinlater server settings --config pinlater.toml
    """
    from pinlater.server.config.show import shown_settings

    named = {"store": place.named, "host": host, "thrift.port": thrift_port, "http.port": http_port}
    loaded = load_settings(place.config, set_, named, driver_needed=False)
    for warning in loaded.warnings:
        notes.warn(warning)
    rows = shown_settings(loaded)
    document = {
        row.path: {"value": row.value, "source": row.origin.source, "place": row.origin.place or None} for row in rows
    }
    reply.answer(document, _lines(rows))


def _lines(rows: list[Shown]) -> list[str]:
    """`key = value # origin`, in columns, as a settings file has it. Values that no file can contain are in a comment."""
    from pinlater.server.config.show import HIDDEN

    no_values = {"null": "not set", json.dumps(HIDDEN): HIDDEN}
    cells = []
    for row in rows:
        text = json.dumps(row.value, ensure_ascii=False)  # strings, numbers, booleans and lists: as in TOML
        cells.append((f"# {row.path}", no_values[text]) if text in no_values else (row.path, text))
    key_width = max(len(key) for key, _ in cells)
    value_width = min(32, max(len(value) for _, value in cells))
    return [
        f"{key:<{key_width}} = {value:<{value_width}}  # {row.origin}"
        for row, (key, value) in zip(rows, cells, strict=True)
    ]
