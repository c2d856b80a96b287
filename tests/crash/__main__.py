"""`make crash`: as many kills as you like. `python -m tests.crash --rounds 200 --seed 7 --dir var/crash`."""

from __future__ import annotations

import argparse
import secrets
import shutil
import time
from pathlib import Path

from tests.crash.kill_rounds import run_kill_rounds

KILLS_PER_RUN = 10


def main() -> None:
    """Runs of ten kills on one file each, each run with its own seed; stops at the first broken promise and keeps its files."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--rounds", type=int, default=50, help="kills in all")
    parser.add_argument("--seed", type=int, default=None, help="the seed a failed run printed")
    parser.add_argument("--dir", type=Path, default=Path("var/crash"), help="where the store goes")
    options = parser.parse_args()
    done = 0
    while done < options.rounds:
        seed = options.seed if options.seed is not None else secrets.randbelow(2**31)
        folder = options.dir / f"seed-{seed}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        rounds = min(KILLS_PER_RUN, options.rounds - done)
        started = time.monotonic()
        verdict = run_kill_rounds(folder, rounds=rounds, seed=seed)
        done += rounds
        print(f"{done} kills; seed {seed}, {time.monotonic() - started:.0f} s: {verdict.text()}", flush=True)
        if verdict.violations or verdict.unexpected or verdict.failures_counted != verdict.failed_attempts:
            raise SystemExit(f"BROKEN: repeat with --seed {seed} --rounds {rounds}; files in {folder}")
        shutil.rmtree(folder)
    print(f"{done} kills, every promise kept")


if __name__ == "__main__":
    main()
