"""Items of a lane that are one command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from pinlater.domain.errors import PinLaterError
from pinlater.server.storage.commands import Command

Result = TypeVar("Result")


class NotBegun(Enum):
    """The result of an item that did not fit into this command: the item goes first into the next one."""

    NOT_BEGUN = "not begun"


NOT_BEGUN: Final = NotBegun.NOT_BEGUN


LaneResults: TypeAlias = Sequence[Result | PinLaterError | NotBegun]
"""The result of each item, in order: `NOT_BEGUN` for one that is to be in the next command, an error for one that can't be done."""


class JoinedItems(NamedTuple, Generic[Result]):
    """A command, and the functions that take its answer.

    `command`: the joint command of the items, or None if there is nothing to ask.
    `results`: converts the answer to the result of each item.
    `failed`: gets the error of the whole command.
    `claim_follows`: a dequeue was woken, which claims within the next few turns of the loop.
    """

    command: Command[Any] | None
    results: Callable[[Any], LaneResults[Result]]
    failed: Callable[[PinLaterError], None] | None = None
    claim_follows: bool = False
