"""`pinlater job enqueue`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated

import typer

from pinlater.cli import exits, notes, options, output
from pinlater.cli.call import WaitingServerCall
from pinlater.client import AsyncClient, Job, UniqueKey, UniqueScope
from pinlater.client._changed_before import ChangedBefore
from pinlater.domain.batches import batches
from pinlater.domain.job import TASK_HEADER

_STANDARD_INPUT = Path("-")


def enqueue(
    call: WaitingServerCall,
    context: typer.Context,
    queue: options.QueueName,
    body: Annotated[
        list[str] | None, typer.Option("--body", "-b", help="A job's body as text; may be repeated.")
    ] = None,
    body_file: Annotated[
        list[Path] | None, typer.Option(help="A job's body from a file (-: standard input); may be repeated.")
    ] = None,
    lines: Annotated[bool, typer.Option("--lines", help="Standard input holds a job a line.")] = False,
    priority: Annotated[int, typer.Option("--priority", "-p", help="1 is the highest.")] = 1,
    delay: options.Delay = None,
    at: options.At = None,
    attempts: Annotated[int | None, typer.Option(help="Attempts allowed.")] = None,
    status: Annotated[str, typer.Option(help="Custom status.")] = "",
    header: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="May be repeated.")] = None,
    task: Annotated[str | None, typer.Option(metavar="NAME", help="The task of a worker that the job is for.")] = None,
    unique_key: Annotated[str | None, typer.Option(help="Stored unless the key is taken.")] = None,
    ordering_key: Annotated[
        str | None, typer.Option(help="Runs after the jobs of the queue with this key that are there.")
    ] = None,
    unique_for: Annotated[
        str | None, typer.Option(help="The key is taken for this span, whatever happens to the job.")
    ] = None,
    claim_timeout: Annotated[str | None, typer.Option(help="This job's own claim timeout.")] = None,
    expires_in: Annotated[str | None, typer.Option(help="Fails unless claimed within this span.")] = None,
    request_key: Annotated[str | None, typer.Option(help="Makes a repeat of this command safe.")] = None,
) -> None:
    """Store jobs and print their descriptors. Without --body or --body-file the body is standard input.

    Example: pinlater job enqueue emails --body '{"to": "a@example.org"}' --delay 5m
    """
    if context.args:
        context.fail(
            f"Unexpected after the queue: {shlex.join(context.args)}. "
            f"A job's body is an option, in quotes if it has spaces: --body {shlex.quote(' '.join(context.args))}"
        )
    run_after_ms = options.due_ms(delay, at)
    job = Job(
        b"",
        priority=priority,
        run_after_ms=run_after_ms,
        attempts_allowed=attempts,
        custom_status=status,
        headers=_headers(header or [], task),
        unique=_unique(unique_key, unique_for),
        ordering_key=ordering_key,
        claim_timeout_ms=options.span_ms(claim_timeout, "--claim-timeout"),
        expires_at_ms=_expiry_ms(expires_in, run_after_ms),
    )
    jobs = [job._replace(body=content) for content in _bodies(body or [], body_file or [], lines)]
    storing = _Storing(queue, jobs, request_key, print_at_once=not call.json)
    try:
        call.ask(storing.run)
    finally:
        if call.json:
            storing.print_json()


enqueue.context_settings = {"allow_extra_args": True}  # type: ignore[attr-defined]  # to say where a body goes


class _Storing:
    """Stores jobs in several requests, and records what is stored if a later one fails."""

    def __init__(self, queue: str, jobs: Sequence[Job], request_key: str | None, *, print_at_once: bool) -> None:
        self._queue = queue
        self._jobs = jobs
        self._request_key = request_key
        self._print_at_once = print_at_once
        self._descriptors: list[str] = []
        self._existing: list[int] = []

    async def run(self, client: AsyncClient) -> None:
        """Stores all of them."""
        with ChangedBefore("stored") as done:
            for number, batch in enumerate(batches(self._jobs, lambda job: len(job.body))):
                key = f"{self._request_key}/{number}" if self._request_key and number else self._request_key
                stored = await client.enqueue(self._queue, batch, request_key=key, repeat=key is not None)
                self._existing += [len(self._descriptors) + index for index in stored.existing]
                self._descriptors += stored.descriptors
                done.jobs = len(self._descriptors)
                if self._print_at_once:
                    with self._only_record():
                        output.print_lines(stored.descriptors)
                    _say_existing(len(stored.existing))

    def print_json(self) -> None:
        """Prints what is stored, if anything is."""
        if self._descriptors:
            with self._only_record():
                output.print_json({"descriptors": self._descriptors, "existing": self._existing})

    def _only_record(self) -> AbstractContextManager[None]:
        stored, given = len(self._descriptors), len(self._jobs)
        return output.only_record("the job is stored" if given == 1 else f"{stored:,} of {given:,} jobs are stored")


def _headers(given: Sequence[str], task: str | None) -> dict[str, str] | None:
    headers = options.headers_of(given)
    if not task:
        return headers
    if headers and TASK_HEADER in headers:
        raise typer.BadParameter(f"--task sets the header {TASK_HEADER}: give one of the two", param_hint="--header")
    return {**(headers or {}), TASK_HEADER: task}


def _say_existing(count: int) -> None:
    """Notes on standard error that nothing was stored for jobs that already existed; the output has their descriptors."""
    if count:
        found = "the job existed" if count == 1 else f"{count} jobs existed"
        notes.write(f"exists: {found} under the unique key")


def _expiry_ms(span: str | None, run_after_ms: int | None) -> int | None:
    """Returns when the jobs expire. An expiry that is over at once, or before the jobs are due, is a usage error: they would never run."""
    moment_ms = options.due_ms(span, None, "--expires-in")
    if moment_ms is not None and not options.span_ms(span, "--expires-in"):
        raise typer.BadParameter("a job that expires at once never runs", param_hint="--expires-in")
    if moment_ms is not None and run_after_ms is not None and moment_ms < run_after_ms:
        raise typer.BadParameter(
            f"the job expires at {output.iso(moment_ms)}, before it is due at {output.iso(run_after_ms)}",
            param_hint="--expires-in",
        )
    return moment_ms


def _bodies(texts: list[str], files: list[Path], lines: bool) -> list[bytes]:
    if not texts and not files:
        if sys.stdin.isatty():
            notes.write("reading from standard input up to its end (Ctrl-D); --body TEXT gives the body here")
        content = sys.stdin.buffer.read()
        if not content and not lines:
            exits.fail("nothing to enqueue: standard input is empty (--body '' stores an empty body)", exits.USAGE)
        found = content.splitlines() if lines else [content]
        return found or exits.fail("nothing to enqueue: standard input holds no line", exits.USAGE)
    try:
        return [text.encode("utf-8", "surrogateescape") for text in texts] + [_content(path) for path in files]
    except OSError as error:
        exits.fail(f"{error.filename}: {error.strerror}", exits.USAGE)


def _content(path: Path) -> bytes:
    return sys.stdin.buffer.read() if path == _STANDARD_INPUT else path.read_bytes()


def _unique(key: str | None, span: str | None) -> UniqueKey | None:
    if key is None:
        if span is not None:
            raise typer.BadParameter("--unique-for needs --unique-key")
        return None
    if not key:
        raise typer.BadParameter("the key must not be empty", param_hint="--unique-key")
    if span is None:
        return UniqueKey(key)
    span_ms = options.span_ms(span, "--unique-for")
    if not span_ms:
        raise typer.BadParameter("the span must be more than 0", param_hint="--unique-for")
    return UniqueKey(key, UniqueScope.TIME, span_ms)
