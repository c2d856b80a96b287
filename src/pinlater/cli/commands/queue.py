"""`pinlater queue ...`: make, list, delete, pause and configure queues, and see how they are."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import typer

from pinlater.cli import exits, options, output
from pinlater.client import AsyncClient, QueueConfig, QueueInfo, QueueStats

app = typer.Typer(
    name="queue", help="Make, list, delete, pause and configure queues.", no_args_is_help=True, rich_markup_mode="rich"
)

Names = Annotated[list[str], typer.Argument(metavar="QUEUE...", show_default=False)]
COUNTS = ("pending", "future", "in_progress", "succeeded", "failed")
TOTALS = ("enqueued_total", "claimed_total", "succeeded_total", "failed_total", "retried_total")
SPANS = ("claim_timeout_ms", "succeeded_ttl_ms", "failed_ttl_ms", "default_expiry_ms")


@app.command()
def create(
    names: Names,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """Make queues; one that exists stays as it is, and is reported so.

    Example: pinlater queue create emails
    """

    async def make(client: AsyncClient, name: str) -> str:
        exists = name in await client.queue_names()
        await client.create_queue(name)
        return "exists" if exists else "created"

    _for_each(names, server, timeout, json, make)


@app.command()
def delete(
    name: options.QueueName,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the admin password from standard input.")
    ] = False,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """Delete a queue with all its jobs. Asks for the server's admin password.

    Example: pinlater queue delete emails
    """
    if password_stdin or not sys.stdin.isatty():
        password = sys.stdin.readline().rstrip("\r\n")
    else:
        password = typer.prompt("Admin password", hide_input=True, err=True)

    async def remove(client: AsyncClient, queue: str) -> str:
        await client.delete_queue(queue, password)
        return "deleted"

    _for_each([name], server, timeout, json, remove)


@app.command("list")
def list_queues(
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """List the queues by name.

    Example: pinlater queue list
    """
    names = options.ask(server, timeout, lambda client: client.queue_names())
    if json:
        output.print_json({"queues": names})
    else:
        output.print_lines(names)


@app.command()
def stats(
    names: Annotated[list[str] | None, typer.Argument(metavar="[QUEUE...]", show_default=False)] = None,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """Show counts by state, rates, and how long the oldest due job has waited; of all queues without a name.

    Example: pinlater queue stats emails --json
    """
    found = options.ask(server, timeout, lambda client: client.queue_stats(*(names or [])))
    if json:
        output.print_json({"queues": [_stats_json(queue) for queue in found]})
        return
    columns = ["queue", *COUNTS, "oldest", "in/s", "done/s", "failed/s", "waiting", "paused"]
    output.print_table(columns, [_stats_row(queue) for queue in found])


def _stats_row(queue: QueueStats) -> tuple[object, ...]:
    oldest = None if queue.oldest_waiting_ms is None else f"{queue.oldest_waiting_ms / 1000:.1f}s"
    rates = queue.rates
    counts = (queue.total(name) for name in COUNTS)
    return (
        queue.queue,
        *counts,
        oldest,
        rates.enqueued,
        rates.succeeded,
        rates.failed,
        queue.waiting_dequeues,
        queue.paused,
    )


def _stats_json(queue: QueueStats) -> dict[str, Any]:
    return {
        "queue": queue.queue,
        "paused": queue.paused,
        **{name: queue.total(name) for name in (*COUNTS, *TOTALS)},
        "oldest_waiting_ms": queue.oldest_waiting_ms,
        "rates": queue.rates._asdict(),
        "waiting_dequeues": queue.waiting_dequeues,
        "priorities": [counts._asdict() for counts in queue.counts],
    }


@app.command()
def pause(
    names: Names,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """Stop dequeues; enqueues and acks go on.

    Example: pinlater queue pause emails
    """

    async def act(client: AsyncClient, name: str) -> str:
        await client.pause_queue(name)
        return "paused"

    _for_each(names, server, timeout, json, act)


@app.command()
def resume(
    names: Names,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """Let dequeues go on.

    Example: pinlater queue resume emails
    """

    async def act(client: AsyncClient, name: str) -> str:
        await client.resume_queue(name)
        return "resumed"

    _for_each(names, server, timeout, json, act)


def _for_each(
    names: list[str], server: str, timeout: float, as_json: bool, act: Callable[[AsyncClient, str], Awaitable[str]]
) -> None:
    """Calls `act` for one queue after the other and prints the word that it returns for each. The queues that were done before a
    refusal are printed too."""
    done: dict[str, list[str]] = {}

    async def act_on_all(client: AsyncClient) -> None:
        for name in names:
            word = await act(client, name)
            done.setdefault(word, []).append(name)
            if not as_json:
                output.print_lines([f"{word} {name}"])

    try:
        options.ask(server, timeout, act_on_all)
    finally:
        if as_json and done:
            output.print_json(done)


@app.command()
def config(
    name: options.QueueName,
    max_jobs_per_second: Annotated[str | None, typer.Option(help="Jobs handed out a second; 0 stops them.")] = None,
    claim_timeout: Annotated[str | None, typer.Option(help="How long a claim lasts: 90s, 5m.")] = None,
    succeeded_ttl: Annotated[str | None, typer.Option(help="How long succeeded jobs are kept.")] = None,
    failed_ttl: Annotated[str | None, typer.Option(help="How long failed jobs are kept.")] = None,
    max_backlog: Annotated[str | None, typer.Option(help="The most pending jobs.")] = None,
    default_attempts: Annotated[str | None, typer.Option(help="Attempts of jobs that don't say.")] = None,
    default_expiry: Annotated[str | None, typer.Option(help="Expiry of jobs that don't say.")] = None,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """Show a queue's settings, or change those given and leave the others. `default` gives one back to the server.

    Example: pinlater queue config emails --claim-timeout 5m --max-backlog default
    """
    given = {
        "max_jobs_per_second": max_jobs_per_second,
        "claim_timeout_ms": claim_timeout,
        "succeeded_ttl_ms": succeeded_ttl,
        "failed_ttl_ms": failed_ttl,
        "max_backlog": max_backlog,
        "default_attempts": default_attempts,
        "default_expiry_ms": default_expiry,
    }
    changes = {field: _setting(field, text) for field, text in given.items() if text is not None}

    async def change(client: AsyncClient) -> QueueInfo:
        now = await client.queue_config(name)
        if not changes:
            return now
        await client.configure_queue(name, QueueConfig(**{**now.config._asdict(), **changes}))
        return await client.queue_config(name)

    _print_config(options.ask(server, timeout, change), json)


def _setting(field: str, text: str) -> float | None:
    if text == "default":
        return None
    if field in SPANS:
        return options.span_ms(text)
    try:
        return float(text) if field == "max_jobs_per_second" else int(text)
    except ValueError:
        exits.fail(f"{text!r} is no number", exits.USAGE)


def _print_config(queue: QueueInfo, as_json: bool) -> None:
    shown = {"queue": queue.name, "paused": queue.paused, **queue.config._asdict()}
    if as_json:
        output.print_json(shown)
    else:
        rows = [(key, "server's default" if value is None else value) for key, value in shown.items()]
        output.print_table(["setting", "value"], rows)
