"""The server under a sampling profiler: `python -m bench.profiled FILE serve ...` writes where its main thread spent CPU time to FILE.

A timer on the process's CPU time interrupts the main thread each millisecond of it; the handler walks the stack. Calls into C show as
the Python line that made them. Weakness: the timer also counts the commit thread's time, charged to wherever the main thread is.
"""

from __future__ import annotations

import atexit
import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

INTERVAL_SECONDS = 0.001
LINES_MAX = 40


def _place(frame: FrameType) -> str:
    code = frame.f_code
    return f"{'/'.join(code.co_filename.split('/')[-3:])}:{code.co_qualname}"


class Sampler:
    """Counts functions: `own` when they were running, `total` when they were anywhere on the stack."""

    def __init__(self) -> None:
        self.own: Counter[str] = Counter()
        self.total: Counter[str] = Counter()
        self.samples = 0

    def start(self) -> None:
        """Begins sampling this process."""
        signal.signal(signal.SIGPROF, self._sample)
        signal.setitimer(signal.ITIMER_PROF, INTERVAL_SECONDS, INTERVAL_SECONDS)

    def _sample(self, _: int, frame: FrameType | None) -> None:
        if frame is None:
            return
        stack: FrameType | None = frame
        places = set()
        while stack is not None:
            places.add(_place(stack))
            stack = stack.f_back
        if any(place.startswith("<frozen importlib") for place in places):
            return  # the start, which is as long as a short load
        self.samples += 1
        self.own[_place(frame)] += 1
        self.total.update(places)

    def report(self) -> str:
        """The busiest functions: share of samples on top of the stack, and anywhere on it."""
        lines = [f"{self.samples} samples", "  own  total  function"]
        for place, count in self.own.most_common(LINES_MAX):
            lines.append(f"{count / self.samples:5.1%} {self.total[place] / self.samples:6.1%}  {place}")
        lines.append("by total:")
        for place, count in self.total.most_common(LINES_MAX):
            lines.append(f"{self.own[place] / self.samples:5.1%} {count / self.samples:6.1%}  {place}")
        return "\n".join(lines) + "\n"


def main() -> None:
    """Runs the command line under the sampler."""
    target = Path(sys.argv.pop(1))
    sampler = Sampler()
    atexit.register(lambda: target.write_text(sampler.report()) if sampler.samples else None)
    sampler.start()
    from pinlater.cli.main import main as command

    command()


if __name__ == "__main__":
    main()
