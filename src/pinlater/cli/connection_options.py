"""Options of all commands that call servers as a client: they become variables of the environment, which the client reads by itself, and
which the processes that a command starts inherit."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import typer
import typer.core

# The section of the help that lists them.
CONNECTION = "Connection"
_TLS = {
    "--tls-ca": ("FILE", "PINLATER_TLS_CA_FILE", "Authorities of the servers' certificates, as PEM."),
    "--tls-certificate": (
        "FILE",
        "PINLATER_TLS_CLIENT_CERTIFICATE_FILE",
        "Certificate of this client, for servers that want one.",
    ),
    "--tls-key": ("FILE", "PINLATER_TLS_CLIENT_KEY_FILE", "Its key, if it is in another file."),
    "--tls-server-name": (
        "NAME",
        "PINLATER_TLS_SERVER_NAME",
        "Name in the servers' certificates, if it is not their address.",
    ),
}


def token_options() -> list[Any]:
    """Adds the options of a token to a command that calls servers as one caller. A secret is not an option: other users of the machine see
    arguments.
    """

    def take(path: str) -> None:
        from pinlater.client._token import TOKEN_FILE_VARIABLE, TOKEN_VARIABLE

        os.environ.pop(TOKEN_VARIABLE, None)
        os.environ[TOKEN_FILE_VARIABLE] = path

    text = "File with the token to send. Default: PINLATER_TOKEN, or the file that PINLATER_TOKEN_FILE names."
    return [_option("--token-file", "FILE", text, take)]


def tls_options() -> list[Any]:
    """Adds the options of TLS to a command that calls servers."""

    def taking(variable: str) -> Callable[[str], None]:
        return lambda value: os.environ.update({"PINLATER_TLS": "1", variable: value})

    text = "Encrypt the connections to servers, as PINLATER_TLS=1 does. The other options of TLS imply it."
    alone = _option("--tls", None, text, lambda _: os.environ.update({"PINLATER_TLS": "1"}))
    return [
        alone,
        *(_option(name, metavar, text, taking(variable)) for name, (metavar, variable, text) in _TLS.items()),
    ]


def _option(name: str, metavar: str | None, text: str, take: Callable[[str], None]) -> Any:
    """An option that is passed to `take`, and not to the command. Without a `metavar` it takes no value."""

    def given(_context: Any, _option: Any, value: Any) -> None:
        if value not in (None, False):
            take(value)

    return typer.core.TyperOption(
        param_decls=[name],
        is_flag=metavar is None,
        metavar=metavar,
        help=text,
        callback=given,
        is_eager=True,
        expose_value=False,
        rich_help_panel=CONNECTION,
    )
