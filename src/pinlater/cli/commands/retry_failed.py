"""`pinlater retry-failed`."""

from __future__ import annotations

from typing import Annotated

import typer

from pinlater.cli import options, output
from pinlater.cli.commands.run_now import print_runs, run_all
from pinlater.client import AsyncClient

Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="The most jobs to change.")]


def retry_failed(
    queue: options.QueueName,
    descriptor: Annotated[
        list[str] | None,
        typer.Option("--descriptor", "-d", help="These jobs, failed or waiting; may be repeated."),
    ] = None,
    priority: options.Priority = None,
    attempts: Annotated[int, typer.Option("--attempts", min=1, help="Attempts they get.")] = 1,
    delay: Annotated[str | None, typer.Option("--delay", help="Due after this span: 90s, 5m, 2h, 1d.")] = None,
    at: Annotated[str | None, typer.Option("--at", help="Due at this time: 2030-01-31T12:00:00Z, now, or ms.")] = None,
    limit: Limit = 1000,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """Put failed jobs, or the jobs named by --descriptor, back into the queue. Prints their number, or the result of each.

    Example: pinlater retry-failed emails --attempts 3 --delay 5m
    """
    run_after_ms = options.due_ms(delay, at)
    if descriptor:
        if priority is not None:
            raise typer.BadParameter("--descriptor and --priority exclude each other")
        options.check_queue(queue, descriptor)
        runs = options.ask(server, timeout, lambda client: run_all(client, descriptor, attempts, run_after_ms))
        print_runs(runs, json)
        return

    async def ask(client: AsyncClient) -> int:
        return await client.retry_failed(
            queue, priority=priority, attempts=attempts, run_after_ms=run_after_ms, limit=limit
        )

    print_number("retried", options.ask(server, timeout, ask), json)


def print_number(what: str, number: int, as_json: bool) -> None:
    if as_json:
        output.print_json({what: number})
    else:
        output.print_lines([f"{what} {number}"])
