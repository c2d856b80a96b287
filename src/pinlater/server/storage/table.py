"""The table of a store: which function executes each command."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeAlias

from msgspec.structs import astuple

from pinlater.server.storage.commands import Answer, Command

P = ParamSpec("P")
Operation: TypeAlias = Callable[..., Coroutine[Any, Any, Any]]
Entry: TypeAlias = tuple[type[Command[Any]], Operation]
Table: TypeAlias = dict[type[Command[Any]], Operation]


def entry_of(
    command: Callable[P, Command[Answer]],
) -> Callable[[Callable[Concatenate[Any, P], Coroutine[Any, Any, Answer]]], Entry]:
    """Returns a function that makes the entry of a command from the operation that carries it out, which gets the shard and the fields of
    the command. In two steps, so that a checker of types knows what the command answers before it sees the operation."""
    return lambda operation: (command, operation)  # type: ignore[return-value]  # as a callable its fields are checked


class CommandTable:
    """A shard that looks up the function for a command in `table`."""

    table: ClassVar[Table]

    def submit(self, command: Command[Answer]) -> Coroutine[Any, Any, Answer]:
        """Carries out a command as one transaction."""
        return self.table[type(command)](self, *astuple(command))
