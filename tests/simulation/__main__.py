"""`make simulate`: as many seeds as there is time for, or one seed again with its whole history.

`make simulate ARGS="--minutes 60"`, `make simulate ARGS="--seed 7"`. Seeds are counted up from `--first`, by turns on all cores.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import secrets
from collections.abc import Sequence

from tests.simulation.run import SCALES, SimulationResult, simulate
from tests.simulation.search import SearchResult, Share, look


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long to look")
    parser.add_argument("--seed", type=int, default=None, help="one seed, and its history")
    parser.add_argument("--first", type=int, default=None, help="the first seed; without it, anywhere")
    parser.add_argument("--scale", choices=sorted(SCALES), default="large", help="size of the clusters and their loads")
    parser.add_argument("--zookeeper", action="store_true", help="coordinate servers by an ensemble, which fails, too")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    if options.seed is not None:
        raise SystemExit(_show(simulate(options.seed, SCALES[options.scale], coordinated=options.zookeeper)))
    first = secrets.randbelow(2**31) if options.first is None else options.first
    shares = [
        Share(first + index, options.processes, options.scale, options.minutes * 60, options.zookeeper)
        for index in range(options.processes)
    ]
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        raise SystemExit(_sum_up(shares, pool.map(look, shares, chunksize=1)))


def _show(verdict: SimulationResult) -> int:
    print(verdict.plan)
    print("\n".join(verdict.told))
    print("\n".join(verdict.broken) or "every promise kept")
    return 1 if verdict.broken else 0


def _sum_up(shares: Sequence[Share], seen: Sequence[SearchResult]) -> int:
    operations, took_s = sum(one.operations for one in seen), max(one.took_s for one in seen)
    broken = sorted(seed for one in seen for seed in one.broken)
    print(
        f"{sum(one.seeds for one in seen)} seeds from {shares[0].first} on in {took_s:.0f} s on {len(shares)} cores:"
        f" {operations} operations, {operations / took_s * 60:,.0f} a minute; {len(broken)} broke a promise"
    )
    if broken:
        print(f'the history of one: make simulate ARGS="--seed {broken[0]} --scale {shares[0].scale}"')
    return 1 if broken else 0


if __name__ == "__main__":
    main()
