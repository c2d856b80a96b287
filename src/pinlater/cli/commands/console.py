"""`pinlater console`: the dashboard and the HTTP API."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from pinlater.cli import exits, options
from pinlater.domain.host_names import checked_name
from pinlater.domain.link_urls import SOURCE_PLACES, TRACE_PLACES, LinkUrls, check_url
from pinlater.domain.trusted_proxies import USER_HEADER, checked_header, network_of
from pinlater.supervision.logs import setup

if TYPE_CHECKING:
    from pinlater.tls.certificate import CertificateSource

_log = logging.getLogger("pinlater.console")
PORT = 9998
T = TypeVar("T")


class Level(str, Enum):  # noqa: UP042 - the option's words
    """The lowest level of lines that are logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


Port = Annotated[int, typer.Option("--port", min=0, max=65_535, help="Port to listen on; 0 takes a free one.")]


def console(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Port = PORT,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure",
            help="Allow another address than loopback. Unless the servers have access control, every program that reaches it can read, "
            "enqueue and delete jobs.",
        ),
    ] = False,
    name: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A name by which people reach this console, such as jobs.example. May be repeated. With it, other names than these and "
            "localhost are refused.",
        ),
    ] = None,
    guest_token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="People who have not logged in see what the token in this file may see, and can change nothing.",
        ),
    ] = None,
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NETWORK",
            help="Requests from there have the host, scheme, path, client and user that their X-Forwarded headers or Forwarded name: "
            "10.0.0.5 or 10.0.0.0/24. May be repeated.",
        ),
    ] = None,
    user_header: Annotated[
        str, typer.Option(metavar="NAME", help="The header in which proxies name users.")
    ] = USER_HEADER,
    user_token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Users of trusted proxies may do what the token in this file may do. Create it with --speaks-for-others, so "
            "that the audit names them.",
        ),
    ] = None,
    trace_url: Annotated[
        str, typer.Option(metavar="URL", help="Link each job to its trace: a URL with {trace_id}.")
    ] = "",
    source_url: Annotated[
        str, typer.Option(metavar="URL", help="Link each error to its line of code: a URL with {file} and {line}.")
    ] = "",
    https_certificate: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Serve HTTPS with this certificate (PEM), which is read again when it changes."
        ),
    ] = None,
    https_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its key, if it is in another file.")] = None,
    https_client_ca: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Refuse browsers without a certificate that these authorities signed."),
    ] = None,
    log_level: Annotated[Level, typer.Option(metavar="LEVEL", help="debug, info, warning or error.")] = Level.INFO,
    log_format: options.LogFormat = options.LogForm.AUTO,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    control_channel: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Serve the dashboard, and the HTTP API below /v1. SIGTERM or SIGINT ends it after the requests in flight.

    It calls the servers as any client does.

    Example: pinlater console --server db1:9010,db2:9010 --port 9998
    """
    from pinlater.console.app import Console
    from pinlater.console.browser_guard import LOOPBACK_NAMES
    from pinlater.console.run import address_of, listening, serve
    from pinlater.console.server_channel import ServerChannel
    from pinlater.domain.clock import SystemClock
    from pinlater.domain.host_names import is_loopback

    loopback = is_loopback(host)
    if not loopback and not insecure:
        raise typer.BadParameter(
            f"{host} is not a loopback address, and the console has no rights of its own; --insecure allows it",
            param_hint="--host",
        )
    guest_token = _token_in(guest_token_file, "--guest-token-file")
    names, proxies = _checked("--name", name or [], checked_name), trusted_proxy or []
    _checked("--trusted-proxy", proxies, network_of)
    _checked("--user-header", [user_header], checked_header)
    if user_token_file is not None and not proxies:
        raise typer.BadParameter("needs --trusted-proxy too", param_hint="--user-token-file")
    user_token = None if user_token_file is None else _token_in(user_token_file, "--user-token-file")
    links = _links(trace_url, source_url)
    certificate = _certificate(https_certificate, https_key, https_client_ca)
    client = options.client_for(server, timeout, connections=2, token="")
    setup(log_format.value, log_level.value)
    channel = None if control_channel is None else ServerChannel(control_channel)
    try:
        listener = listening(host, port)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        reason = f"can't listen on {host}:{port}: {why}"
        if channel is not None:
            channel.failed(reason)
            raise typer.Exit(exits.REFUSED) from None
        other = " (--port chooses another port)" if error.errno == errno.EADDRINUSE else ""
        exits.fail(reason + other, exits.REFUSED)
    if channel is None:  # otherwise the server reports it
        address = address_of(listener, tls=certificate is not None)
        _log.info("ready", extra={"address": address, "openapi": f"{address}/v1/openapi.json"})
    if not loopback:
        _log.warning(
            "the network reaches this console: unless the servers have access control, every program can read, enqueue and delete jobs"
        )
    hosts = LOOPBACK_NAMES if loopback else None
    console = Console(client, SystemClock().now_ms, hosts, guest_token, links, proxies, user_header, user_token, names)
    serve(console, listener, channel=channel, certificate=certificate)


def _checked(option: str, texts: Sequence[str], check: Callable[[str], T]) -> list[T]:
    """Parses the values of an option. An invalid one is a usage error."""
    with options.naming(option):
        return [check(text) for text in texts]


def _token_in(file: Path | None, option: str) -> Callable[[], str]:
    """A token of the console's own, '' without a file. A file that can't be read is a usage error."""
    from pinlater.client._token import token_source

    with options.naming(option):
        return token_source(file or "", monotonic)


def _links(trace_url: str, source_url: str) -> LinkUrls:
    """Returns the links. An invalid URL is a usage error."""
    for option, url, places in (("--trace-url", trace_url, TRACE_PLACES), ("--source-url", source_url, SOURCE_PLACES)):
        if url:
            with options.naming(option, url):
                check_url(url, places)
    return LinkUrls(trace_url, source_url)


def _certificate(certificate: Path | None, key: Path | None, client_ca: Path | None) -> CertificateSource | None:
    """Returns the TLS of the console, or None for HTTP. Invalid files are a usage error."""
    from pinlater.domain.clock import WallClock
    from pinlater.domain.invalid_settings import InvalidSettings
    from pinlater.tls.certificate import CertificateSource
    from pinlater.tls.settings import TlsSettings
    from pinlater.tls.trust import CertificateBroken

    clock = WallClock()
    try:
        settings = TlsSettings(certificate, key, client_ca, client_ca is not None)
        return None if certificate is None else CertificateSource(settings, lambda: clock.now_ms() / 1000)
    except InvalidSettings:
        hint = "--https-key" if key is not None else "--https-client-ca"
        raise typer.BadParameter("needs --https-certificate too", param_hint=hint) from None
    except CertificateBroken as error:
        raise typer.BadParameter(str(error), param_hint="--https-certificate") from None
