"""Addresses of servers, and the order in which they are tried."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from pinlater.client import AsyncClient, Client
from pinlater.client._servers import (
    FixedServers,
    ServerAddress,
    ServerChoice,
    ServerSetFile,
    parse_address,
    parse_servers,
)
from pinlater.domain.clock import ManualClock
from pinlater.worker import Worker


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("example", ServerAddress("example", 9010)),
        (" example:1 ", ServerAddress("example", 1)),
        ("[::1]:77", ServerAddress("::1", 77)),
        ("[::1]", ServerAddress("::1", 9010)),
        ("::1", ServerAddress("::1", 9010)),
    ],
)
def test_an_address_has_a_host_and_perhaps_a_port(text: str, address: ServerAddress) -> None:
    assert parse_address(text) == address
    assert parse_address(str(address)) == address


@pytest.mark.parametrize("text", ["", ":1", "a:b", "a:0", "a:70000", "[::1", "[::1]x", "a b:1", "a:-1"])
def test_an_invalid_server_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a server address"):
        parse_address(text)


def test_a_list_may_be_one_string_and_names_each_server_once() -> None:
    assert parse_servers("a:1, b:2,a:1") == (ServerAddress("a", 1), ServerAddress("b", 2))
    assert parse_servers(["a:1"]) == (ServerAddress("a", 1),)
    with pytest.raises(ValueError, match="no server"):
        parse_servers(" , ")


@pytest.mark.parametrize("face", [Client, AsyncClient])
def test_the_environment_names_the_servers_where_nothing_else_does(
    face: type[Client | AsyncClient], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PINLATER_SERVERS", raising=False)
    assert face().servers == (ServerAddress("127.0.0.1", 9010),)
    monkeypatch.setenv("PINLATER_SERVERS", "b:2")
    assert face().servers == (ServerAddress("b", 2),)
    assert face("a:1").servers == (ServerAddress("a", 1),)
    listed = tmp_path / "servers"
    listed.write_text("c:3\nd\n")
    monkeypatch.setenv("PINLATER_SERVERS", f"file:{listed}")
    assert set(face().servers) == {ServerAddress("c", 3), ServerAddress("d", 9010)}


@pytest.mark.parametrize("empty", ["", " ", ",", [], ()], ids=repr)
@pytest.mark.parametrize("face", [Client, AsyncClient, Worker])
def test_empty_servers_are_refused_and_do_not_mean_the_default(
    face: type[Client | AsyncClient | Worker], empty: str | Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come from a setting that is missing, and the default server may be another service's."""
    monkeypatch.setenv("PINLATER_SERVERS", "b:2")
    with pytest.raises(ValueError, match=r"^no server given; write host:port$"):
        face(empty)


@pytest.mark.parametrize("face", [Client, AsyncClient])
def test_an_empty_variable_counts_as_not_set(face: type[Client | AsyncClient], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PINLATER_SERVERS", "")
    assert face().servers == (ServerAddress("127.0.0.1", 9010),)


def choice_of(servers: str, clock: ManualClock) -> ServerChoice:
    return ServerChoice(FixedServers(parse_servers(servers)), clock.monotonic, Random(1))


def test_clients_differ_in_the_order_and_connections_spread_over_the_servers() -> None:
    clock = ManualClock()
    listed = FixedServers(parse_servers("a b c"))
    firsts = {ServerChoice(listed, clock.monotonic, Random(seed)).candidates()[0].host for seed in range(50)}
    assert firsts == {"a", "b", "c"}
    choice = choice_of("a b c", clock)
    assert {choice.candidates(start)[0].host for start in range(3)} == {"a", "b", "c"}


def test_a_server_that_failed_is_tried_last_for_a_while_that_doubles() -> None:
    clock = ManualClock()
    choice = choice_of("a b c", clock)
    first = choice.candidates()[0]
    choice.failed(first)
    assert choice.candidates()[-1] == first
    assert len(choice.candidates()) == 3
    clock.advance(seconds=0.6)
    assert choice.candidates()[0] == first
    choice.failed(first)
    clock.advance(seconds=0.6)
    assert choice.candidates()[-1] == first
    choice.worked(first)
    assert choice.candidates()[0] == first


def test_a_server_set_file_is_read_again_when_it_changes_and_a_broken_one_keeps_the_last(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock, path = ManualClock(), tmp_path / "servers"
    path.write_text("# ours\na:1\n\nb:2\n")
    servers = ServerSetFile(path, clock.monotonic)
    assert servers.addresses() == (ServerAddress("a", 1), ServerAddress("b", 2))
    for text in ("nonsense:port\n", "", None):
        path.unlink() if text is None else path.write_text(text)
        clock.advance(seconds=2)
        assert servers.addresses() == (ServerAddress("a", 1), ServerAddress("b", 2))
    line = f"server set {path}: not a server address: 'nonsense:port'; write host:port; keeping the last good list"
    assert [record.message for record in caplog.records] == [line]
    replacement = tmp_path / "new"
    replacement.write_text("c:3")
    replacement.replace(path)
    assert servers.addresses() == (ServerAddress("a", 1), ServerAddress("b", 2))
    clock.advance(seconds=2)
    assert servers.addresses() == (ServerAddress("c", 3),)


def test_a_server_set_file_that_is_broken_at_the_start_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("#\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "wrong").write_text("a:port\n")
    (tmp_path / "binary").write_bytes(b"\xff")
    for name, why in {
        "missing": "can't be read: No such file or directory",
        "folder": "can't be read: Is a directory",
        "binary": "can't be read: 'utf-8' codec can't decode byte 0xff",
        "empty": "no server given; write host:port",
        "wrong": "not a server address: 'a:port'; write host:port",
    }.items():
        with pytest.raises(ValueError, match=f"^server set {re.escape(f'{tmp_path / name}: {why}')}"):
            Client(tmp_path / name)
