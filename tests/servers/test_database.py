"""What the tests' database servers can be relied on for."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import asyncmy.errors
import pytest

from tests.servers.database import DatabaseServer, ServerFailed
from tests.servers.mariadb import MariaDb

Start = Callable[..., MariaDb]


async def _number(server: DatabaseServer) -> int:
    [(number,)] = await server.execute("SELECT COUNT(*) FROM test.jobs")
    return int(number)


async def _insert(server: DatabaseServer) -> None:
    await server.execute("CREATE DATABASE IF NOT EXISTS test")
    await server.execute("CREATE TABLE IF NOT EXISTS test.jobs (id INT PRIMARY KEY AUTO_INCREMENT)")
    await server.execute("INSERT INTO test.jobs VALUES ()")


async def test_killed_and_started_again_it_has_what_was_committed_and_its_port(start_mariadb: Start) -> None:
    """What a store's crash tests stand on."""
    server = start_mariadb()
    await _insert(server)
    port = server.port
    server.kill()
    assert not server.running
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((server.host, port))
    server.start()
    assert (server.port, await _number(server)) == (port, 1)


async def test_an_orderly_restart_keeps_data_and_takes_new_options(start_mariadb: Start) -> None:
    """Options given once hold from then on."""
    server = start_mariadb(innodb_lock_wait_timeout=7)
    await _insert(server)
    server.restart(max_allowed_packet=1 << 20)
    server.restart()
    shown = await server.execute("SELECT @@innodb_lock_wait_timeout, @@max_allowed_packet")
    assert (shown, await _number(server)) == ([(7, 1 << 20)], 1)


async def test_suspended_it_takes_connections_and_says_nothing_until_resumed(start_mariadb: Start) -> None:
    """A hung server looks alive to who only connects."""
    server = start_mariadb()
    server.suspend()
    reader, writer = await asyncio.open_connection(server.host, server.port)
    greeting = asyncio.create_task(reader.read(1))
    await asyncio.sleep(0)
    assert not greeting.done()
    server.resume()
    assert await asyncio.wait_for(greeting, 30) != b""
    writer.close()
    await writer.wait_closed()


async def test_several_run_side_by_side_and_share_nothing(start_mariadb: Start) -> None:
    """They are shards."""
    one, other = start_mariadb(), start_mariadb()
    await _insert(one)
    await _insert(one)
    await _insert(other)
    assert (await _number(one), await _number(other)) == (2, 1)
    one.kill()
    assert await _number(other) == 1


async def test_a_server_that_can_not_start_says_why(start_mariadb: Start) -> None:
    """Not a time-out without a word."""
    server = start_mariadb()
    server.stop()
    with pytest.raises(ServerFailed, match="unknown variable 'no-such-option=1'"):
        server.start(no_such_option=1)


async def test_it_runs_as_its_users_run_it(mariadb: MariaDb) -> None:
    """What makes a figure or a crash test worth something."""
    wanted = "SELECT @@innodb_flush_log_at_trx_commit, @@innodb_doublewrite, @@skip_name_resolve, @@bind_address"
    assert await mariadb.execute(wanted) == [(1, 1, 1, "127.0.0.1")]


async def test_the_products_user_is_bound_by_read_only_and_the_admin_is_not(start_mariadb: Start) -> None:
    """Else tests of a failover to a replica would show nothing."""
    server = start_mariadb(read_only=True)
    await _insert(server)
    async with (
        server.connect("pinlater", host=server.host, port=server.port) as connection,
        connection.cursor() as cursor,
    ):
        with pytest.raises(asyncmy.errors.OperationalError, match="1290"):
            await cursor.execute("INSERT INTO test.jobs VALUES ()")


async def test_with_tls_it_shows_a_certificate_that_the_sessions_authority_signed(start_mariadb: Start) -> None:
    """And who trusts nobody in particular is refused."""
    server = start_mariadb(tls=True, require_secure_transport=True)
    tcp = {"host": server.host, "port": server.port}
    assert server.certificates is not None
    async with (
        server.connect("pinlater", **tcp, ssl=server.certificates.trusting()) as connection,
        connection.cursor() as cursor,
    ):
        await cursor.execute("SHOW STATUS LIKE 'Ssl_version'")
        assert (await cursor.fetchall())[0][1].startswith("TLSv1.")
    with pytest.raises(asyncmy.errors.OperationalError, match=r"1045|3159"):
        async with server.connect("pinlater", **tcp):
            pass
    with pytest.raises(
        (ssl.SSLCertVerificationError, asyncmy.errors.OperationalError), match="CERTIFICATE_VERIFY_FAILED"
    ):
        async with server.connect("pinlater", **tcp, ssl=ssl.create_default_context()):
            pass


async def test_a_tests_databases_are_dropped_by_their_prefix_alone(start_mariadb: Start) -> None:
    """An underscore is a letter here, not a wildcard."""
    server = start_mariadb()
    for name in ("t1_jobs", "t1_more", "t1xjobs"):
        await server.execute(f"CREATE DATABASE {name}")
    await server.drop_databases("t1_")
    left = await server.execute("SHOW DATABASES LIKE 't1%%'")
    assert left == [("t1xjobs",)]


def test_removed_it_leaves_no_process_and_no_file(start_mariadb: Start) -> None:
    """Hundreds are started in a run."""
    server = start_mariadb()
    folder, pid = server.folder, server.pid
    server.suspend()
    server.remove()
    assert not folder.exists()
    assert not Path(f"/proc/{pid}").exists()
    assert folder.name.startswith("mariadb-")
