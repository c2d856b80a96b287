"""Sentinels that do not all start leave no process behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from tests.databases.redis import RedisServer
from tests.databases.sentinel import Sentinels
from tests.databases.server_process import DatabaseServerFailed


def test_a_sentinel_is_ended_when_a_later_one_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as first:
        monkeypatch.setattr(Sentinels, "_launch", mock.Mock(side_effect=[first, DatabaseServerFailed("no second one")]))
        sentinels = Sentinels(tmp_path, mock.create_autospec(RedisServer), "user", "password")
        with pytest.raises(DatabaseServerFailed, match="no second one"), sentinels:
            pass
        assert first.returncode is not None
