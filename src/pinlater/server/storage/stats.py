"""The work of the connections and writers of a shard on a database server, for operators: totals since the start."""

from __future__ import annotations

from collections.abc import Mapping


class Stats:
    """Incremented where it happens; `figures` by the names of `storage.values.FIGURES`."""

    def __init__(self) -> None:
        self.transactions = 0
        self.changes = 0  # changes that changed something, or may have
        self.transaction_s = 0.0
        self.statements = 0
        self.round_trips = 0
        self.lost_connections = 0
        self.settled = 0  # outcomes that were determined after a lost answer
        self.slots_lost = 0
        self.connections = 0  # open now

    def figures(self) -> Mapping[str, float]:
        return {
            "transactions": self.transactions,
            "transaction_seconds": self.transaction_s,
            "statements": self.statements,
            "round_trips": self.round_trips,
            "lost_connections": self.lost_connections,
            "outcomes_settled": self.settled,
            "slots_lost": self.slots_lost,
            "connections": self.connections,
        }
