"""The server with the calls and the statements of its SQLite store counted: `python -m bench.counted FILE serve ...`; SIGUSR1 makes it
write them to FILE as JSON.

Commands are counted by their kind, for all callers: requests, waiting dequeues, the periodic runner.
"""

from __future__ import annotations

import json
import signal
import sqlite3
import sys
import threading
import time
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, NamedTuple

from bench.servers import PinLaterServer, ServerFailed
from pinlater.server.storage.commands import (
    AdvanceDue,
    CollectGarbage,
    Command,
    CountJobs,
    ExpireJobs,
    ListQueues,
    ListSamples,
    TimeOutClaims,
)
from pinlater.server.storage.interface import BegunBatch, WaitingBatch
from pinlater.server.storage.sqlite.shard import SqliteShard
from pinlater.server.storage.sqlite.writer import Writer

# What the periodic runner asks, however many queues and waits there are.
PERIODIC = frozenset(
    kind.__name__
    for kind in (AdvanceDue, TimeOutClaims, ExpireJobs, CollectGarbage, CountJobs, ListQueues, ListSamples)
)
_CALLS: Counter[str] = Counter()
_STATEMENTS: Counter[str] = Counter()


class StoreCounts(NamedTuple):
    """What the server has asked of its store since its start: commands by kind, and statements."""

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


class CountedBatch:
    """What waits in a lane, its commands counted."""

    def __init__(self, batch: WaitingBatch) -> None:
        self._batch = batch
        self.done, self.failed = batch.done, batch.failed

    def begin(self) -> BegunBatch | None:
        """Counts a command that begins."""
        begun = self._batch.begin()
        if begun is not None:
            _CALLS[type(begun.command).__name__] += 1
        return begun


def main() -> None:
    """Runs the command line with every command of the store counted."""
    target = Path(sys.argv.pop(1))
    submit, join = SqliteShard.submit, Writer.join

    def submit_counted(shard: SqliteShard, command: Command[Any]) -> Coroutine[Any, Any, Any]:
        _CALLS[type(command).__name__] += 1
        return submit(shard, command)

    SqliteShard.submit = submit_counted  # type: ignore[method-assign, assignment]
    Writer.join = lambda writer, batch, works: join(writer, CountedBatch(batch), works)  # type: ignore[method-assign, assignment]

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
