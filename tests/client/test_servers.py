"""Addresses of servers, and the order in which they are tried."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pinlater.client import AsyncClient, Client, errors
from pinlater.domain.clock import ManualClock
from pinlater.worker import Worker
from tests.client.scripted import Script

Face = type[Client | AsyncClient]


def servers_of(client: Client | AsyncClient) -> list[tuple[str, int]]:
    return [(address.host, address.port) for address in client.servers]


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("example", "example", 9010),
        (" example:1 ", "example", 1),
        ("[::1]:77", "::1", 77),
        ("[::1]", "::1", 9010),
        ("::1", "::1", 9010),
    ],
)
def test_an_address_has_a_host_and_perhaps_a_port(text: str, host: str, port: int) -> None:
    client = Client([text])
    assert servers_of(client) == servers_of(Client(str(client.servers[0]))) == [(host, port)]


@pytest.mark.parametrize("text", ["", ":1", "a:b", "a:0", "a:70000", "[::1", "[::1]x", "a b:1", "a:-1"])
def test_an_invalid_server_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a server address"):
        Client([text])


def test_a_list_may_be_one_string_and_names_each_server_once() -> None:
    assert servers_of(Client("a:1, b:2,a:1")) == [("a", 1), ("b", 2)]


@pytest.mark.parametrize("face", [Client, AsyncClient])
def test_the_environment_names_the_servers_where_nothing_else_does(
    face: Face, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PINLATER_SERVERS", raising=False)
    assert servers_of(face()) == [("127.0.0.1", 9010)]
    monkeypatch.setenv("PINLATER_SERVERS", "b:2")
    assert servers_of(face()) == [("b", 2)]
    assert servers_of(face("a:1")) == [("a", 1)]
    listed = tmp_path / "servers"
    listed.write_text("c:3\nd\n")
    monkeypatch.setenv("PINLATER_SERVERS", f"file:{listed}")
    assert set(servers_of(face())) == {("c", 3), ("d", 9010)}


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
def test_an_empty_variable_counts_as_not_set(face: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PINLATER_SERVERS", "")
    assert servers_of(face()) == [("127.0.0.1", 9010)]


# --- the order ----------------------------------------------------------------------------------------------------------------


def counting(**more: Any) -> Script:
    """Servers of which each answers one call on a connection, so that each call shows which of them are tried."""
    script = Script(getJobCount=lambda _: 5, **more)
    script.hangs_up = True
    return script


async def tried(script: Script, client: AsyncClient) -> list[str]:
    """The servers to which the client turns for its next call, in order."""
    script.tried.clear()
    await client.count("q")
    return list(script.tried)


async def test_clients_differ_in_the_order_and_connections_spread_over_the_servers() -> None:
    firsts = set[str]()
    for _ in range(50):
        script = counting()
        async with AsyncClient("a b c", connect=script.connect, connections=3) as client:
            firsts.update(await tried(script, client))
            for _ in range(2):
                await client.count("q")
        assert set(script.tried) == {"a", "b", "c"}
    assert firsts == {"a", "b", "c"}


async def test_a_server_that_failed_is_tried_last_for_a_while_that_doubles() -> None:
    clock, script = ManualClock(), counting()
    async with AsyncClient("a b", connect=script.connect, connections=1, follow_owners=False, clock=clock) as client:
        [first] = await tried(script, client)
        [second] = {"a", "b"} - {first}
        for away_s in (0.5, 1.0, 2.0, 4.0):
            script.away = {first}
            assert await tried(script, client) == [first, second]
            clock.advance(seconds=away_s - 0.1)
            assert await tried(script, client) == [second]
            clock.advance(seconds=0.2)
        script.away = set()
        assert await tried(script, client) == [first]  # it answers, and what was before is forgotten
        script.away = {first}
        assert await tried(script, client) == [first, second]
        clock.advance(seconds=0.6)
        assert await tried(script, client) == [first, second]
        clock.advance(seconds=30)
        script.away = {"a", "b"}
        script.tried.clear()
        with pytest.raises(errors.ServerUnreachable):
            await client.sharing(wait_for_servers=False).count("q")
        assert set(script.tried) == {"a", "b"}  # while all are avoided they are tried all the same


async def test_failures_within_the_time_that_a_server_is_avoided_do_not_lengthen_it() -> None:
    """Otherwise many calls that wait for two servers would keep the one that comes back second out of use for half a minute."""
    clock, script, together = ManualClock(), counting(), asyncio.Event()

    async def connect(address: Any) -> Any:
        if address.host in script.away:
            await together.wait()
        return await script.connect(address)

    async with AsyncClient("a b", connect=connect, connections=20, follow_owners=False, clock=clock) as client:
        script.away = {"a"}
        calls = [asyncio.ensure_future(client.count("q")) for _ in range(20)]
        await asyncio.sleep(0)
        together.set()
        await asyncio.gather(*calls)
        assert script.tried.count("a") > 5
        clock.advance(seconds=0.51)
        script.away = set()
        script.tried.clear()
        await asyncio.gather(*[client.count("q") for _ in range(20)])
        assert "a" in script.tried


def test_a_server_set_file_is_read_again_when_it_changes_and_a_broken_one_keeps_the_last(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock, path = ManualClock(), tmp_path / "servers"
    path.write_text("# ours\na:1\n\nb:2\n")
    client = Client(path, clock=clock)
    assert servers_of(client) == [("a", 1), ("b", 2)]
    for text in ("nonsense:port\n", "", None):
        path.unlink() if text is None else path.write_text(text)
        clock.advance(seconds=2)
        assert servers_of(client) == [("a", 1), ("b", 2)]
    line = f"server set {path}: not a server address: 'nonsense:port'; write host:port; keeping the last good list"
    assert [record.message for record in caplog.records] == [line]
    replacement = tmp_path / "new"
    replacement.write_text("c:3")
    replacement.replace(path)
    assert servers_of(client) == [("a", 1), ("b", 2)]
    clock.advance(seconds=2)
    assert servers_of(client) == [("c", 3)]


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
