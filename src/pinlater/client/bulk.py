"""Bulk runs as people ask for them and read of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pinlater.domain.bulk import STATES_OF, BulkAction, BulkState
from pinlater.domain.job import JobState
from pinlater.domain.wording import about

_SHARDS_NAMED = 10


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
