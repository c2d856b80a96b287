"""The suggested command installs from where this installation came from."""

from __future__ import annotations

import json
from importlib import metadata

import pytest

from pinlater import extras


class Installed:
    """A distribution that pip installed from a place."""

    def __init__(self, recorded: object) -> None:
        self._recorded = recorded

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return None if self._recorded is None else json.dumps(self._recorded)


@pytest.mark.parametrize(
    ("recorded", "line"),
    [
        (None, "pip install 'pinlater[redis]'"),
        ({"url": "file:///src/pinlater", "dir_info": {}}, "pip install '/src/pinlater[redis]'"),
        ({"url": "file:///a%20b", "dir_info": {"editable": True}}, "pip install -e '/a b[redis]'"),
        ({"url": "file:///d/pinlater-0.1-py3-none-any.whl"}, "pip install '/d/pinlater-0.1-py3-none-any.whl[redis]'"),
        ({"url": "https://example.org/x.git", "vcs_info": {}}, "pip install 'pinlater[redis]'"),
    ],
)
def test_an_extra_comes_from_where_the_package_came_from(
    recorded: object, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "distribution", lambda _name: Installed(recorded))
    assert extras.install_line("redis") == line


def test_without_an_installation_the_line_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_name: str) -> None:
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(extras, "distribution", missing)
    assert extras.install_line("server") == "pip install 'pinlater[server]'"
