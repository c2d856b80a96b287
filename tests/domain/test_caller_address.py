"""Addresses of callers as the log shows them."""

from __future__ import annotations

import pytest

from pinlater.domain.caller_address import with_port


@pytest.mark.parametrize(
    ("peer", "shown"),
    [
        (("127.0.0.1", 56452), "127.0.0.1:56452"),
        (("::1", 5, 0, 0), "[::1]:5"),
        (("fe80::1%eth0", 5, 0, 2), "[fe80::1%eth0]:5"),
        (("::ffff:10.0.0.7", 5, 0, 0), "10.0.0.7:5"),
        ("", ""),
        (None, ""),
    ],
)
def test_an_address_with_its_port_is_shown_as_people_write_it(peer: object, shown: str) -> None:
    assert with_port(peer) == shown
