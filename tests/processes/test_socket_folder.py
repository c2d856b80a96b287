"""The folder of the sockets: private, short enough, and removed even after a kill."""

from __future__ import annotations

import errno
import fcntl
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinlater.server.main.socket_folder import socket_folder


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The system's folder for temporary files."""
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


def abandoned(folder: Path) -> Path:
    """What a killed supervisor has left."""
    path = folder / "pinlater-sockets-abandoned"
    path.mkdir()
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path / "store"))
    return path


def test_only_the_user_may_enter_and_it_is_gone_at_the_end(temporary: Path) -> None:
    with socket_folder() as folder:
        assert stat.S_IMODE(Path(folder.path).stat().st_mode) == 0o700
        assert Path(folder.path).parent == temporary
    assert list(temporary.iterdir()) == []


def test_what_a_killed_supervisor_has_left_is_removed_and_what_others_use_is_not(temporary: Path) -> None:
    old = abandoned(temporary)
    other = temporary / "pinlater-sockets-with-a-file"
    other.mkdir()
    (other / "file").touch()
    with socket_folder() as first, socket_folder() as second:
        assert not old.exists()
        assert Path(first.path).is_dir()
        assert Path(second.path).is_dir()
    assert list(temporary.iterdir()) == [other]


def test_a_long_path_of_temporary_files_is_not_used(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket's path has about a hundred bytes at most."""
    long = temporary / ("x" * 80)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with socket_folder() as folder, socket.socket(socket.AF_UNIX) as one:
        one.bind(folder.of_server("a-host.example.org:9010"))
    assert list(long.iterdir()) == []


def test_each_server_has_a_socket_of_its_own(temporary: Path) -> None:
    with socket_folder() as folder:
        names = {folder.of_store, folder.of_server("a:1"), folder.of_server("a:2"), folder.of_server("b:1")}
        assert len(names) == 4


def test_a_file_system_without_locks_is_an_error_and_leaves_nothing(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0

    def flock(*_: object) -> None:
        nonlocal calls
        calls += 1
        assert calls < 10, "it tries for ever"
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(OSError, match="No locks available"), socket_folder():
        pass
    assert list(temporary.iterdir()) == []
