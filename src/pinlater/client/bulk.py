"""Bulk runs as callers see them, and what people ask and read of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pinlater.domain.bulk import STATES_OF, BulkAction, BulkOrder, BulkState
from pinlater.domain.job import JobState
from pinlater.domain.wording import about

_SHARDS_NAMED = 10


class BulkRun(NamedTuple):
    """An order that servers execute, or have executed. Values that are not known are None.

    `looked`: how many jobs were compared; one that was compared twice counts twice.
    `changed`: how many jobs it has changed.
    `news_ms`: when it last made progress.
    `detail`: what it waits for, why it failed, what it could not do, or that changes may be missing in `changed`.
    `undo_until_ms`: until when all that it has deleted can be restored; None if there is nothing to restore.
    `to_look_at`: about how many jobs its look at the queue compares.
    `expected`: about how many jobs it changes in all.
    `percent`: how far it is, at most 99 until it is done.
    `left_ms`: about how much longer it takes, from the answer on; None while it makes no progress.
    """

    id: str
    order: BulkOrder
    who: str
    started_ms: int
    state: BulkState = BulkState.RUNNING
    looked: int = 0
    changed: int = 0
    news_ms: int = 0
    ended_ms: int | None = None
    detail: str = ""
    undo_until_ms: int | None = None
    to_look_at: int | None = None
    expected: int | None = None
    percent: int | None = None
    left_ms: int | None = None


class BulkRunList(NamedTuple):
    """Runs of the last 30 days, the newest first. `incomplete`: a shard could not be asked, so that runs may be missing; `missing_shards`:
    the names of these shards."""

    runs: Sequence[BulkRun]
    incomplete: bool = False
    missing_shards: Sequence[str] = ()


def state_for(action: BulkAction, state: JobState | None) -> JobState:
    """`state`, or without it the only one whose jobs the action changes. Raises `ValueError` with the possible states if there are several
    and none is named, or if `state` is none of them."""
    possible = STATES_OF[action]
    if state is None and len(possible) == 1:
        return possible[0]
    names = [each.name.lower() for each in possible]
    listed = " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    if state is None:
        raise ValueError(f"{action.value} needs the state of the jobs: {listed}")
    if state not in possible:
        raise ValueError(f"{action.value} changes no {state.name.lower()} jobs, only {listed} ones")
    return state


def unreachable(shards: Sequence[str]) -> str:
    """What a list says that may lack the runs of these shards."""
    if len(shards) == 1:
        return f"shard {shards[0]} is unreachable, and runs that it keeps may be missing"
    more = f" and {len(shards) - _SHARDS_NAMED} more" if len(shards) > _SHARDS_NAMED else ""
    return f"shards {', '.join(shards[:_SHARDS_NAMED])}{more} are unreachable, and runs that they keep may be missing"


class Undo(NamedTuple):
    """What a run says of another one that it brings back. `undoes`: that one; None for a run that is no undo."""

    run: str
    undoes: str | None
    state: BulkState
    detail: str


def undone_by(runs: Iterable[Undo]) -> dict[str, str]:
    """The run that has brought back all that another one has deleted, or is about to, by the other one. That one is not undone again."""
    return {
        each.undoes: each.run
        for each in runs
        if each.undoes is not None
        and (each.state is BulkState.RUNNING or (each.state is BulkState.DONE and not each.detail))
    }


def progress_in_words(state: BulkState, percent: int | None, left_ms: int | None) -> str:
    """How far a run is, and when it ends at its speed so far: `42 %, done in about 3 min`. '' if nothing is known."""
    told = [] if percent is None else [f"{percent} %"]
    if state is BulkState.RUNNING and left_ms is not None:
        told.append(f"done in {about(left_ms)}")
    return ", ".join(told)
