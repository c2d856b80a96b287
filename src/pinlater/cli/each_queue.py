"""Changes of the jobs of several queues: a request for each queue, one after the other. If one fails, the results of those before it are
kept, and the jobs after it are not tried."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from pinlater.cli import exits, notes, options, output
from pinlater.client import AsyncClient
from pinlater.client.errors import PinLaterError

R = TypeVar("R")
Change = Callable[[AsyncClient, str, Sequence[str]], Awaitable[Sequence[R]]]


class Results(NamedTuple, Generic[R]):
    """A result for each job up to the queue whose request raised `error`. `untried`: the jobs of the queues after that one."""

    done: Sequence[R]
    error: PinLaterError | None = None
    untried: Sequence[str] = ()

    def show(self, show: Callable[[Sequence[R]], None]) -> None:
        """Prints the results, if there are any, and ends the command if there was an error."""
        if self.done or self.error is None:
            with output.only_record("what was changed stays so"):
                show(self.done)
        if self.untried:
            notes.write(f"not tried: {', '.join(self.untried)}")
        if self.error is not None:
            exits.fail_for(self.error)


def change_each_queue(
    server: str,
    timeout_s: float,
    descriptors: Sequence[str],
    change: Change[R],
    *,
    wait_for_servers: bool = False,
) -> Results[R]:
    """Returns what happened to the jobs, queue by queue. An invalid descriptor ends the command before anything is changed."""
    grouped = options.by_queue(descriptors)
    return options.ask(
        server, timeout_s, lambda client: _changed(client, grouped, change), wait_for_servers=wait_for_servers
    )


async def _changed(client: AsyncClient, grouped: Mapping[str, Sequence[str]], change: Change[R]) -> Results[R]:
    done: list[R] = []
    left = list(grouped.items())
    while left:
        queue, names = left.pop(0)
        try:
            done += await change(client, queue, names)
        except PinLaterError as error:
            return Results(done, error, [name for _, untried in left for name in untried])
    return Results(done)
