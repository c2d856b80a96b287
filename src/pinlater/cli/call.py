"""How commands declare the options that they share, and the two groups that most have: of the answer, and of calls to servers."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter
from typing import Any, ClassVar, TypeVar

from pinlater.cli import exits, notes, options, output
from pinlater.client import AsyncClient
from pinlater.client._waiting_calls import WaitingCall

T = TypeVar("T")


class OptionGroup:
    """A group of options, one for each field. A command that has a parameter of such a type has these options."""

    at_end: ClassVar[bool] = False
    """Whether the help shows them behind the command's own."""

    @classmethod
    def parameters(cls) -> Sequence[Parameter]:
        """The options as parameters of a command; the constructor takes their values by name."""
        return list(inspect.signature(cls, eval_str=True).parameters.values())


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replaces each parameter for a group by its options. The command gets the group with their values."""
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, type[OptionGroup]] = {}
    first: list[Parameter] = []
    last: list[Parameter] = []
    for name, parameter in signature.parameters.items():
        kind = parameter.annotation
        if isinstance(kind, type) and issubclass(kind, OptionGroup):
            groups[name] = kind
            (last if kind.at_end else first).extend(kind.parameters())
        else:
            first.append(parameter)

    @wraps(command)
    def with_groups(**given: Any) -> None:
        values = {
            name: group(**{each.name: given.pop(each.name) for each in group.parameters()})
            for name, group in groups.items()
        }
        command(**values, **given)

    shown = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in (*first, *last)]
    with_groups.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
    return with_groups


@dataclass(frozen=True)
class CommandReply(OptionGroup):
    """How a command answers: as JSON, or as text for people."""

    at_end = True
    json: options.Json = False

    def answer(self, document: object, text: Sequence[str] | Callable[[], None], *, in_one_line: bool = False) -> None:
        """Prints the document for a caller that reads JSON; otherwise the lines, or what the function prints."""
        if self.json:
            output.print_json(document, in_one_line=in_one_line)
        elif callable(text):
            text()
        else:
            output.print_text(text)


@dataclass(frozen=True)
class ServerCall(CommandReply):
    """Which servers a command calls, and how long it waits for each answer."""

    server: options.Server = options.SERVER
    timeout: options.TimeoutSeconds = options.TIMEOUT_S
    waits_for_servers: ClassVar[bool] = False

    @classmethod
    def parameters(cls) -> Sequence[Parameter]:
        json, *others = super().parameters()
        return [*others, json]

    def ask(self, action: Callable[[AsyncClient], Awaitable[T]]) -> T:
        """Runs `action` with an open client. An error becomes a line on standard error and an exit code."""

        async def run() -> T:
            client = options.client_for(self.server, self.timeout, wait_for_servers=self.waits_for_servers)
            if self.waits_for_servers:
                client._say_waiting = self._say_waiting  # noqa: SLF001 - what a program shows is no option of a client
            async with client:
                return await action(client)

        with exits.reported():
            return asyncio.run(run())

    def _say_waiting(self, waiting: WaitingCall | None) -> None:
        """Notes that a call of the client has been retried for a second, since a server or a shard is unreachable."""
        if waiting is not None:
            notes.note(f"{waiting.reason}; trying until --timeout {self.timeout:g}s")


@dataclass(frozen=True)
class WaitingServerCall(ServerCall):
    """For the commands that scripts produce and work jobs with. Other commands report at once that no server accepts connections."""

    timeout: options.TimeoutAndWaitSeconds = options.TIMEOUT_S
    waits_for_servers = True
