"""What /metrics shows of the owners. No I/O."""

from __future__ import annotations

from pinlater.server.cluster.ownership.ownership import Ownership
from pinlater.server.telemetry.metrics import Metrics


def show_owners(ownership: Ownership, metrics: Metrics) -> None:
    """Gauges of all shards of the map, also of those that come later."""
    metrics.labelled_gauge(
        "slices-owned-",
        ownership.owned,
        prometheus="pinlater_slices_owned",
        label="shard",
        help="Slices of the shard that this server owns",
    )
    metrics.gauge(
        "slice-moves",
        lambda: ownership.moves,
        prometheus="pinlater_slice_moves",
        help="How often a slice got another owner, on all shards",
        join="max",  # all processes see the same
    )
