"""`pinlater server version`."""

from __future__ import annotations

import platform
from typing import Annotated, Any

import typer

from pinlater.cli import options, output
from pinlater.cli.call import CommandReply, ServerCall
from pinlater.client import AsyncClient, ServerInfo
from pinlater.version import __version__


def version(
    reply: CommandReply,
    server: Annotated[
        str | None, typer.Option("--server", "-s", metavar="HOST:PORT", help="Also ask this server for its version.")
    ] = None,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
) -> None:
    """Print the version, and with --server that server's.

    Example: pinlater server version --server 127.0.0.1:9010
    """
    about: dict[str, Any] = {"version": __version__, "python": platform.python_version()}
    if server is not None:
        about["server"] = ServerCall(server=server, timeout=timeout).ask(_info)._asdict()
    reply.answer(about, [f"pinlater {__version__} (Python {about['python']})"])
    if server is not None and not reply.json:
        output.print_fields(about["server"])


async def _info(client: AsyncClient) -> ServerInfo:
    return await client.server_info()
