"""The gauges of the Thrift listener: connections, requests under way, and the memory that these hold."""

from __future__ import annotations

from collections.abc import Callable

from pinlater.domain.byte_budget import ByteBudget
from pinlater.server.telemetry.metrics import Metrics
from pinlater.server.thrift.answering import Answering


def show_thrift(metrics: Metrics, connections: Callable[[], int], answering: Answering, budget: ByteBudget) -> None:
    """Registers them. `connections`: how many are open."""
    metrics.gauge(
        "thrift-connections",
        connections,
        prometheus="pinlater_connections",
        help="Open connections",
    )
    metrics.gauge(
        "thrift-requests-running",
        lambda: answering.running,
        prometheus="pinlater_requests_running",
        help="Requests under way, long polls excepted",
    )
    metrics.gauge(
        "thrift-long-polls",
        lambda: answering.waiting,
        prometheus="pinlater_long_polls",
        help="Dequeues with waitMillis under way",
    )
    metrics.labelled_gauge(
        "memory-in-flight-",
        budget.by_kind,
        prometheus="pinlater_memory_in_flight_bytes",
        label="kind",
        help="Bytes held of requests not answered yet, answers not sent yet, and scans under way",
    )
    metrics.gauge(
        "memory-in-flight-limit",
        lambda: budget.limit_bytes,
        prometheus="pinlater_memory_in_flight_limit_bytes",
        help="The most that these may be together (setting max_buffered_bytes)",
    )
