"""MariaDB from Debian's package, as a kind of database server for tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.databases.database import ACCOUNTS, DatabaseServer
from tests.databases.server_process import ServerMissing, program

_DEADLINE_S = 60.0


class MariaDb(DatabaseServer):
    """One private instance. `DatabaseServer` says what can be done with it."""

    kind = "mariadb"

    @classmethod
    def command(cls) -> list[str]:
        return [program("mariadbd", "mariadb-server-core")]

    @classmethod
    def make_template(cls, folder: Path) -> None:
        accounts = folder.with_suffix(".sql")
        # The server that fills a new folder knows no accounts before it is told to look.
        accounts.write_text("FLUSH PRIVILEGES;\n" + ACCOUNTS)
        command = [
            program("mariadb-install-db", "mariadb-server-core"),
            "--no-defaults",
            f"--datadir={folder}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            "--skip-name-resolve",
            f"--extra-file={accounts}",
            *cls.sizes(),
        ]
        done = subprocess.run(
            [*command, *cls.as_root()], capture_output=True, text=True, timeout=_DEADLINE_S, check=False
        )
        if done.returncode != 0:
            raise ServerMissing(f"mariadb-install-db failed: {done.stdout}{done.stderr}")
