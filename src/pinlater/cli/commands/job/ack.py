"""`pinlater job ack`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from pinlater.cli import exits, options, output
from pinlater.cli.each_queue import change_each_queue
from pinlater.client import Ack, AckResult, AsyncClient


def ack(
    descriptors: options.Descriptors,
    failed: Annotated[bool, typer.Option("--failed", help="The attempt failed.")] = False,
    token: Annotated[
        str, typer.Option("--token", help="Count only for this claim; without it, for any holder of the job.")
    ] = "",
    retry_delay: Annotated[str, typer.Option("--retry-delay", help="A failed job is due again after this span.")] = "0",
    final: Annotated[bool, typer.Option("--final", help="A failed job gets no further attempt.")] = False,
    error_type: Annotated[str, typer.Option("--error-type", help="What kind of error it was.")] = "",
    error_text: Annotated[str, typer.Option("--error-text", help="What the error said.")] = "",
    status: Annotated[str, typer.Option("--status", help="Appended to the custom status.")] = "",
    server: options.Server = options.SERVER,
    timeout: options.TimeoutAndWaitSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """End the attempts of claimed jobs. They have succeeded, or failed with --failed. Exit code 1 if any ack did not count.

    Example: pinlater job ack emails:s1:p1:42 --failed --retry-delay 30s --error-text 'mailbox full'
    """
    if not failed and (final or error_type or error_text or retry_delay != "0"):
        raise typer.BadParameter("--final, --retry-delay, --error-type and --error-text need --failed")
    pattern = Ack(
        "",
        succeeded=not failed,
        token=token,
        append_status=status,
        retry_delay_ms=options.span_ms(retry_delay, "--retry-delay") or 0,
        final=final,
        error_type=error_type,
        error_text=error_text,
    )

    async def finish(client: AsyncClient, queue: str, names: Sequence[str]) -> Sequence[AckResult]:
        return await client.ack(queue, [pattern._replace(descriptor=name) for name in names])

    found = change_each_queue(server, timeout, descriptors, finish, wait_for_servers=True)
    found.show(lambda results: _print(results, json))
    exit_unless_applied(found.done)


def _print(results: Sequence[AckResult], as_json: bool) -> None:
    if as_json:
        print_results_json(results)
    else:
        output.print_blocks(
            ["descriptor", "outcome", "holder"], [(r.descriptor, r.outcome, r.holder or None) for r in results]
        )


def print_results_json(results: Sequence[AckResult]) -> None:
    output.print_json({"results": [output.result_json(result) for result in results]})


def exit_unless_applied(results: Sequence[AckResult]) -> None:
    if not all(result.applied for result in results):
        raise typer.Exit(exits.REFUSED)
