"""How many calls this server has sent to other servers, or taken from them, since its start."""

from __future__ import annotations

from collections.abc import Mapping

from pinlater.server.cluster.forwarding.messages import CallKind

# The most servers with numbers of their own; beyond it, those of the server that connected longest ago are dropped.
SERVERS_MAX = 256


class Traffic:
    """Calls, the items in them, and requests whose answers were lost, in one direction. `whole` counts everything that this one counts."""

    __slots__ = ("_whole", "calls", "items", "lost")

    def __init__(self, whole: Traffic | None = None) -> None:
        self._whole = whole
        self.calls = [0] * len(CallKind)  # by kind
        self.items = [0] * len(CallKind)
        self.lost = 0

    def count(self, kind: CallKind, items: int) -> None:
        self.calls[kind] += 1
        self.items[kind] += items
        if self._whole is not None:
            self._whole.count(kind, items)

    def count_lost(self, requests: int) -> None:
        """Counts requests that got no answer."""
        self.lost += requests
        if self._whole is not None:
            self._whole.count_lost(requests)


class TrafficByServer:
    """Counts traffic in one direction, by server. `whole` also includes servers that are gone."""

    def __init__(self) -> None:
        self.whole = Traffic()
        self._by_address: dict[str, Traffic] = {}

    def of(self, address: str) -> Traffic:
        """Returns the counts for a server that has just connected."""
        found = self._by_address.pop(address, None) or Traffic(self.whole)
        if len(self._by_address) >= SERVERS_MAX:
            del self._by_address[next(iter(self._by_address))]
        self._by_address[address] = found
        return found

    def items(self, address: str) -> int:
        """Returns the number of items of all kinds sent to or received from this server."""
        found = self._by_address.get(address)
        return 0 if found is None else sum(found.items)

    def items_by_kind(self) -> Mapping[str, float]:
        """The items of all servers, by the kind of call."""
        return {kind.name.lower(): float(self.whole.items[kind]) for kind in CallKind}
