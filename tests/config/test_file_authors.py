"""The users whose commands changed a file: what servers believe of the notes next to it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from pinlater.server.config import file_authors
from pinlater.server.config.file_authors import FileAuthor, authors_of, note_author

ALICE, BOB = FileAuthor("alice (local)", "box"), FileAuthor("bob (via sudo)", "box")


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_authors, "_PAUSE_S", 0.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


def changes(path: Path, author: FileAuthor, content: str, *names: str) -> None:
    """As a command does it."""
    before = path.read_bytes() if path.exists() else b""
    note_author(path, names, author, before, content.encode())
    path.write_text(content)


def notes_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.authors")


def test_the_last_author_of_each_name_is_known(path: Path) -> None:
    changes(path, ALICE, "1", "a", "b")
    changes(path, BOB, "2", "b")
    assert authors_of(path) == {"a": ALICE, "b": BOB}


def test_a_change_by_hand_has_no_author(path: Path) -> None:
    changes(path, ALICE, "1", "a")
    path.write_text("by hand")
    assert authors_of(path) == {}


def test_authors_before_a_change_by_hand_are_not_taken_for_its_author(path: Path) -> None:
    changes(path, ALICE, "1", "a")
    path.write_text("by hand")
    changes(path, BOB, "2", "b")
    assert authors_of(path) == {"b": BOB}


def test_a_command_that_ended_before_its_change_counts_for_nothing(path: Path) -> None:
    changes(path, ALICE, "1", "a")
    note_author(path, ["b"], BOB, b"1", b"2")
    assert authors_of(path) == {}
    changes(path, ALICE, "3", "c")
    assert authors_of(path) == {"c": ALICE}


def test_a_server_that_looks_between_note_and_change_looks_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes(path, ALICE, "1", "a")
    note_author(path, ["b"], BOB, b"1", b"2")
    monkeypatch.setattr(time, "sleep", lambda _: path.write_text("2"))
    assert authors_of(path) == {"a": ALICE, "b": BOB}


def test_a_missing_file_and_missing_or_broken_notes_give_no_author(path: Path) -> None:
    assert authors_of(None) == {}
    assert authors_of(path) == {}
    path.write_text("1")
    assert authors_of(path) == {}
    for broken in ("", "[]", "{", '{"changes": [1]}', '{"changes": [{"names": "a"}]}', '{"changes": 7}'):
        notes_of(path).write_text(broken)
        assert authors_of(path) == {}
    changes(path, ALICE, "2", "a")
    assert authors_of(path) == {"a": ALICE}, "the next command begins anew"


def test_notes_that_every_user_may_write_are_not_believed(path: Path) -> None:
    changes(path, ALICE, "1", "a")
    notes_of(path).chmod(0o666)
    assert authors_of(path) == {}


def test_the_notes_have_the_readers_of_the_file_and_no_part_of_its_content(path: Path) -> None:
    path.write_text("secret")
    path.chmod(0o640)
    changes(path, ALICE, "another secret", "a")
    assert notes_of(path).stat().st_mode & 0o777 == 0o640
    assert "secret" not in notes_of(path).read_text()
    notes_of(path).unlink()
    path.unlink()
    changes(path, ALICE, "first", "a")
    assert notes_of(path).stat().st_mode & 0o777 == 0o600


def test_notes_are_bounded(path: Path) -> None:
    for number in range(60):
        changes(path, ALICE, str(number), f"name-{number}")
    assert len(json.loads(notes_of(path).read_text())["changes"]) == 50
    assert len(authors_of(path)) == 50
