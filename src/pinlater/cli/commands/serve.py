"""`pinlater serve`: the server."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pinlater.cli import exits, notes
from pinlater.cli.exits import REFUSED
from pinlater.cli.hide_passwords import hide_passwords
from pinlater.cli.server_settings import MoreSettings, StoreOptions, load_settings

if TYPE_CHECKING:
    from pinlater.cli.example_process import ExampleProcess
    from pinlater.server.config.load import Loaded
    from pinlater.server.config.settings import Settings


def serve(
    place: StoreOptions,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; 0.0.0.0 opens both ports to the network.")
    ] = None,
    thrift_port: Annotated[int | None, typer.Option(help="Port for Thrift; 0 takes a free one.")] = None,
    http_port: Annotated[int | None, typer.Option(help="Port for HTTP; 0 takes a free one.")] = None,
    processes: Annotated[
        int | None, typer.Option(help="Run this many server processes on these ports, as one server. Not for memory:.")
    ] = None,
    role: Annotated[
        str | None,
        typer.Option(
            metavar="all|enqueue|dequeue",
            help="Do all (the default), or keep enqueues or dequeues apart from servers with the other role. Each takes every call.",
        ),
    ] = None,
    no_console: Annotated[
        bool,
        typer.Option(
            "--no-console", help="Run no `pinlater console` beside the server. One runs if its extra is installed."
        ),
    ] = False,
    example: Annotated[
        bool,
        typer.Option(
            "--example",
            help="Also run a living example, for a look at the dashboard: the queues example_*, with a producer and a worker. "
            "For one process on sqlite: or memory:, without access control and TLS.",
        ),
    ] = False,
    tokens: Annotated[
        Path | None, typer.Option(help="File of the tokens that callers need, as `pinlater token` makes it.")
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure",
            help="Allow an address beyond loopback without access control: every host that reaches it may do anything.",
        ),
    ] = False,
    tls_certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Serve TLS on all ports, with this certificate (PEM).")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its key, if it is in another file.")] = None,
    set_: MoreSettings = None,
    stop_with_stdin: Annotated[
        bool,
        typer.Option(
            "--stop-with-stdin",
            help="Stop as at SIGTERM when standard input, a pipe, ends: with the process that holds it.",
        ),
    ] = False,
    control_channel: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run a server until SIGTERM or SIGINT. It finishes what is in flight, and ends with status 0.

    Example: pinlater serve --store sqlite:pinlater.db --thrift-port 9010 --http-port 9999
    """
    hide_passwords()  # before the server's modules are imported, which takes a while
    from pinlater.server.config.checks import refusal_to_start
    from pinlater.server.main.processes.child import run as run_child

    if control_channel is not None:
        raise typer.Exit(run_child(control_channel))
    named = {
        "store": place.named,
        "host": host,
        "thrift.port": thrift_port,
        "http.port": http_port,
        "processes": processes,
        "role": role,
        "console": False if no_console else None,
        "access.tokens_file": tokens,
        "access.insecure": True if insecure else None,
        "tls.certificate_file": tls_certificate,
        "tls.key_file": tls_key,
    }
    loaded = load_settings(place.config, set_, named)
    if (reason := refusal_to_start(loaded.settings)) is not None:
        exits.fail(reason, exits.SETTINGS)
    more = [_example_of(loaded.settings)] if example else []
    raise typer.Exit(_run(loaded, more, stop_with_stdin=stop_with_stdin))


def _example_of(settings: Settings) -> type[ExampleProcess]:
    """Returns the function that starts the process of the example. Settings that it does not support are a usage error."""
    from pinlater.cli.example_process import ExampleProcess, refusal_of

    if (reason := refusal_of(settings)) is not None:
        raise typer.BadParameter(reason, param_hint="--example")
    return ExampleProcess


def _run(loaded: Loaded, more: Sequence[type[ExampleProcess]], *, stop_with_stdin: bool) -> int:
    """Serves with these settings, and with `more` beside a single process. Returns the exit code."""
    from pinlater.domain.errors import PinLaterError
    from pinlater.domain.passwords import HashMalformed
    from pinlater.server.config.errors import SettingsError
    from pinlater.server.config.files import FileBroken
    from pinlater.server.main.processes.supervisor import serve as serve_many
    from pinlater.server.main.run import serve as serve_alone
    from pinlater.supervision.logs import setup

    telemetry = loaded.settings.telemetry
    setup(telemetry.log_format, telemetry.log_level)
    for warning in loaded.warnings:
        logging.getLogger("pinlater.server.config").warning(warning)
    run = partial(serve_alone, more=more) if loaded.settings.processes == 1 else serve_many
    try:
        return run(loaded.settings, stop_with_stdin=stop_with_stdin)
    except (PinLaterError, FileBroken, HashMalformed, OSError) as error:
        notes.write(f"error: {error}")
        return REFUSED
    except SettingsError as error:
        notes.write(f"error: {error}")
        return exits.SETTINGS
