"""`pinlater worker`."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import sys
from importlib import import_module
from typing import Annotated

import typer

from pinlater.cli import exits, options
from pinlater.worker import Worker, WorkerSettings


def worker(
    application: Annotated[str, typer.Argument(metavar="MODULE:NAME", help="Where the Worker is: jobs:worker")],
    queues: Annotated[
        str | None, typer.Option("--queues", help="Only these of its queues, with commas between.")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", min=1, help="Jobs at a time in each queue.")
    ] = None,
    grace: Annotated[str | None, typer.Option("--grace", help="What running jobs get at a stop; default 30s.")] = None,
    log_level: Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.")] = "info",
    server: Annotated[
        str | None,
        typer.Option("--server", "-s", metavar="HOST:PORT", help="Instead of the Worker's own."),
    ] = None,
) -> None:
    """Run the handlers of a Worker until SIGTERM or SIGINT; a second one hurries.

    Example: pinlater worker jobs:worker --concurrency 32
    """
    _log_to_stderr(log_level)
    found = _find(application)
    try:
        client = None if server is None else options.client_for(server, options.TIMEOUT_S, connections=2)
        settings = _settings(found, concurrency, grace)
        names = [name.strip() for name in queues.split(",") if name.strip()] if queues else None
        found.check(names)
    except ValueError as error:
        exits.fail(str(error), exits.USAGE)
    asyncio.run(_run(found, client, settings, names))
    if found.functions_left_behind:
        # Threads can't be stopped, and the interpreter would wait for them; their jobs were given back.
        sys.stderr.flush()
        os._exit(exits.OK)


async def _run(worker: Worker, client: object, settings: WorkerSettings, names: list[str] | None) -> None:
    from pinlater.client import AsyncClient

    if isinstance(client, AsyncClient):
        async with client:
            await worker.run_async(client=client, settings=settings, queues=names, handle_signals=True)
    else:
        await worker.run_async(settings=settings, queues=names, handle_signals=True)


def _settings(worker: Worker, concurrency: int | None, grace: str | None) -> WorkerSettings:
    changes: dict[str, int] = {}
    if concurrency is not None:
        changes["concurrency"] = concurrency
    grace_ms = options.span_ms(grace)
    if grace_ms is not None:
        changes["grace_ms"] = grace_ms
    return dataclasses.replace(worker.settings, **changes)


def _find(application: str) -> Worker:
    """The Worker that `module:name` means; the current folder is looked in first."""
    module_name, colon, name = application.partition(":")
    if not colon or not module_name or not name:
        raise typer.BadParameter(f"{application!r} is not MODULE:NAME", param_hint="MODULE:NAME")
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - sys.path holds strings
    try:
        found = getattr(import_module(module_name), name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(error.name + ".")):
            exits.fail(f"no module {error.name!r} here or installed", exits.USAGE)
        exits.fail(f"{module_name} can't be loaded: {error}", exits.USAGE)
    except AttributeError:
        exits.fail(f"module {module_name!r} has no {name!r}", exits.USAGE)
    except Exception as error:  # noqa: BLE001 - it is the user's module
        exits.fail(f"{module_name} can't be loaded: {type(error).__name__}: {error}", exits.USAGE)
    if not isinstance(found, Worker):
        exits.fail(f"{application} is no pinlater.Worker but a {type(found).__name__}", exits.USAGE)
    return found


def _log_to_stderr(level: str) -> None:
    from pinlater.telemetry.logging import setup

    if level.lower() not in {"debug", "info", "warning", "error"}:
        raise typer.BadParameter(f"{level!r} is none of debug, info, warning, error", param_hint="--log-level")
    setup(level=level)
