"""The server with the calls and the statements of its SQLite store counted: `python -m bench.counted FILE serve ...`; SIGUSR1 makes it
write them to FILE as JSON.

Calls are counted at the interface (`storage.interface.Shard`), by method, for all callers: requests, waiting dequeues, the periodic runner.
"""

from __future__ import annotations

import functools
import inspect
import json
import signal
import sqlite3
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from bench.servers import PinLaterServer, ServerFailed
from pinlater.server.storage.sqlite.shard import SqliteShard

# What the periodic runner asks, however many queues and waits there are.
PERIODIC = frozenset(
    {
        "advance_due",
        "time_out_claims",
        "expire_jobs",
        "collect_garbage",
        "count_jobs",
        "list_queues",
        "list_samples",
        "ping",
    }
)
_CALLS: Counter[str] = Counter()
_STATEMENTS: Counter[str] = Counter()


class StoreCounts(NamedTuple):
    """What the server has asked of its store since its start: calls by method, and statements."""

    calls: Counter[str]
    statements: int


def counts_of(server: PinLaterServer, file: Path) -> StoreCounts:
    """The counts of such a server, which writes them to this file."""
    file.unlink(missing_ok=True)
    server.signal(signal.SIGUSR1)
    deadline, pause = time.monotonic() + 10, threading.Event()
    while not file.exists():
        if time.monotonic() > deadline:
            raise ServerFailed("the server does not say what it asked its store")
        pause.wait(0.005)
    found = json.loads(file.read_text())
    return StoreCounts(Counter(found["calls"]), found["statements"])


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

    connect = sqlite3.connect

    def connect_counted(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **kwargs)
        connection.set_trace_callback(lambda _: _STATEMENTS.update(("statements",)))
        return connection

    sqlite3.connect = connect_counted  # type: ignore[assignment]

    def write(*_: object) -> None:
        new = target.with_suffix(".new")
        new.write_text(json.dumps({"calls": _CALLS, "statements": _STATEMENTS["statements"]}))
        new.rename(target)

    signal.signal(signal.SIGUSR1, write)
    from pinlater.cli.main import main as command

    command()


if __name__ == "__main__":
    main()
