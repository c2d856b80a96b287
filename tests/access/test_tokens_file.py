"""The file of tokens: what is in it, how it is changed, how a server takes changes over, and when tokens were last used."""

from __future__ import annotations

import asyncio
import json
import stat
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pinlater.client import AsyncClient
from pinlater.client.errors import QuotaExceeded, TokenInvalid
from pinlater.domain.access import Role, digest_of, new_secret
from pinlater.server.access.last_use import last_use_file, note_last_uses, read_last_uses
from pinlater.server.access.quotas import OwnQuota
from pinlater.server.access.settings import AccessSettings
from pinlater.server.access.tokens import Token, change_tokens, parse_tokens, tokens_text
from pinlater.server.config.file_authors import FileAuthor, note_author
from pinlater.server.config.files import FileBroken, tokens_in
from pinlater.server.config.settings import Settings
from pinlater.server.config.store import StoreLocation
from pinlater.server.http.settings import HttpSettings
from pinlater.server.main.app import App
from pinlater.server.thrift.settings import ThriftSettings

GOOD = Token("billing", "0" * 64, (Role.PRODUCE, Role.READ), ("bill*", "mail"), 1, 2)


def test_tokens_come_back_from_their_file_as_they_were() -> None:
    tokens = (
        GOOD,
        Token("b", "1" * 64, (Role.ADMIN,)),
        GOOD._replace(name="c", digest="2" * 64, speaks_for_others=True),
    )
    assert parse_tokens(tokens_text(tokens).encode()) == tokens


def entry(**changes: object) -> dict[str, object]:
    fields = json.loads(tokens_text([GOOD]))["tokens"][0] | changes
    return {name: value for name, value in fields.items() if value is not ...}


@pytest.mark.parametrize(
    "entries",
    [
        None,
        [None],
        [entry(name="")],
        [entry(name="two words")],
        [entry(name=...)],
        [entry(roles=[])],
        [entry(roles=["root"])],
        [entry(roles="read")],
        [entry(queues=[])],
        [entry(queues=["mail?"])],
        [entry(sha256="0" * 63)],
        [entry(sha256="G" * 64)],
        [entry(expires_at_ms="soon")],
        [entry(expires_at_ms=True)],
        [entry(secret="x")],
        [entry(speaks_for_others=1)],
        [entry(speaks_for_others=None)],
        [entry(), entry(sha256="1" * 64)],
        [entry(), entry(name="other")],
    ],
)
def test_a_file_with_anything_wrong_is_refused_as_a_whole(entries: object) -> None:
    """An entry that was left out could be the narrower one of two, or hide a mistake in `revoke`."""
    with pytest.raises(ValueError):
        parse_tokens(json.dumps({"tokens": entries}).encode())


def test_a_first_file_is_for_its_owner_alone_and_a_change_keeps_the_mode(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    change_tokens(path, lambda known: [*known, GOOD])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o640)
    change_tokens(path, lambda known: [*known, Token("b", "1" * 64, (Role.READ,))])
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [token.name for token in parse_tokens(path.read_bytes())] == ["billing", "b"]


def test_a_change_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    path.write_text("{broken")
    with pytest.raises(ValueError, match="line 1"):
        change_tokens(path, lambda known: known)
    assert path.read_text() == "{broken"
    assert not (tmp_path / "tokens.json.new").exists()


def test_changes_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"

    def add(number: int) -> None:
        change_tokens(path, lambda known: [*known, Token(f"t{number}", f"{number:064x}", (Role.READ,))])

    threads = [threading.Thread(target=add, args=[number]) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {token.name for token in parse_tokens(path.read_bytes())} == {f"t{number}" for number in range(20)}


def test_a_file_that_every_user_may_change_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    path.write_text(tokens_text([GOOD]))
    path.chmod(0o602)
    with pytest.raises(FileBroken, match="can be changed by every user"):
        tokens_in(path)


def test_last_uses_of_several_servers_are_joined_and_those_of_revoked_tokens_go(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    assert read_last_uses(path) is None
    note_last_uses(path, {"a": 10, "b": 20}, {"a", "b"})
    note_last_uses(path, {"a": 5}, {"a", "b"})
    assert read_last_uses(path) == {"a": 10, "b": 20}
    note_last_uses(path, {"a": 30}, {"a"})
    assert read_last_uses(path) == {"a": 30}
    last_use_file(path).write_text("{broken")
    assert read_last_uses(path) is None


def test_last_uses_are_noted_by_a_server_that_may_not_lock_the_tokens(tmp_path: Path) -> None:
    """Root has made the tokens, and so the lock of their file, in a folder that the server owns."""
    path = tmp_path / "tokens.json"
    Path(f"{path}.lock").mkdir()  # no user can open it, not even root
    note_last_uses(path, {"a": 10}, {"a"})
    assert read_last_uses(path) == {"a": 10}


class ServedTokens:
    """A whole server with a file of tokens; `secret` is good at its start."""

    def __init__(self, folder: Path, **access: Any) -> None:
        self.path = folder / "tokens.json"
        self.secret = new_secret()
        self.token = Token("reader", digest_of(self.secret), (Role.READ,))
        self.path.write_text(tokens_text([self.token]))
        self.app = App(
            Settings(
                store=StoreLocation("memory"),
                thrift=ThriftSettings(port=0),
                http=HttpSettings(port=0),
                access=AccessSettings(self.path, **access),
            )
        )

    def client(self) -> AsyncClient:
        return AsyncClient(f"127.0.0.1:{self.app.thrift.port}", token=self.secret, connections=1)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[ServedTokens]:
    served = ServedTokens(tmp_path)
    await served.app.start()
    yield served
    await served.app.stop(1)


async def until_refused(client: AsyncClient) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                await client.queue_names()
            except TokenInvalid:
                return
            await asyncio.sleep(0.05)


async def test_a_running_server_takes_over_a_changed_file_and_keeps_the_last_good_one(served: ServedTokens) -> None:
    async with served.client() as client:
        assert await client.queue_names() == []
        assert (await client.server_info()).access == "tokens"
        served.path.write_text("{broken")
        async with asyncio.timeout(30):
            while not served.app.listener_files.broken.get("access.tokens_file"):
                await asyncio.sleep(0.05)
        assert await client.queue_names() == []
        change_tokens_of_a_broken_file(served.path)
        await until_refused(client)
        assert not served.app.listener_files.broken["access.tokens_file"]


async def test_a_running_server_takes_over_a_quota(served: ServedTokens) -> None:
    async with served.client() as first, served.client() as second:
        await first.queue_names()
        limited = served.token._replace(quota=OwnQuota(connections=1))
        change_tokens(served.path, lambda _: [limited])
        control = served.app.listener_files.access
        assert control is not None
        async with asyncio.timeout(30):
            while not control.has_quotas:
                await asyncio.sleep(0.05)
        await first.queue_names()
        with pytest.raises(QuotaExceeded, match="token reader have used up their quota of 1 connection"):
            await second.queue_names()
        await first.queue_names()


async def test_a_server_begins_with_the_quotas_of_its_settings(tmp_path: Path) -> None:
    served = ServedTokens(tmp_path, token_max_connections=1)
    await served.app.start()
    async with served.client() as first, served.client() as second:
        await first.queue_names()
        with pytest.raises(QuotaExceeded):
            await second.queue_names()
    await served.app.stop(1)


async def test_the_audit_of_a_running_server_names_the_user_of_a_command(served: ServedTokens) -> None:
    ops = new_secret()
    change_tokens(
        served.path,
        lambda known: [*known, Token("ops", digest_of(ops), (Role.OPERATE,))],
        partial(note_author, served.path, ["ops"], FileAuthor("alice (via sudo)", "box")),
    )
    async with AsyncClient(f"127.0.0.1:{served.app.thrift.port}", token=ops) as client, asyncio.timeout(30):
        while True:
            with suppress(TokenInvalid):
                if found := (await client.audit(who="alice (via sudo)")).entries:
                    break
            await asyncio.sleep(0.05)
    [entry] = found
    assert (entry.operation, entry.address, entry.source) == ("tokenAdded", "box", "tokens file")


async def test_changes_of_the_file_are_in_the_audit_of_a_running_server(served: ServedTokens) -> None:
    ops = new_secret()
    change_tokens(served.path, lambda known: [*known, Token("ops", digest_of(ops), (Role.OPERATE,))])
    change_tokens(served.path, lambda known: known[1:])
    async with AsyncClient(f"127.0.0.1:{served.app.thrift.port}", token=ops) as client, asyncio.timeout(30):
        while True:
            with suppress(TokenInvalid):
                if len(found := (await client.audit(who="tokens file")).entries) == 2:
                    break
            await asyncio.sleep(0.05)
    assert sorted((entry.operation, entry.shown_arguments()["token"]) for entry in found) == [
        ("tokenAdded", '"ops"'),
        ("tokenRemoved", '"reader"'),
    ]


def change_tokens_of_a_broken_file(path: Path) -> None:
    path.write_text(tokens_text([Token("another", "1" * 64, (Role.READ,))]))


async def test_a_server_that_stops_notes_the_last_uses(tmp_path: Path) -> None:
    served = ServedTokens(tmp_path)
    await served.app.start()
    async with served.client() as client:
        await client.queue_names()
    await served.app.stop(1)
    assert list(read_last_uses(served.path) or ()) == [served.token.digest]
