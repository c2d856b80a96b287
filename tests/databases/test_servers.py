"""No server outlives its session, however that ends; and one session pays for a template once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.databases.guard import processes_of
from tests.databases.mariadb import MariaDb
from tests.databases.server_process import ServerMissing, program
from tests.databases.servers import DatabaseServers

REPOSITORY = Path(__file__).resolve().parents[2]
# A session that starts a server, tells its folder and then waits for its end.
SESSION = """
from tests.databases.servers import DatabaseServers
from tests.databases.mariadb import MariaDb
with DatabaseServers() as servers:
    server = servers.start(MariaDb)
    print(server.folder.parent, flush=True)
    input()
"""


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT, None])
def test_nothing_is_left_of_a_session(ending: signal.Signals | None, mariadb: MariaDb) -> None:
    """Killed, interrupted or over: the processes and the folder go, and a server of another session stays."""
    session = subprocess.Popen(
        [sys.executable, "-c", SESSION],
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert session.stdout is not None
    folder = session.stdout.readline().strip()
    assert len(processes_of(folder)) == 1
    if ending is not None:
        session.send_signal(ending)
    session.communicate("\n", timeout=60)
    deadline = time.monotonic() + 60
    while Path(folder).exists() or processes_of(folder):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert mariadb.running


def test_unused_database_servers_start_nothing() -> None:
    with DatabaseServers() as servers:
        pass
    assert vars(servers)["_guard"] is None


def test_servers_are_found_where_a_normal_users_shell_does_not_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian puts mariadbd into /usr/sbin."""
    monkeypatch.setenv("PATH", "")
    assert program("mariadbd", "mariadb-server-core").endswith("/mariadbd")


def test_a_missing_server_is_named_with_its_package() -> None:
    with pytest.raises(ServerMissing, match=r"no mariadbd-of-tomorrow here .Debian package mariadb-server-core"):
        program("mariadbd-of-tomorrow", "mariadb-server-core")
