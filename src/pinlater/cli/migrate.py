"""`pinlater migrate`: takes the store's schema forward while no server runs on it. `serve` does the same at its start."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pinlater.cli import exits
from pinlater.cli.output import print_json, print_lines
from pinlater.cli.store_file import store_file


def migrate(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="Settings file, .toml or the original's .properties.")
    ] = None,
    store: Annotated[str | None, typer.Option("--store", help="sqlite:PATH, as for serve.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Bring the store's schema to this program's version. Stop the server first; a new file is made where there is none.

    Example: pinlater migrate --store sqlite:pinlater.db
    """
    from pinlater.domain.errors import PinLaterError
    from pinlater.storage.sqlite.offline import migrate_file

    path = store_file(config, store)
    try:
        before, after, done = migrate_file(path)
    except PinLaterError as error:
        exits.fail(error.message, exits.BUSY if error.retryable else exits.REFUSED)
    if as_json:
        print_json({"store": str(path), "schema_before": before, "schema_after": after, "migrations": list(done)})
    elif done:
        print_lines([f"{path}: schema {before} -> {after}", *(f"  {name}" for name in done)])
    else:
        print_lines([f"{path}: schema {after}, nothing to do"])
