"""How a writer ends a connection whose COMMIT does not end. No command brings that about: a writer begins it when its own call is late."""

from __future__ import annotations

import asyncio

import pytest

from pinlater.server.storage.connections import DatabaseConnectionLost
from pinlater.server.storage.mysql.connection import connect
from pinlater.server.storage.mysql.settings import MysqlSettings
from tests.databases.mariadb import MariaDb
from tests.mysql.proxied_mysql import proxied
from tests.mysql.test_failures_locks import other_client
from tests.shared_shards.proxied_database import until


async def test_a_commit_that_does_not_end_is_waited_for_and_not_killed(mariadb: MariaDb) -> None:
    """As with a binary log on a full disk, where MySQL would end itself if it were. Only MariaDB has a way to bring it about."""
    async with proxied(mariadb) as database:
        shard = await database.open(direct=True)
        writer = shard._connections.inserting
        old, new = [await connect(database.endpoint(direct=True), MysqlSettings(), autocommit=False) for _ in range(2)]
        try:
            async with other_client(database, "BACKUP STAGE START", "BACKUP STAGE BLOCK_COMMIT") as backup:
                commit = asyncio.ensure_future(old.run([b"INSERT INTO expiries VALUES (1, 1)", b"COMMIT"]))

                async def hangs() -> bool:
                    return bool(
                        await database.ask("SELECT 1 FROM information_schema.processlist WHERE info = 'COMMIT'")
                    )

                await until(hangs)
                with pytest.raises(
                    DatabaseConnectionLost, match=r"a COMMIT does not end \(state: [A-Z][^)]+\); .*semi-synchronous"
                ):
                    await writer._end(old, new)
                await backup.does("BACKUP STAGE END")
            assert len(await commit) == 2
            await writer._end(old, new)  # idle now
            with pytest.raises(DatabaseConnectionLost):
                await old.run([b"SELECT 1"])
        finally:
            old.close()
            new.close()
