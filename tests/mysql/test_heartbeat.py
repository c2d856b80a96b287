"""A running server keeps its slot in a shard by heartbeats."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from pinlater.testing.real_server import RealServer
from tests.databases.mariadb import MariaDb
from tests.shared_shards.proxied_database import until


async def test_a_server_that_has_nothing_to_do_keeps_its_place(
    tmp_path: Path, mariadb: MariaDb, mariadb_prefix: str
) -> None:
    """By its heartbeats; without them the next server to start would take it."""
    database = f"{mariadb_prefix}1"
    url = f"mysql://{mariadb.user}:{quote(mariadb.password, safe='')}@{mariadb.address}/{database}"
    with RealServer(tmp_path, "--set", "mysql.lease_ms=5000", store=url):

        async def lives() -> bool:
            return bool(
                await mariadb.execute(f"SELECT 1 FROM {database}.servers WHERE seen_at_ms > started_at_ms + 1500")
            )

        await until(lives)
