"""The user who runs a command, as the audit names it."""

from __future__ import annotations

import os
import pwd
import socket
from pathlib import Path

import pytest

from pinlater.cli.local_user import local_author
from pinlater.server.config.file_authors import FileAuthor, authors_of
from tests.cli.conftest import Pinlater


def test_the_user_is_named_by_login_by_the_caller_of_sudo_or_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    name, host = pwd.getpwuid(os.getuid()).pw_name, socket.gethostname()
    assert local_author({}) == FileAuthor(f"{name} (local)", host)
    assert local_author({"SUDO_USER": "alice"}) == FileAuthor("alice (via sudo)", host)
    assert local_author({"SUDO_USER": name}) == FileAuthor(f"{name} (local)", host)
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)
    assert local_author({}).user == f"uid {2**31 - 7} (local)"


def test_commands_that_change_tokens_note_who_called_them(
    pinlater: Pinlater, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "tokens.json"
    monkeypatch.setenv("SUDO_USER", "alice")
    for name in ("a", "b", "c"):
        pinlater.ok("token", "create", name, "--role", "read", "--tokens", str(path))
    monkeypatch.setenv("SUDO_USER", "bob")
    pinlater.ok("token", "limit", "b", "--max-polls", "3", "--tokens", str(path))
    pinlater.ok("token", "revoke", "c", "--tokens", str(path))
    found = {name: author.user for name, author in authors_of(path).items()}
    assert found == {"a": "alice (via sudo)", "b": "bob (via sudo)", "c": "bob (via sudo)"}
