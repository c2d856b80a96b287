"""What /metrics shows of the owners, and of the calls between servers. No I/O."""

from __future__ import annotations

from pinlater.domain.access import METHOD_ROLES, Role
from pinlater.domain.servers import ServerRole
from pinlater.server.cluster.forwarding.forwarding import Forwarding
from pinlater.server.cluster.forwarding.traffic import TrafficByServer
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


def show_calls_for_others(role: ServerRole, metrics: Metrics) -> None:
    """A gauge of the calls for which a server with the other role is meant. Each server accepts all of them all the same."""
    other, own = (Role.WORK, Role.PRODUCE) if role is ServerRole.ENQUEUE else (Role.PRODUCE, Role.WORK)
    methods = [name for name, allowed in METHOD_ROLES.items() if other in allowed and own not in allowed]
    metrics.gauge(
        "calls-for-the-other-role",
        lambda: sum(metrics.method(name).requests for name in methods),
        prometheus="pinlater_calls_for_the_other_role",
        help="Calls that came to a server for enqueues, and are for one for dequeues, or the other way round",
    )


def show_forwarding(forwarding: Forwarding, taken: TrafficByServer, metrics: Metrics) -> None:
    """Gauges of calls to all servers, including those that come later. `taken`: what other servers sent."""
    metrics.labelled_gauge(
        "forwarded-items-",
        forwarding.sent.items_by_kind,
        prometheus="pinlater_forwarded_items",
        label="kind",
        help="Requests and acks sent to the servers that own their queues",
    )
    metrics.labelled_gauge(
        "taken-items-",
        taken.items_by_kind,
        prometheus="pinlater_taken_items",
        label="kind",
        help="Requests and acks taken from other servers",
    )
    metrics.gauge(
        "forward-answers-lost",
        lambda: forwarding.sent.whole.lost,
        prometheus="pinlater_forward_answers_lost",
        help="Requests sent to other servers whose answers did not come",
    )
    metrics.labelled_gauge(
        "peer-unanswered-calls-",
        lambda: {address: float(peer.unanswered) for address, peer in forwarding.connections.items()},
        prometheus="pinlater_peer_unanswered_calls",
        label="peer",
        help="Calls to the other server that are not answered yet",
    )
