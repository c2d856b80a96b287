"""`pinlater enqueue`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from pinlater.cli import exits, options, output
from pinlater.client import AsyncClient, Enqueued, Job, UniqueKey, UniqueScope

_JOBS_PER_REQUEST = 500
_BYTES_PER_REQUEST = 4 * 1024 * 1024


def enqueue(
    queue: options.QueueName,
    body: Annotated[
        list[str] | None, typer.Option("--body", "-b", help="A job's body as text; may be repeated.")
    ] = None,
    body_file: Annotated[
        list[Path] | None, typer.Option("--body-file", help="A job's body from a file; may be repeated.")
    ] = None,
    lines: Annotated[bool, typer.Option("--lines", help="Standard input holds a job a line.")] = False,
    priority: Annotated[int, typer.Option("--priority", "-p", help="1 is the highest.")] = 1,
    delay: Annotated[str | None, typer.Option("--delay", help="Due after this span: 90s, 5m, 2h, 1d.")] = None,
    at: Annotated[str | None, typer.Option("--at", help="Due at this time: 2030-01-31T12:00:00Z, now, or ms.")] = None,
    attempts: Annotated[int | None, typer.Option("--attempts", help="Attempts allowed.")] = None,
    status: Annotated[str, typer.Option("--status", help="Custom status.")] = "",
    header: Annotated[list[str] | None, typer.Option("--header", metavar="NAME=VALUE", help="May be repeated.")] = None,
    unique_key: Annotated[str | None, typer.Option("--unique-key", help="Stored unless the key is taken.")] = None,
    unique_for: Annotated[
        str | None, typer.Option("--unique-for", help="The key is taken for this span, whatever becomes of the job.")
    ] = None,
    claim_timeout: Annotated[str | None, typer.Option("--claim-timeout", help="This job's own claim timeout.")] = None,
    expires_in: Annotated[
        str | None, typer.Option("--expires-in", help="Fails unless claimed within this span.")
    ] = None,
    request_key: Annotated[
        str | None, typer.Option("--request-key", help="Makes a repeat of this command safe.")
    ] = None,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """Store jobs and print their descriptors. Without --body or --body-file the body is standard input.

    Example: pinlater enqueue emails --body '{"to": "a@example.org"}' --delay 5m
    """
    job = Job(
        b"",
        priority=priority,
        run_after_ms=options.due_ms(delay, at),
        attempts_allowed=attempts,
        custom_status=status,
        headers=options.headers_of(header or []),
        unique=_unique(unique_key, unique_for),
        claim_timeout_ms=options.span_ms(claim_timeout, "--claim-timeout"),
        expires_at_ms=options.due_ms(expires_in, None, "--expires-in"),
    )
    jobs = [job._replace(body=content) for content in _bodies(body or [], body_file or [], lines)]
    if not jobs:
        exits.fail("nothing to enqueue: standard input holds no line", exits.USAGE)

    stored = Enqueued([], [])

    async def store(client: AsyncClient) -> None:
        nonlocal stored
        for number, batch in enumerate(batches(jobs)):
            key = f"{request_key}/{number}" if request_key and number else request_key
            done = await client.enqueue(queue, batch, request_key=key, repeat=key is not None)
            if not json:
                output.print_lines(done.descriptors)  # at once, so that what is stored is known if a later batch fails
            at = len(stored.descriptors)
            stored = Enqueued(
                [*stored.descriptors, *done.descriptors], [*stored.existing, *(at + i for i in done.existing)]
            )

    try:
        options.ask(server, timeout, store)
    finally:
        if json and stored.descriptors:
            output.print_json({"descriptors": stored.descriptors, "existing": stored.existing})


def batches(jobs: Sequence[Job]) -> Iterator[list[Job]]:
    """Jobs in requests that every server takes: by number and by bytes. A job too large for any request goes alone and is refused."""
    batch: list[Job] = []
    size = 0
    for job in jobs:
        if batch and (len(batch) == _JOBS_PER_REQUEST or size + len(job.body) > _BYTES_PER_REQUEST):
            yield batch
            batch, size = [], 0
        batch.append(job)
        size += len(job.body)
    if batch:
        yield batch


def _bodies(texts: list[str], files: list[Path], lines: bool) -> list[bytes]:
    if not texts and not files:
        content = sys.stdin.buffer.read()
        return content.splitlines() if lines else [content]
    try:
        return [text.encode("utf-8", "surrogateescape") for text in texts] + [path.read_bytes() for path in files]
    except OSError as error:
        exits.fail(f"{error.filename}: {error.strerror}", exits.USAGE)


def _unique(key: str | None, span: str | None) -> UniqueKey | None:
    if key is None:
        if span is not None:
            raise typer.BadParameter("--unique-for needs --unique-key")
        return None
    return (
        UniqueKey(key) if span is None else UniqueKey(key, UniqueScope.TIME, options.span_ms(span, "--unique-for") or 0)
    )
