"""Refuses commands about a shard that does not answer: the operator waits for it or gives it up, but can't drain it."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.cli import exits
from pinlater.cli.shard_queries import Seen

_ABOUT_LOST_SHARDS = '"A shard whose data are lost for good" in docs/how-to/operate-mysql.md'
_NO_DRAIN = (
    "Do not drain it: after a change of the shards, servers refuse all unique keys until it answers, and not only those "
    "that belong to it. "
)


def refuse_to_remove(name: str, seen: Sequence[Seen]) -> None:
    """Ends the command if one of these databases of the shard does not answer."""
    for shard in seen:
        if shard.look is None:
            warning = _NO_DRAIN if shard.place.takes_enqueues else ""
            _fail(name, shard, f"can't be asked whether it is empty: {_reason(shard)}. {warning}")


def refuse_to_drain(name: str, seen: Sequence[Seen]) -> None:
    """Ends the command if one of these databases of the shard does not answer."""
    for shard in seen:
        if shard.look is None:
            _fail(name, shard, f"does not answer: {_reason(shard)}. {_NO_DRAIN}--anyway drains it all the same. ")


def _reason(shard: Seen) -> str:
    """Returns the reason as part of a sentence."""
    return (shard.error or "").removesuffix(".")


def _fail(name: str, shard: Seen, problem: str) -> None:
    exits.fail(
        f"{shard.place.name} {problem}If its data may come back, wait until it answers. If they are lost for good, "
        f"`pinlater shards remove {name} --lost` gives it up, with all its jobs (see {_ABOUT_LOST_SHARDS})",
        exits.BUSY,
    )
