"""What a feature adds to a server, as a record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pinlater.server.front.operations import Forwarded
from pinlater.server.operations.parts import Parts
from pinlater.server.operations.service import Service
from pinlater.server.thrift.methods.record import ServedMethod


def _nothing(parts: Parts) -> None:
    del parts


class Feature(NamedTuple):
    """One feature.

    `methods`: the records of its methods of the protocol.
    `add`: adds its objects to a service, and its work to the lists there.
    `forwarded`: its operations, which a front process forwards to the process that has the store.
    `add_to_front`: what it adds to a front process beside these operations.
    """

    methods: Sequence[ServedMethod]
    add: Callable[[Service], None]
    forwarded: Forwarded
    add_to_front: Callable[[Parts], None] = _nothing
