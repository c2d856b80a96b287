"""The server with its store's calls counted: `python -m bench.counted FILE serve ...`; SIGUSR1 makes it write them to FILE as JSON.

Counted at the interface (`storage.interface.Shard`), by method, for all callers: requests, waiting dequeues, the periodic runner.
"""

from __future__ import annotations

import functools
import inspect
import json
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pinlater.server.storage.sqlite.shard import SqliteShard

# What the periodic runner asks, however many queues and waits there are.
PERIODIC = frozenset(
    {"advance_due", "time_out_claims", "expire_jobs", "collect_garbage", "count_jobs", "list_queues", "ping"}
)
_CALLS: Counter[str] = Counter()


def counted(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, counting its calls."""

    @functools.wraps(method)
    def count(*args: Any, **kwargs: Any) -> Any:
        _CALLS[name] += 1
        return method(*args, **kwargs)

    return count


def main() -> None:
    """Runs the command line with every method of the store counted."""
    target = Path(sys.argv.pop(1))
    for name, method in inspect.getmembers(SqliteShard, inspect.isfunction):
        if not name.startswith("_"):
            setattr(SqliteShard, name, counted(name, method))

    def write(*_: object) -> None:
        new = target.with_suffix(".new")
        new.write_text(json.dumps(_CALLS))
        new.rename(target)

    signal.signal(signal.SIGUSR1, write)
    from pinlater.cli.main import main as command

    command()


if __name__ == "__main__":
    main()
