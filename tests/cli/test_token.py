"""`pinlater token`, and servers that want tokens or may not start without them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pinlater.cli import exits
from pinlater.domain.access import digest_of
from pinlater.server.access.last_use import note_last_uses
from pinlater.testing import RealServer
from tests.cli.conftest import Pinlater


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


def test_a_token_is_created_listed_and_revoked(offline: Pinlater, file: Path) -> None:
    made = offline.ok(
        "token", "create", "billing", "--role", "produce", "--role", "work", "--queue", "bill*", "--expires", "90d",
        "--tokens", str(file), "--json",
    ).json  # fmt: skip
    note_last_uses(file, {digest_of(made["token"]): 5}, {digest_of(made["token"])})
    (listed,) = offline.ok("token", "list", "--tokens", str(file), "--json").json["tokens"]
    assert listed == {name: value for name, value in made.items() if name != "token"} | {"last_used_at_ms": 5}
    assert (listed["roles"], listed["queues"], listed["expired"]) == (["produce", "work"], ["bill*"], False)
    assert listed["expires_at_ms"] - listed["created_at_ms"] == 90 * 86_400_000
    offline.ok("token", "revoke", "billing", "--tokens", str(file))
    assert offline.ok("token", "list", "--tokens", str(file), "--json").json == {"tokens": [], "last_use_known": True}


def test_where_servers_note_no_use_the_list_does_not_say_that_a_token_is_unused(offline: Pinlater, file: Path) -> None:
    offline.ok("token", "create", "billing", "--role", "produce", "--tokens", str(file))
    show = ("token", "list", "--tokens", str(file))
    assert offline.ok(*show).out.splitlines()[1].endswith("\tunknown")
    note_last_uses(file, {}, {})
    assert offline.ok(*show).out.splitlines()[1].endswith("\t-")


def test_a_token_has_a_quota_that_can_be_changed(offline: Pinlater, file: Path) -> None:
    made = offline.ok(
        "token", "create", "billing", "--role", "work", "--max-connections", "300", "--max-bytes-in-flight", "64MiB",
        "--tokens", str(file), "--json",
    ).json  # fmt: skip
    bounds = {name: made[name] for name in ("max_connections", "max_polls", "max_bytes_in_flight")}
    assert bounds == {"max_connections": 300, "max_polls": None, "max_bytes_in_flight": 64 * 2**20}
    assert "300 connections, 64 MiB in flight" in offline.ok("token", "list", "--tokens", str(file)).out
    changed = offline.ok("token", "limit", "billing", "--max-polls", "200", "--max-connections", "default",
                         "--tokens", str(file))  # fmt: skip
    assert changed.out == "quota of billing: 200 polls, 64 MiB in flight\n"
    unbounded = offline.ok("token", "limit", "billing", "--max-polls", "0", "--max-bytes-in-flight", "100000",
                           "--tokens", str(file), "--json")  # fmt: skip
    assert unbounded.json == {"name": "billing", "max_connections": None, "max_polls": 0, "max_bytes_in_flight": 100000}
    (listed,) = offline.ok("token", "list", "--tokens", str(file), "--json").json["tokens"]
    assert {name: listed[name] for name in bounds} | {"name": "billing"} == unbounded.json
    assert "any polls, 100000 bytes in flight" in offline.ok("token", "list", "--tokens", str(file)).out


def test_a_token_may_speak_for_others(offline: Pinlater, file: Path) -> None:
    arguments = ("token", "create", "console", "--role", "operate", "--tokens", str(file), "--json")
    assert offline.ok(*arguments, "--speaks-for-others").json["speaks_for_others"] is True
    (listed,) = offline.ok("token", "list", "--tokens", str(file), "--json").json["tokens"]
    assert listed["speaks_for_others"] is True


def test_the_secret_alone_is_on_standard_output_and_not_in_the_file(offline: Pinlater, file: Path) -> None:
    """So that `> FILE` makes a file for `--token-file`."""
    done = offline.ok("token", "create", "reader", "--role", "read", "--tokens", str(file))
    secret = done.out.strip()
    assert secret.startswith("pinlater_")
    assert secret not in done.err
    assert secret not in file.read_text()
    assert digest_of(secret) in file.read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["create", "a"], exits.USAGE, "--role"),
        (["create", "a", "--role", "root"], exits.USAGE, "root"),
        (["create", "two words", "--role", "read"], exits.USAGE, "not a name for a token"),
        (["create", "a", "--role", "read", "--queue", "mail?"], exits.USAGE, "not a pattern of queues"),
        (["create", "a", "--role", "read", "--expires", "soon"], exits.USAGE, "is not a duration"),
        (["create", "taken", "--role", "read"], exits.REFUSED, "has a token taken already"),
        (["revoke", "absent"], exits.REFUSED, "has no token absent"),
        (["limit", "absent", "--max-polls", "1"], exits.REFUSED, "has no token absent"),
        (["limit", "taken"], exits.USAGE, "at least one of"),
        (["limit", "taken", "--max-polls", "-1"], exits.USAGE, "--max-polls"),
        (["limit", "taken", "--max-connections", "many"], exits.USAGE, "--max-connections"),
        (["limit", "taken", "--max-bytes-in-flight", "64 parsecs"], exits.USAGE, "--max-bytes-in-flight"),
        (["create", "a", "--role", "read", "--max-bytes-in-flight", "1KiB"], exits.USAGE, "too few"),
    ],
)
def test_what_cannot_be_done_says_why(
    offline: Pinlater, file: Path, arguments: list[str], code: int, text: str
) -> None:
    offline.ok("token", "create", "taken", "--role", "read", "--tokens", str(file))
    before = file.read_text()
    done = offline("token", *arguments, "--tokens", str(file))
    assert (done.code, text in done.err) == (code, True), done.err
    assert file.read_text() == before


def test_the_settings_name_the_file(offline: Pinlater, file: Path, tmp_path: Path) -> None:
    """Also one that does not exist yet, and settings whose server needs it."""
    config = tmp_path / "pinlater.toml"
    config.write_text('host = "0.0.0.0"\n[access]\ntokens_file = "tokens.json"\n')
    offline.ok("token", "create", "a", "--role", "read", "--config", str(config))
    assert '"a"' in file.read_text()
    assert offline("token", "list").code == exits.USAGE


def test_a_server_whose_file_of_tokens_is_missing_does_not_start(offline: Pinlater, file: Path) -> None:
    done = offline("serve", "--store", "memory:", "--tokens", str(file))
    assert done.code == exits.SETTINGS
    assert "pinlater token create" in done.err


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "jobs.example"])
def test_a_server_beyond_loopback_does_not_start_without_tokens(offline: Pinlater, host: str) -> None:
    done = offline("serve", "--store", "memory:", "--host", host)
    assert (done.code, done.err.count("\n")) == (exits.SETTINGS, 1)
    assert "--insecure" in done.err
    assert "--tokens" in done.err


def test_commands_send_the_token_of_their_file(
    offline: Pinlater, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    files = {}
    for role in ("admin", "read", "produce"):
        files[role] = tmp_path / f"{role}.token"
        files[role].write_text(offline.ok("token", "create", role, "--role", role, "--tokens", str(file)).out)
    with RealServer(tmp_path, "--tokens", str(file)) as server:
        pinlater = Pinlater(monkeypatch, capfd, server.address)
        done = pinlater("queue", "list")
        assert (done.code, "PINLATER_TOKEN" in done.err) == (exits.REFUSED, True)
        monkeypatch.setenv("PINLATER_TOKEN_FILE", str(files["admin"]))
        pinlater.ok("queue", "create", "mail")
        done = pinlater("queue", "pause", "mail", "--token-file", str(files["read"]))
        assert (done.code, "needs the role operate; token read has read" in done.err) == (exits.REFUSED, True)
        made = pinlater.ok("queue", "create", "parcels", "--token-file", str(files["produce"]))  # which may list none
        assert made.out == "created parcels\n"
        done = pinlater("queue", "create", "more", "--token-file", str(files["read"]))
        assert (done.code, "createQueue needs the role" in done.err) == (exits.REFUSED, True)
        monkeypatch.setenv("PINLATER_TOKEN_FILE", str(files["admin"]))
        pinlater.ok("queue", "delete", "mail", "--no-password")
