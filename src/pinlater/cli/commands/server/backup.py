"""`pinlater server backup`: a copy of an SQLite store, also while a server runs on it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pinlater.cli import exits
from pinlater.cli.call import CommandReply
from pinlater.cli.server_settings import ConfigFile, Store, store_file


def backup(
    reply: CommandReply,
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="The copy to make; it must not exist.")],
    config: ConfigFile = None,
    store: Store = None,
) -> None:
    """Copy the store while the server runs. To restore, stop the server and replace its file by the copy.

    Example: pinlater server backup --store sqlite:pinlater.db pinlater-backup.db
    """
    from pinlater.domain.errors import PinLaterError
    from pinlater.server.storage.sqlite.backup import backup as copy_file

    source = store_file(config, store, must_exist=True)
    try:
        size = copy_file(source, target)
    except PinLaterError as error:
        exits.fail(error.message, exits.BUSY if error.retryable else exits.REFUSED)
    except OSError as error:
        exits.fail(f"{target}: {error.strerror or error}", exits.REFUSED)
    reply.answer(
        {"store": str(source), "backup": str(target), "bytes": size}, [f"{source} -> {target}, {size:,} bytes"]
    )
