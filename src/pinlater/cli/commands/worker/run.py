"""`pinlater worker`."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from pinlater.cli import exits, notes, options
from pinlater.cli.worker_logs import log_to_stderr
from pinlater.cli.worker_module import find_worker, split_name
from pinlater.worker import Worker
from pinlater.worker._process.control_channel import ControlChannel
from pinlater.worker._process.event_loop import run


def run_worker(
    context: typer.Context,
    application: Annotated[str, typer.Argument(metavar="MODULE:NAME", help="Where the Worker is: jobs:worker")],
    queues: Annotated[
        str | None,
        typer.Option(help="Only these of its queues, with commas between.", autocompletion=options.complete_queues),
    ] = None,
    concurrency: Annotated[int | None, typer.Option(min=1, help="Jobs that run at the same time.")] = None,
    grace: Annotated[str | None, typer.Option(help="How long a stop waits for running jobs; default 30s.")] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, max=256, help="Run this many worker processes, and restart those that end.")
    ] = None,
    reload: Annotated[
        bool, typer.Option("--reload", help="Restart when a Python file below this folder changes.")
    ] = False,
    recycle_jobs: Annotated[int | None, typer.Option(min=1, help="End after this many jobs, with the code 75.")] = None,
    recycle_after: Annotated[str | None, typer.Option(help="End at this age, with the code 75: 12h.")] = None,
    recycle_memory: Annotated[
        int | None, typer.Option(min=1, metavar="MIB", help="End at this memory use, with the code 75.")
    ] = None,
    health_port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="Port for /healthz, /readyz and /metrics.")
    ] = None,
    health_host: Annotated[str | None, typer.Option(help="Address of that port; default 127.0.0.1.")] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    log_format: options.LogFormat = options.LogForm.AUTO,
    server: Annotated[
        str | None,
        typer.Option(
            "--server",
            "-s",
            metavar="HOST:PORT",
            help="Instead of the Worker's own, also for the jobs that its tasks enqueue.",
        ),
    ] = None,
    control_channel: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run the tasks of a Worker until SIGTERM or SIGINT. A second signal skips the grace time.

    Example: pinlater worker jobs:worker --concurrency 32
    """
    _check_level(log_level)
    control = _control(control_channel)
    set_up_logs = partial(log_to_stderr, log_format.value, log_level, None if control is None else control.number)
    set_up_logs()
    notes.use_json(log_format is options.LogForm.JSON)
    changes: dict[str, Any] = {
        "concurrency": concurrency,
        "grace_ms": options.span_ms(grace, "--grace"),
        "recycle_jobs_max": recycle_jobs,
        "recycle_age_ms": options.span_ms(recycle_after, "--recycle-after"),
        "recycle_memory_bytes_max": None if recycle_memory is None else recycle_memory * 1024 * 1024,
        "health_port": health_port,
        "health_host": health_host,
    }
    if processes is not None or reload:
        split_name(application)
        raise typer.Exit(_supervise(_command_of_one(context, application), processes or 1, reload))
    raise typer.Exit(_run_one(find_worker(application), server, _names(queues), changes, set_up_logs, control))


def _names(queues: str | None) -> list[str] | None:
    return [name.strip() for name in queues.split(",") if name.strip()] if queues else None


def _run_one(
    found: Worker,
    server: str | None,
    names: list[str] | None,
    changes: dict[str, Any],
    set_up_logs: Callable[[], None],
    control: ControlChannel | None,
) -> int:
    """Runs the Worker in this process, with its settings and these changes if they are not None. Returns the exit code."""
    try:
        if server is not None:
            options.client_for(server, options.TIMEOUT_S)  # a bad address is a usage error
        settings = dataclasses.replace(found.settings, **{k: v for k, v in changes.items() if v is not None})
        found.check(names)
    except ValueError as error:
        exits.fail(str(error), exits.USAGE)
    try:
        with exits.reported():
            run(
                found.run_async(
                    client=server,
                    settings=settings,
                    queues=names,
                    handle_signals=True,
                    child_setup=set_up_logs,
                    control=control,
                )
            )
    except OSError as error:
        exits.fail(f"the worker can't start: {error.strerror or error}", exits.REFUSED)
    code = exits.RECYCLED if found.recycled else exits.OK
    if found.abandoned_functions:
        # Threads can't be stopped, and the interpreter would wait for them; their jobs were given back.
        sys.stderr.flush()
        os._exit(code)
    return code


def _supervise(command: list[str], processes: int, reload: bool) -> int:
    from pinlater.worker._supervisor.supervisor import WorkerSupervisor

    folder = Path.cwd() if reload else None
    return asyncio.run(WorkerSupervisor(command, processes, reload=folder).run())


def _command_of_one(context: typer.Context, application: str) -> list[str]:
    """The command line of one of the processes: this one's options, except for the supervisor's."""
    tracebacks = ["--traceback"] if exits.tracebacks() else []
    words = [sys.executable, "-m", "pinlater", *tracebacks, "worker", application]
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        if parameter.param_type_name != "option" or parameter.name in ("processes", "reload", "help") or value is None:
            continue
        if not isinstance(value, bool):
            words += [parameter.opts[0], str(getattr(value, "value", value))]
        elif value:
            words.append(parameter.opts[0])
    return words


def _control(text: str | None) -> ControlChannel | None:
    """This process's end of the control channel to its supervisor: `DESCRIPTOR:NUMBER`."""
    if text is None:
        return None
    descriptor, _, number = text.partition(":")
    return ControlChannel(int(descriptor), int(number))


def _check_level(level: str) -> None:
    if level.lower() not in {"debug", "info", "warning", "error"}:
        raise typer.BadParameter(f"{level!r} is not one of debug, info, warning, error", param_hint="--log-level")
