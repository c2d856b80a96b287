"""What the console remembers of addresses: no answer shows it."""

from __future__ import annotations

from tests.console.test_connection import OTHER_HOST, served, until


async def test_closed_connections_of_all_addresses_are_forgotten() -> None:
    async with served(connections_max=3) as site:
        for host in ("127.0.0.1", OTHER_HOST) * 3:
            client = await site.connect(host)
            await client.get()
            client.writer.close()
        await until(lambda: not site.server.connections._by_address)
