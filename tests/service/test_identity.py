"""Who a server says that it is."""

from __future__ import annotations

from pinlater.service.identity import Identity


def test_a_claim_names_the_port_that_the_system_chose() -> None:
    identity = Identity("host", 0, 1_700_000_000_000, 3)
    identity.port = 4711  # known once the server listens
    assert identity.holder("me").descriptor == "host:4711:1700000000000:me:1"
    assert identity.holder("me").token != identity.holder("me").token
