"""MySQL 8, which `scripts/mysql-server` unpacks into .venv, as a kind of database server for tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.databases.database import ACCOUNTS, DatabaseServer
from tests.databases.server_process import ServerMissing

_HOME = Path(__file__).resolve().parents[2] / ".venv" / "mysql-8.0.15"
_DEADLINE_S = 90.0


class MySql8(DatabaseServer):
    """One private instance. `DatabaseServer` says what can be done with it.

    Users log in by caching_sha2_password, as by default. The first login of a user after each start needs TLS, the socket or the
    server's RSA key; later ones are answered from its cache.
    """

    kind = "mysql8"

    @classmethod
    def command(cls) -> list[str]:
        server = _HOME / "bin" / "mysqld"
        if not server.exists():
            raise ServerMissing("no MySQL 8 here (scripts/mysql-server fetches one, on Linux for x86-64)")
        # The X protocol would want a port of its own.
        return [str(server), f"--basedir={_HOME}", "--mysqlx=OFF"]

    @classmethod
    def make_template(cls, folder: Path) -> None:
        accounts = folder.with_suffix(".sql")
        accounts.write_text(ACCOUNTS)
        program, *rest = cls.command()
        arguments = ["--no-defaults", f"--datadir={folder}", "--initialize-insecure", f"--init-file={accounts}"]
        done = subprocess.run(
            [program, *arguments, *rest, *cls.sizes(), *cls.as_root()],
            capture_output=True,
            text=True,
            timeout=_DEADLINE_S,
            check=False,
        )
        if done.returncode != 0:
            raise ServerMissing(f"mysqld --initialize-insecure failed: {done.stdout}{done.stderr}")
        # The identity of each instance: a copy must make its own.
        (folder / "auto.cnf").unlink(missing_ok=True)
