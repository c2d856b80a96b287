"""The table of a store: the function that executes each command."""

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
    """Returns a function that makes the entry of a command from the operation that executes it, which gets the shard and the fields of
    the command. In two steps, so that a type checker knows the answer type of the command before it sees the operation."""
    return lambda operation: (command, operation)  # type: ignore[return-value]  # as a callable its fields are checked


class CommandTable:
    """A shard that looks up the function for a command in `table`."""

    table: ClassVar[Table]

    def submit(self, command: Command[Answer]) -> Coroutine[Any, Any, Answer]:
        """Executes a command as one transaction."""
        return self.table[type(command)](self, *astuple(command))
