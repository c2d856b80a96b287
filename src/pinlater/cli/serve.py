"""`pinlater serve`: the server."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Annotated

import typer

from pinlater.cli.arguments import hide_passwords
from pinlater.cli.exits import REFUSED, SETTINGS
from pinlater.cli.store_file import store_of
from pinlater.config.extras import install_line


def serve(
    config: Annotated[
        Path | None, typer.Option(help="Settings file: ours (.toml) or the original's (.properties).")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            help="Where jobs are kept: sqlite:PATH, memory:, mysql:SHARD_FILE, mysql://USER@HOST/DATABASE, redis:SHARD_FILE"
            " or redis://USER@HOST/DB"
        ),
    ] = None,
    shards: Annotated[
        Path | None, typer.Option(help="MySQL's or Redis' shard file; the same as --store mysql:FILE or redis:FILE.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on; 0.0.0.0 opens both ports.")] = None,
    thrift_port: Annotated[int | None, typer.Option(help="Port for Thrift; 0 takes a free one.")] = None,
    http_port: Annotated[int | None, typer.Option(help="Port for HTTP; 0 takes a free one.")] = None,
    processes: Annotated[
        int | None,
        typer.Option(help="Run so many server processes on these ports, as one server. Not for sqlite: and memory:."),
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any other setting; may be repeated.")
    ] = None,
    stop_with_stdin: Annotated[
        bool,
        typer.Option(
            "--stop-with-stdin", help="Stop as at SIGTERM when standard input, a pipe, ends: with whoever holds it."
        ),
    ] = False,
    line: Annotated[int | None, typer.Option("--line", hidden=True)] = None,
) -> None:
    """Serves until SIGTERM or SIGINT, then finishes what is in flight and ends with status 0.

    Example: pinlater serve --store sqlite:pinlater.db --thrift-port 9010 --http-port 9999
    """
    hide_passwords()
    try:
        from pinlater.config.errors import SettingsError
        from pinlater.config.files import FileBroken
        from pinlater.config.load import load
        from pinlater.domain.errors import PinLaterError
        from pinlater.domain.passwords import HashMalformed
        from pinlater.process import serve as serve_alone
        from pinlater.processes.child import run as run_child
        from pinlater.processes.supervisor import serve as serve_many
        from pinlater.telemetry.logging import setup
    except ImportError as error:
        typer.echo(f"error: {error.name} is missing; the server needs: {install_line('server')}", err=True)
        raise typer.Exit(REFUSED) from None
    if line is not None:
        raise typer.Exit(run_child(line))
    flags: dict[str, object] = _pairs(set_ or [])
    named = {
        "store": store_of(store, shards),
        "host": host,
        "thrift.port": thrift_port,
        "http.port": http_port,
        "processes": processes,
    }
    flags |= {key: value for key, value in named.items() if value is not None}
    try:
        loaded = load(config, os.environ, flags)
    except SettingsError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(SETTINGS) from None
    telemetry = loaded.settings.telemetry
    setup(telemetry.log_format, telemetry.log_level)
    for warning in loaded.warnings:
        logging.getLogger("pinlater.config").warning(warning)
    run = serve_alone if loaded.settings.processes == 1 else serve_many
    try:
        raise typer.Exit(run(loaded.settings, stop_with_stdin=stop_with_stdin))
    except (PinLaterError, FileBroken, HashMalformed, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(REFUSED) from None


def _pairs(texts: list[str]) -> dict[str, object]:
    """`--set jobs.claim_timeout_ms=5000` as a flag by path."""
    pairs: dict[str, object] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--set")
        pairs[key.strip()] = value
    return pairs
