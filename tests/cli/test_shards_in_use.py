"""Which of the shards a server uses, in `pinlater shards status`: asked over Thrift, or on the pages of its HTTP port."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pinlater.cli import exits
from pinlater.testing.real_server import RealServer
from pinlater.wire.wrong_port import THRIFT_PORT
from tests.cli.conftest import Done, Pinlater
from tests.databases.ports import free_port
from tests.shared_shards.serving import MysqlPlace, ServedShards

ON_MYSQL = pytest.mark.parametrize("place", ["mysql"], indirect=True)


def about_the_server(done: Done) -> str:
    """What a command says beside the remarks on shards: the private databases do not keep all promises, which it shows too."""
    return "".join(line for line in done.err.splitlines(keepends=True) if not line.startswith("shard "))


def test_status_asks_the_server_and_names_it(
    shards: Callable[..., Done], offline: Pinlater, serve: Callable[..., RealServer]
) -> None:
    server = serve()
    done = shards("status", "--server", server.address)
    [answer] = offline.ok("cluster", "status", "--server", server.address, "--json").json["answers"]
    said = rf"in use: according to \S+ at {server.address}; other servers reach it at {answer['address']}\n"
    assert (done.code, bool(re.fullmatch(said, about_the_server(done)))) == (0, True)
    found = shards("status", "--server", server.address, "--json").json
    assert found["server"]["cluster_address"] == answer["address"]
    assert found["server"]["in_use"] == {"1": True, "2": True}
    assert [shard["in_use"] for shard in found["shards"]] == [True, True]


@ON_MYSQL
def test_status_sends_the_token_over_thrift_and_to_pages(
    shards: Callable[..., Done],
    offline: Pinlater,
    serve: Callable[..., RealServer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokens, secret = str(tmp_path / "tokens.json"), str(tmp_path / "admin.token")
    offline.ok("token", "create", "admin", "--role", "admin", "--tokens", tokens, "--output", secret)
    server = serve("--tokens", tokens)
    asked = (("--server", server.address), ("--http", f"127.0.0.1:{server.http_port}"))
    for option, address in asked:
        refused = shards("status", option, address)
        assert (refused.code, address in refused.err, "oken" in refused.err) == (exits.REFUSED, True, True)
    monkeypatch.setenv("PINLATER_TOKEN_FILE", secret)
    for option, address in asked:
        done = shards("status", option, address, "--json")
        assert (done.code, done.json["server"]["in_use"]) == (0, {"1": True, "2": True})


@ON_MYSQL
def test_status_asks_the_servers_of_the_environment_and_shows_what_it_could_not_learn(
    shards: Callable[..., Done],
    serve: Callable[..., RealServer],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    place: ServedShards,
) -> None:
    """A server that was not asked for by an option may be down: the databases tell without it."""
    server, silent = serve(), f"127.0.0.1:{free_port()}"
    monkeypatch.delenv("PINLATER_HTTP_PORT")
    command = ("shards", "status", "--shards", str(place.path))
    with_server = Pinlater(monkeypatch, capfd, f"{silent},{server.address}")
    assert f"at {server.address}; other servers reach it at" in with_server(*command).err
    without = Pinlater(monkeypatch, capfd, silent)(*command)
    assert (without.code, without.err.startswith(f"no server answers at {silent}: ")) == (0, True)
    monkeypatch.setenv("PINLATER_HTTP_PORT", str(server.http_port))
    assert f"at 127.0.0.1:{server.http_port}; " in Pinlater(monkeypatch, capfd, silent)(*command).err


@ON_MYSQL
def test_status_believes_no_server_of_other_databases_with_shards_of_the_same_names(
    shards: Callable[..., Done], offline: Pinlater, place: MysqlPlace, tmp_path: Path
) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    other = MysqlPlace(folder, place.server, f"{place.prefix}o_")
    ours = RealServer(tmp_path, store=place.store)
    with ours, RealServer(folder, "--set", f"mysql.database_prefix={other.prefix}", store=other.store) as theirs:
        for option, address in (("--server", theirs.address), ("--http", f"127.0.0.1:{theirs.http_port}")):
            done = shards("status", option, address)
            assert done.code == exits.REFUSED
            assert re.fullmatch(
                rf"the server at {address} \(\S+\) does not serve these shards\n", about_the_server(done)
            )
            assert shards("status", option, address, "--json").json["server"]["in_use"] is None
        found = shards("status", "--server", f"{theirs.address},{ours.address}", "--json").json["server"]
    assert (found["address"], found["in_use"]) == (ours.address, {"1": True, "2": True})


@ON_MYSQL
def test_a_thrift_port_given_as_http_is_answered_with_the_servers_own_words(
    shards: Callable[..., Done], serve: Callable[..., RealServer]
) -> None:
    address = serve().address
    done = shards("status", "--http", address)
    assert done.code == exits.REFUSED
    assert about_the_server(done) == f"{address} answers 400: {THRIFT_PORT} (`--server {address}` asks there)\n"


@ON_MYSQL
def test_status_names_the_server_whose_pages_it_asked(
    shards: Callable[..., Done], offline: Pinlater, serve: Callable[[], RealServer], place: ServedShards
) -> None:
    server = serve()
    done = shards("status", "--http", f"127.0.0.1:{server.http_port}")
    port = server.address.rpartition(":")[2]
    [answer] = offline.ok("cluster", "status", "--server", server.address, "--json").json["answers"]
    said = rf"in use: according to \S+:{port} at 127.0.0.1:{server.http_port}; other servers reach it at {answer['address']}\n"
    assert re.fullmatch(said, about_the_server(done))
    found = shards("status", "--http", f"127.0.0.1:{server.http_port}", "--json").json
    assert found["server"]["name"].endswith(f":{port}")
    assert found["server"]["cluster_address"] == answer["address"]
    assert found["server"]["in_use"] == {"1": True, "2": True}


@ON_MYSQL
def test_status_believes_no_server_of_other_shards(
    shards: Callable[..., Done], offline: Pinlater, place: ServedShards, tmp_path: Path
) -> None:
    """One may listen on the usual port, with shards of the same names."""
    assert offline("server", "migrate", "--shards", str(place.path)).code == 0
    with RealServer(tmp_path) as other:
        address = f"127.0.0.1:{other.http_port}"
        done = shards("status", "--http", address)
        assert (done.code, done.err.startswith(f"the server at {address} (")) == (exits.REFUSED, True)
        assert about_the_server(done).endswith("does not serve these shards\n")
        found = shards("status", "--http", address, "--json").json
    assert [shard["in_use"] for shard in found["shards"]] == [None, None]
    assert found["server"]["in_use"] is None


@ON_MYSQL
def test_status_asks_no_server_if_no_setting_names_one(
    shards: Callable[..., Done], place: ServedShards, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PINLATER_HTTP_PORT")
    assert shards("status", "--json").json["server"] is None
    done = shards("status")
    assert (done.code, done.err) == (
        0,
        "in use: no server was asked; --server HOST:PORT or PINLATER_SERVERS names one\n",
    )


@ON_MYSQL
def test_status_says_that_no_server_answers_where_one_was_named(
    shards: Callable[..., Done], place: ServedShards
) -> None:
    address = f"127.0.0.1:{free_port()}"
    done = shards("status", "--http", address)
    assert (done.code, done.err) == (exits.REFUSED, f"no server answers at {address}: [Errno 111] Connection refused\n")
    done = shards("status", "--server", address)
    assert (done.code, done.err.startswith(f"no server answers at {address}: ")) == (exits.REFUSED, True)
