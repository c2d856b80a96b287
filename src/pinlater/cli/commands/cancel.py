"""`pinlater cancel`."""

from __future__ import annotations

from pinlater.cli import options, output
from pinlater.cli.commands.ack import exit_unless_applied, print_results
from pinlater.client import AckResult, AsyncClient
from pinlater.domain.job import Outcome


def cancel(
    descriptors: options.Descriptors,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """Cancel unfinished jobs: they become failed, with status `cancelled`. Exit code 1 if any was not cancelled.

    Example: pinlater cancel emails:s1:p1:42
    """
    grouped = options.by_queue(descriptors)

    async def cancel_all(client: AsyncClient) -> list[AckResult]:
        results: list[AckResult] = []
        for queue, names in grouped.items():
            results += await client.cancel(queue, names)
        return results

    results = options.ask(server, timeout, cancel_all)
    if json:
        print_results(results, as_json=True)
        return
    output.print_lines([f"{_CANCELS[result.outcome]} {result.descriptor}" for result in results])
    exit_unless_applied(results)


_CANCELS = {
    Outcome.APPLIED: "cancelled",
    Outcome.ALREADY_FINAL: "had finished before:",
    Outcome.STALE_CLAIM: "not cancelled:",
    Outcome.NOT_FOUND: "no such job:",
    Outcome.ERROR: "not cancelled:",
}
