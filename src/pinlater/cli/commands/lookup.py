"""`pinlater lookup`."""

from __future__ import annotations

from typing import Annotated

import typer

from pinlater.cli import exits, options, output
from pinlater.client import JobInfo


def lookup(
    descriptors: options.Descriptors,
    body: Annotated[bool, typer.Option("--body", help="Show the bodies too.")] = False,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """Show all that is known of jobs. Exit code 1 if any of them does not exist.

    Example: pinlater lookup emails:s1:p1:42 --body
    """
    options.by_queue(descriptors)
    found = options.ask(server, timeout, lambda client: client.lookup(descriptors, bodies=body))
    missing = [name for name in descriptors if name not in found]
    if json:
        output.print_json({"jobs": [output.info_json(job) for job in found.values()], "missing": missing})
    else:
        for job in found.values():
            _print_job(job)
    if missing:
        exits.fail(f"no such job: {', '.join(missing)}", exits.REFUSED)


def _print_job(job: JobInfo) -> None:
    times = {name: output.iso(value) for name, value in job._asdict().items() if name.endswith("_ms")}
    shown = {name: value for name, value in job._asdict().items() if value not in (None, "", {}, ())}
    shown |= {name: value for name, value in times.items() if value is not None}
    shown.pop("attempts", None)
    text, _, trace = job.error_text.partition("\n")
    if trace:
        shown["error_text"] = text
    if job.body is not None:
        shown["body"] = output.body_text(job.body)
    output.print_table(["field", "value"], [(name.removesuffix("_ms"), value) for name, value in shown.items()])
    if job.attempts:
        rows = [(a.number, a.outcome, a.claimed_by, _first_line(a.error_type, a.error_text)) for a in job.attempts]
        output.print_table(["attempt", "outcome", "claimed by", "error"], rows)
    if trace:
        output.print_lines(["last error:", *map(output.one_line, job.error_text.splitlines())])


def _first_line(error_type: str, error_text: str) -> str | None:
    """What failed in one line: workers put where it came from behind that."""
    return ": ".join(part for part in (error_type, error_text.partition("\n")[0]) if part) or None
