"""How many bytes of bodies the orders of one claim hold together."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.server.storage.values import ClaimOrder


class BytesTogether:
    """A claim hands out jobs while `left` is above 0: the first job always fits, and the last may exceed the bound."""

    __slots__ = ("left",)

    def __init__(self, orders: Sequence[ClaimOrder]) -> None:
        self.left = min([order.bytes_together_max for order in orders], default=0)
