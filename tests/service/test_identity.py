"""The identity that a server states."""

from __future__ import annotations

from pinlater.server.dispatch.identity import Identity


def test_a_claim_names_the_port_that_the_system_chose() -> None:
    identity = Identity("host", 0, 1_700_000_000_000, 3)
    identity.port = 4711  # known once the server listens
    assert identity.holder("me", 5).descriptor == "host:4711:1700000000000:me:1"
    assert identity.holder("me", 5).token != identity.holder("me", 5).token


def test_servers_that_start_in_the_same_millisecond_without_a_slot_have_tokens_of_their_own() -> None:
    """The shard that gives out slots may be away: both have slot 0 then."""
    one, other = (Identity("host", 9010, 1_700_000_000_000, 0, nonce) for nonce in (5, 6))
    assert one.holder("me", 5).token != other.holder("me", 5).token
