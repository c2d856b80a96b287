"""Options of all commands that call servers as a client: they become variables of the environment, which the client reads by itself, and
which the processes that a command starts inherit."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

# The part of the help in which they are.
CONNECTION = "Connection"


def _take_token_file(value: str | None) -> None:
    if value is not None:
        from pinlater.client._token import TOKEN_FILE_VARIABLE, TOKEN_VARIABLE

        os.environ.pop(TOKEN_VARIABLE, None)
        os.environ[TOKEN_FILE_VARIABLE] = value


def _calls_with_a_token(
    _token_file: Annotated[
        str | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            callback=_take_token_file,
            is_eager=True,
            expose_value=False,
            rich_help_panel=CONNECTION,
            help="File with the token to send. Default: PINLATER_TOKEN, or the file that PINLATER_TOKEN_FILE names.",
        ),
    ] = None,
) -> None: ...


def _take_tls(value: bool) -> None:
    if value:
        os.environ["PINLATER_TLS"] = "1"


def _take(variable: str) -> Any:
    def take(value: str | None) -> None:
        if value is not None:
            os.environ["PINLATER_TLS"] = "1"
            os.environ[variable] = value

    return take


def _text(option: str, metavar: str, variable: str, text: str) -> Any:
    return typer.Option(
        option,
        metavar=metavar,
        callback=_take(variable),
        is_eager=True,
        expose_value=False,
        rich_help_panel=CONNECTION,
        help=text,
    )


def _calls_over_tls(
    _tls: Annotated[
        bool,
        typer.Option(
            "--tls",
            callback=_take_tls,
            is_eager=True,
            expose_value=False,
            rich_help_panel=CONNECTION,
            help="Encrypt the connections to servers, as PINLATER_TLS=1 does. The options below imply it.",
        ),
    ] = False,
    _tls_ca: Annotated[
        str | None,
        _text("--tls-ca", "FILE", "PINLATER_TLS_CA_FILE", "Authorities of the servers' certificates, as PEM."),
    ] = None,
    _tls_certificate: Annotated[
        str | None,
        _text(
            "--tls-certificate",
            "FILE",
            "PINLATER_TLS_CLIENT_CERTIFICATE_FILE",
            "Certificate of this client, for servers that want one.",
        ),
    ] = None,
    _tls_key: Annotated[
        str | None,
        _text("--tls-key", "FILE", "PINLATER_TLS_CLIENT_KEY_FILE", "Its key, if it is in another file."),
    ] = None,
    _tls_server_name: Annotated[
        str | None,
        _text(
            "--tls-server-name",
            "NAME",
            "PINLATER_TLS_SERVER_NAME",
            "Name in the servers' certificates, if it is not their address.",
        ),
    ] = None,
) -> None: ...


def params_of(function: Any) -> list[Any]:
    """The options and arguments that the function declares, to be added to those of a command."""
    only = typer.Typer(add_completion=False)
    only.command()(function)
    return [param for param in typer.main.get_command(only).params if param.name != "help"]


def token_options() -> list[Any]:
    """For each command that calls servers as one caller. A secret is no option: other users of the machine see arguments."""
    return params_of(_calls_with_a_token)


def tls_options() -> list[Any]:
    """For each command that calls servers."""
    return params_of(_calls_over_tls)
