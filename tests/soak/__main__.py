"""`make soak`: `python -m tests.soak --minutes 60 --jobs-per-second 1000 --dir var/soak`."""

from __future__ import annotations

import argparse
import asyncio
import secrets
import shutil
from functools import partial
from pathlib import Path

from tests.soak.soak import soak

WINDOW_SECONDS = 10.0


def main() -> None:
    """One long run; its files stay where something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--jobs-per-second", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=None, help="the seed of an earlier run")
    parser.add_argument("--dir", type=Path, default=Path("var/soak"), help="where the store goes")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else secrets.randbelow(2**31)
    folder = options.dir / f"seed-{seed}"
    folder.mkdir(parents=True)
    windows = max(1, round(options.minutes * 60 / WINDOW_SECONDS))
    run = soak(
        folder, windows=windows, window_seconds=WINDOW_SECONDS, jobs_per_second=options.jobs_per_second, seed=seed,
        say=partial(print, flush=True),
    )  # fmt: skip
    wrong = asyncio.run(run)
    if wrong:
        raise SystemExit("\n".join([f"BROKEN (seed {seed}, files in {folder}):", *wrong]))
    shutil.rmtree(folder)
    print(f"{options.minutes:g} minutes, nothing grew, every job ended")


if __name__ == "__main__":
    main()
