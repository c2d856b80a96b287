"""Which old database servers to read, and which user to log in as: from addresses or the original's own shard file. Knows no driver.

A password is never an argument, which every user of the machine could read, and never in an error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from pinlater.cli import exits
from pinlater.import_original.old_server import PASSWORD_VARIABLE, OldServer, server_of


def old_servers(
    urls: Sequence[str], shard_file: Path | None, host_prefix: str | None, password_file: Path | None
) -> list[OldServer]:
    """Returns the servers, each once. Ends the command if an option is wrong."""
    if not urls and shard_file is None:
        raise typer.BadParameter("name the old database server, as --from mysql://USER@HOST:PORT/", param_hint="--from")
    found = [] if shard_file is None else _of_shard_file(shard_file, host_prefix)
    try:
        for url in urls:
            server_of(url, "")  # refuse a wrong address before asking for a password
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--from") from None
    if urls:
        password = _password(password_file)
        found += [server_of(url, password) for url in urls]
    return list({(one.host, one.port, one.socket): one for one in found}.values())


def _of_shard_file(path: Path, host_prefix: str | None) -> list[OldServer]:
    from pinlater.server.config.files import FileBroken, WatchedFile
    from pinlater.server.config.kinds import SHARDED
    from pinlater.server.config.settings import Settings
    from pinlater.server.storage.mysql.settings import MysqlSettings

    settings = Settings(mysql=MysqlSettings(host_prefix=host_prefix))
    try:
        entries = WatchedFile(path, lambda content: SHARDED["mysql"].parse(content, settings)).value
    except FileBroken as broken:
        exits.fail(str(broken), exits.USAGE)
    return [
        OldServer(at.host, at.port, at.user or "", at.password or "", at.socket, at.tls)
        for at in (entry.address for entry in entries)
    ]


def _password(file: Path | None) -> str:
    """Returns the password from the file, the environment, or a prompt on the terminal."""
    if file is not None:
        try:
            return (file.read_text(encoding="utf-8").splitlines() or [""])[0]
        except (OSError, UnicodeDecodeError) as error:
            exits.fail(f"{file}: {getattr(error, 'strerror', None) or 'not text in UTF-8'}", exits.USAGE)
    if PASSWORD_VARIABLE in os.environ:
        return os.environ[PASSWORD_VARIABLE]
    if not sys.stdin.isatty():
        return ""
    asked: str = typer.prompt("Password of the old database", default="", show_default=False, hide_input=True, err=True)
    return asked
