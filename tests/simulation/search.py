"""One process's share of a search: seed after seed until its time is over."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from tests.simulation.run import SCALES, simulate


class Share(NamedTuple):
    """What one process does: the seeds from `first` on, every `step`th, for so long."""

    first: int
    step: int
    scale: str
    seconds: float
    coordinated: bool = False


class SearchResult(NamedTuple):
    """What it found."""

    seeds: int
    operations: int
    broken: Sequence[int]
    took_s: float


def look(share: Share) -> SearchResult:
    """Runs seeds until the time is over, and says at once which broke a promise."""
    began = time.monotonic()
    seed, seeds, operations, broken = share.first, 0, 0, []
    while time.monotonic() - began < share.seconds:
        verdict = simulate(seed, SCALES[share.scale], coordinated=share.coordinated)
        seeds += 1
        operations += verdict.operations
        if verdict.broken:
            broken.append(seed)
            print(f"seed {seed}: " + "; ".join(verdict.broken[:3]), flush=True)
        seed += share.step
    return SearchResult(seeds, operations, broken, time.monotonic() - began)
