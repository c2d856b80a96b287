"""The server with each look of its loop-lag timer kept: `python -m bench.loop_lags FILE serve ...`; when it ends, it writes them to FILE.

What the server itself says of its loop is a maximum, and counts beyond bounds from 10 ms on.
"""

from __future__ import annotations

import atexit
import json
import sys
import time
from array import array
from pathlib import Path

from pinlater.server.telemetry.loop_lag import LoopLag


def main() -> None:
    """Runs the command line; FILE gets lists of the same length: `at` (by the machine's monotonic clock), `lag` and `cpu`, in seconds."""
    target = Path(sys.argv.pop(1))
    at, lags, cpu = array("d"), array("d"), array("d")
    show = LoopLag.show

    def show_and_keep(loop_lag: LoopLag, *rest: object) -> None:
        show(loop_lag, *rest)  # type: ignore[arg-type]
        record_lag, record_cpu = loop_lag.lag.record, loop_lag.turn_cpu.record

        def keep_lag(seconds: float) -> None:
            at.append(time.monotonic())
            lags.append(seconds)
            record_lag(seconds)

        def keep_cpu(seconds: float) -> None:
            cpu.append(seconds)
            record_cpu(seconds)

        loop_lag.lag.record, loop_lag.turn_cpu.record = keep_lag, keep_cpu  # type: ignore[method-assign]

    LoopLag.show = show_and_keep  # type: ignore[method-assign, assignment]
    atexit.register(lambda: target.write_text(json.dumps({"at": list(at), "lag": list(lags), "cpu": list(cpu)})))
    from pinlater.cli.main import main as command

    command()


if __name__ == "__main__":
    main()
