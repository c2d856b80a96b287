"""Addresses of servers, and the order in which they are tried."""

from __future__ import annotations

import pytest

from pinlater.client._servers import Address, ServerChoice, parse_address, parse_servers


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("example", Address("example", 9010)),
        (" example:1 ", Address("example", 1)),
        ("[::1]:77", Address("::1", 77)),
        ("[::1]", Address("::1", 9010)),
        ("::1", Address("::1", 9010)),
    ],
)
def test_an_address_has_a_host_and_perhaps_a_port(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert parse_address(str(address)) == address


@pytest.mark.parametrize("text", ["", ":1", "a:b", "a:0", "a:70000", "[::1", "[::1]x", "a b:1", "a:-1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a server address"):
        parse_address(text)


def test_a_list_may_be_one_string_and_names_each_server_once() -> None:
    assert parse_servers("a:1, b:2,a:1") == (Address("a", 1), Address("b", 2))
    assert parse_servers(["a:1"]) == (Address("a", 1),)
    with pytest.raises(ValueError, match="no server"):
        parse_servers(" , ")


def test_a_server_that_failed_is_tried_last() -> None:
    choice = ServerChoice(parse_servers("a b c"))
    choice.failed(Address("a", 9010))
    assert [address.host for address in choice.candidates()] == ["b", "c", "a"]
