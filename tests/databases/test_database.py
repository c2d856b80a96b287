"""What the tests' database servers can be relied on for."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import asyncmy.errors
import pytest

from tests.databases.database import DatabaseServer
from tests.databases.mysql import MySql8
from tests.databases.server_process import DatabaseServerFailed

Start = Callable[..., DatabaseServer]


async def _number(server: DatabaseServer) -> int:
    [(number,)] = await server.execute("SELECT COUNT(*) FROM test.jobs")
    return int(number)


async def _insert(server: DatabaseServer) -> None:
    await server.execute("CREATE DATABASE IF NOT EXISTS test")
    await server.execute("CREATE TABLE IF NOT EXISTS test.jobs (id INT PRIMARY KEY AUTO_INCREMENT)")
    await server.execute("INSERT INTO test.jobs VALUES ()")


async def test_killed_and_started_again_it_has_what_was_committed_and_its_port(start_server: Start) -> None:
    server = start_server()
    await _insert(server)
    port = server.port
    server.kill()
    assert not server.running
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((server.host, port))
    server.start(max_allowed_packet=1 << 20)
    assert (server.port, await _number(server)) == (port, 1)
    assert await server.execute("SELECT @@max_allowed_packet") == [(1 << 20,)]


async def test_an_orderly_restart_keeps_data_and_takes_new_options(start_mariadb: Start) -> None:
    server = start_mariadb(innodb_lock_wait_timeout=7)
    await _insert(server)
    server.restart(max_allowed_packet=1 << 20)
    shown = await server.execute("SELECT @@innodb_lock_wait_timeout, @@max_allowed_packet")
    assert (shown, await _number(server)) == ([(7, 1 << 20)], 1)


async def test_suspended_it_takes_connections_and_says_nothing_until_resumed(start_mariadb: Start) -> None:
    server = start_mariadb()
    server.suspend()
    reader, writer = await asyncio.open_connection(server.host, server.port)
    greeting = asyncio.create_task(reader.read(1))
    server.resume()
    assert await asyncio.wait_for(greeting, 30) != b""
    writer.close()
    await writer.wait_closed()


async def test_several_run_side_by_side_and_share_nothing(start_mariadb: Start) -> None:
    one, other = start_mariadb(), start_mariadb()
    await _insert(one)
    await _insert(one)
    await _insert(other)
    assert (await _number(one), await _number(other)) == (2, 1)
    one.kill()
    assert await _number(other) == 1


async def test_two_copies_of_a_template_are_two_servers_to_replication(
    mysql8: MySql8, start_mysql8: Callable[..., MySql8]
) -> None:
    """MySQL keeps its identity in its data folder."""
    identity = "SELECT @@server_uuid"
    assert await mysql8.execute(identity) != await start_mysql8().execute(identity)


async def test_a_server_that_can_not_start_says_why(start_mariadb: Start) -> None:
    server = start_mariadb()
    server.kill()
    with pytest.raises(DatabaseServerFailed, match="unknown variable 'no-such-option=1'"):
        server.start(no_such_option=1)


async def test_a_private_server_runs_as_its_users_run_it(start_server: Start) -> None:
    wanted = "SELECT @@innodb_flush_log_at_trx_commit, @@innodb_doublewrite, @@skip_name_resolve, @@bind_address"
    assert await start_server().execute(wanted) == [(1, 1, 1, "127.0.0.1")]


async def test_the_products_user_is_bound_by_read_only_and_the_admin_is_not(start_server: Start) -> None:
    """Otherwise tests of a failover to a replica would show nothing."""
    server = start_server(read_only=True)
    await _insert(server)
    async with server.connect("pinlater") as connection, connection.cursor() as cursor:
        with pytest.raises(asyncmy.errors.OperationalError, match="1290"):
            await cursor.execute("INSERT INTO test.jobs VALUES ()")


async def test_the_admin_gets_in_where_the_products_user_finds_too_many_connections(start_mariadb: Start) -> None:
    """So that a test of that error can still look."""
    server = start_mariadb(max_connections=10)
    open_ones = [await asyncmy.connect(**server.login()) for _ in range(10)]
    with pytest.raises(asyncmy.errors.OperationalError, match="1040"):
        await asyncmy.connect(**server.login())
    assert await server.execute("SELECT 1") == [(1,)]
    for connection in open_ones:
        await connection.ensure_closed()


async def test_with_tls_it_shows_a_certificate_that_the_sessions_authority_signed(start_server: Start) -> None:
    """A client that trusts another authority, or wants no TLS, is refused."""
    server = start_server(tls=True, require_secure_transport=True)
    assert server.certificates is not None
    trusting = {"ssl": server.certificates.trusting()}
    async with server.connect("pinlater", **server.tcp, **trusting) as connection, connection.cursor() as cursor:
        await cursor.execute("SHOW STATUS LIKE 'Ssl_version'")
        assert (await cursor.fetchall())[0][1].startswith("TLSv1.")
    # MariaDB says "access denied", MySQL what it is about.
    with pytest.raises(asyncmy.errors.OperationalError, match=r"1045|3159"):
        await asyncmy.connect(**server.login())
    with pytest.raises(
        (ssl.SSLCertVerificationError, asyncmy.errors.OperationalError), match="CERTIFICATE_VERIFY_FAILED"
    ):
        await asyncmy.connect(**server.login(), ssl=ssl.create_default_context())


async def test_mysqls_own_way_to_log_in_works_without_tls_too(mysql8: MySql8) -> None:
    """By the server's RSA key at first, afterwards from its cache."""
    wanted = "SELECT plugin FROM mysql.user WHERE user = 'pinlater'"
    assert await mysql8.execute(wanted) == [("caching_sha2_password",)]
    for _ in range(2):
        async with mysql8.connect("pinlater", **mysql8.tcp) as connection:
            assert connection.connected


async def test_a_tests_databases_are_dropped_by_their_prefix_alone(shared_server: DatabaseServer) -> None:
    """In a pattern of LIKE an underscore is a wildcard."""
    for name in ("kept_1_jobs", "kept_1_more", "kept_1xjobs"):
        await shared_server.execute(f"CREATE DATABASE {name}")
    await shared_server.drop_databases("kept_1_")
    assert await shared_server.execute("SHOW DATABASES LIKE 'kept%%'") == [("kept_1xjobs",)]
    await shared_server.drop_databases("kept")


def test_removed_it_leaves_no_process_and_no_file(start_mariadb: Start) -> None:
    server = start_mariadb()
    folder, pid = server.folder, server.pid
    server.suspend()
    server.remove()
    assert not folder.exists()
    assert not Path(f"/proc/{pid}").exists()


async def test_an_insert_fails_on_a_full_disk_and_succeeds_once_there_is_space(
    start_mariadb: Start,
) -> None:
    """With rows of some kilobytes. (At a megabyte each MariaDB 10.11 kills itself; MySQL tries for 20 s and then says the same.)"""
    server = start_mariadb(disk_mib=100)
    await server.execute("CREATE DATABASE test")
    await server.execute("CREATE TABLE test.jobs (id INT PRIMARY KEY AUTO_INCREMENT, body BLOB)")
    server.disk.fill(leave_bytes=2 << 20)
    insert = "INSERT INTO test.jobs (body) VALUES (REPEAT('x', 7000))"

    async def fill() -> None:
        while True:
            await server.execute(insert)

    with pytest.raises(asyncmy.errors.OperationalError, match="1114"):
        await fill()
    before = await _number(server)
    server.disk.free()
    await server.execute(insert)
    assert await _number(server) == before + 1
