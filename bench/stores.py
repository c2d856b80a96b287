"""What the benchmark must know of each store: how to make a fresh one, what tells `pinlater serve` of it, how to fill and remove it,
and what it gives without a server.

One small object for a store, one for its kind; every row works through these. Rows about what only one kind has ask for that kind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pinlater.server.storage.interface import Shard


class BenchmarkStore(Protocol):
    """One private place for jobs."""

    @property
    def arguments(self) -> tuple[str, ...]:
        """What `pinlater serve` is given."""

    def shard(self) -> Shard:
        """It, in this process: not opened yet, and only while no server has it."""

    def remove(self) -> None:
        """Gone, with all jobs."""


class BenchmarkStores(Protocol):
    """All stores of a run, of one kind."""

    @property
    def kind(self) -> str:
        """The word of `--store`."""

    def facts(self) -> dict[str, str]:
        """For the results: the kind, and what keeps the jobs in which version."""

    def new(self) -> BenchmarkStore:
        """A fresh one."""

    def prepared(self, name: str, fill: Callable[[BenchmarkStore], None]) -> BenchmarkStore:
        """One that `fill` has filled, at rest; made once where it is asked for again. For one run."""

    def rest(self) -> None:
        """Waits until database servers have worked off what came before, so that no load pays for the one before it."""

    def cpu_seconds(self) -> float:
        """CPU time that database servers have used so far; none where the store is part of our server."""

    def bare(self, rows_per_commit: int, seconds: float) -> float:
        """Rows a second that a plain loop inserts on one connection, now."""
