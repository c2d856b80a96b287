"""The schema's versions: the first server with a newer program migrates the shard, one version after the other.

A step consists of scripts in bounded pieces, each of which may be repeated: servers that start at once may run it side by side, and an
interrupted step is begun again. The version is written after the step.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from pinlater.server.storage.redis.readers import Readers
from pinlater.server.storage.schema import check_version


class MigrationStep(NamedTuple):
    """Migrates a shard to schema `number`, from the previous one. The number is written by `set_schema.lua`."""

    number: int
    name: str
    run: Callable[[Readers], Awaitable[None]]


async def _first(readers: Readers) -> None:
    """Does nothing beyond what `set_schema.lua` does."""


STEPS: Sequence[MigrationStep] = (MigrationStep(1, "0001_first", _first),)
AT_ONCE = STEPS[-1].number
"""The schema to which a server migrates a shard when it starts."""
ORDERED = 3
"""The schema of a shard with ordering keys, which the first such job or ordered queue brings (`Membership.admit_order`). It has no step."""
NEWEST = max(ORDERED, AT_ONCE)
"""The schema that this program is written for."""


async def version_of(readers: Readers) -> int:
    """The shard's schema, or 0 if there is nothing of ours yet."""
    return int(await readers.run("find_schema") or 0)


async def migrate(readers: Readers, steps: Sequence[MigrationStep] = STEPS) -> list[str]:
    """Migrates the shard. Returns the names of the migrations that were run. Raises `SchemaRefused` if its schema is too new."""
    version = await version_of(readers)
    check_version(readers.endpoint, version, max(NEWEST, steps[-1].number))
    done = []
    for step in steps:
        if version < step.number:
            await step.run(readers)
            if await readers.run("set_schema", step.number):
                done.append(step.name)
    return done
