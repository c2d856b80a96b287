"""The gauges of the Thrift listener: connections, requests under way, and the memory that these hold; what callers use of quotas."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pinlater.domain.byte_budget import ByteBudget
from pinlater.domain.caller_names import NO_TOKEN
from pinlater.server.access.control import AccessControl
from pinlater.server.access.quotas import TokenUse
from pinlater.server.telemetry.metrics import OVERFLOW, Metrics
from pinlater.server.thrift.answering import Answering

# Further ones are added up under the name `(other)`.
TOKENS_SHOWN_MAX = 1_000


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


def show_quotas(metrics: Metrics, access: AccessControl) -> None:
    """Registers the use of callers by token, for tokens in the file and callers without one. While there is no quota, nothing is shown."""

    def show(name: str, prometheus: str, read: Callable[[TokenUse], float], help: str) -> None:
        metrics.labelled_gauge(name, lambda: _by_token(access, read), prometheus=prometheus, label="token", help=help)

    show(
        "token-connections-",
        "pinlater_token_connections",
        lambda use: use.connections + use.connections_beyond,
        "Open connections, by the token of their latest request",
    )
    show("token-long-polls-", "pinlater_token_long_polls", lambda use: use.polls, "Dequeues with waitMillis under way")
    show(
        "token-bytes-in-flight-",
        "pinlater_token_bytes_in_flight",
        lambda use: use.bytes_held,
        "Bytes held of requests not answered yet, and of answers not sent yet",
    )
    show(
        "token-quota-refusals-",
        "pinlater_token_quota_refusals",
        lambda use: use.refusals,
        "Calls refused because of a quota since the start",
    )


def _by_token(access: AccessControl, read: Callable[[TokenUse], float]) -> Mapping[str, float]:
    found: dict[str, float] = {}
    if access.has_quotas:
        for use in access.uses():
            if use.is_shown:
                name = (use.name or NO_TOKEN) if len(found) < TOKENS_SHOWN_MAX else OVERFLOW
                found[name] = found.get(name, 0) + read(use)
    return found
