"""The real server with a wall clock that a file sets: `python -m tests.crash.jumping_clock FILE serve ...`.

`time.time` is what the file says later (in seconds, may be negative) than the true one. It is put in place before any of the package
is imported, so everything that asks the wall clock gets it; the monotonic clock is left alone, as a jump leaves it.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

_TRUE_TIME = time.time


def jump_by(file: Path) -> None:
    """From now on the wall clock is off by what the file says."""

    def wall() -> float:
        return _TRUE_TIME() + float(file.read_text())

    time.time = wall


if __name__ == "__main__":
    jump_by(Path(sys.argv.pop(1)))
    from pinlater.cli.main import main

    main()
