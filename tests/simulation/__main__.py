"""`make simulate`: as many seeds as there is time for, or one again. `python -m tests.simulation --seed 7` prints its history."""

from __future__ import annotations

import argparse
import secrets
import time

from tests.simulation.run import simulate


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=None, help="one seed, and its history")
    parser.add_argument("--first", type=int, default=None)
    options = parser.parse_args()
    if options.seed is not None:
        verdict = simulate(options.seed)
        print("\n".join(verdict.told))
        print("\n".join(verdict.broken) or "every promise kept")
        raise SystemExit(1 if verdict.broken else 0)
    seed = options.first if options.first is not None else secrets.randbelow(2**31)
    began, cpu, operations, seeds, bad = time.monotonic(), time.process_time(), 0, 0, []
    while time.monotonic() - began < options.minutes * 60:
        verdict = simulate(seed)
        operations += verdict.operations
        seeds += 1
        if verdict.broken:
            bad.append(seed)
            print(seed, verdict.broken[:3], flush=True)
        seed += 1
    cpu = time.process_time() - cpu
    print(f"{seeds} seeds, {operations} operations, {cpu:.1f} s cpu: {operations / cpu * 60:.0f}/min; bad {len(bad)}")


if __name__ == "__main__":
    main()
