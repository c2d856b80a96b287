"""The common code of the commands about single jobs: jobs are named by their descriptors, or by a unique key that they hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from pinlater.cli import exits, options, output
from pinlater.client import AsyncClient, KeyHolders

Named = Annotated[list[str] | None, typer.Argument(metavar="DESCRIPTOR...", show_default=False)]
UniqueKey = Annotated[
    str | None,
    typer.Option(
        "--unique-key", metavar="KEY", help="Instead of descriptors: the jobs that hold this key now, at most 200."
    ),
]
InQueue = Annotated[
    list[str] | None,
    typer.Option(
        "--queue",
        "-q",
        metavar="QUEUE",
        help="With --unique-key: look only in this queue. May be given several times.",
        autocompletion=options.complete_queue,
    ),
]


def descriptors_of(
    named: list[str] | None, key: str | None, queues: list[str] | None, server: str, timeout_s: float
) -> list[str]:
    """The `named` jobs, each once, or those that hold the key now. Ends the command if there are none, or if a name is invalid."""
    if key is not None:
        if named:
            raise typer.BadParameter("name jobs, or a key, not both", param_hint="--unique-key")
        return _holders(key, queues or [], server, timeout_s)
    if queues or not named:
        raise typer.BadParameter(
            "--queue goes with --unique-key" if queues else "name jobs by their descriptors, or --unique-key"
        )
    options.by_queue(named)
    return list(dict.fromkeys(named))


def _holders(key: str, queues: Sequence[str], server: str, timeout_s: float) -> list[str]:
    async def ask(client: AsyncClient) -> KeyHolders:
        return await client.find_unique_key(key, *queues)

    found = options.ask(server, timeout_s, ask)
    if found.incomplete:
        output.warn_incomplete("a shard is unreachable, or more jobs hold the key")
    if not found.jobs:
        where = f" in {', '.join(queues)}" if queues else ""
        exits.fail(f"no job{where} holds the unique key {key!r} now", exits.REFUSED)
    return [job.descriptor for job in found.jobs]
