"""One server's connections to a shard that several servers use, on a database server."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

Readers = TypeVar("Readers")
Writer = TypeVar("Writer")

WRITERS = 4


class Connections(NamedTuple, Generic[Readers, Writer]):
    """For reads, and one for each kind of change, so that none waits for another's."""

    readers: Readers
    inserting: Writer
    claiming: Writer
    finishing: Writer
    other: Writer

    @property
    def writers(self) -> tuple[Writer, ...]:
        """All `WRITERS` of them; their order numbers them."""
        return self.inserting, self.claiming, self.finishing, self.other
