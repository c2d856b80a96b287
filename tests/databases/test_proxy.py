"""The network that fails on demand does so as it says."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator

import asyncmy
import asyncmy.errors
import pytest

from tests.databases.database import DatabaseServer
from tests.databases.mariadb import MariaDb
from tests.databases.ports import free_port
from tests.databases.proxy import Proxy, in_thread

_DEADLINE_S = 30
Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Echo:
    """A server that answers what it was sent, and remembers it."""

    def __init__(self) -> None:
        self.heard = b""
        self.reached = asyncio.Event()
        self.ended = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                self.heard += data
                self.reached.set()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            self.ended.set()
            writer.close()


@pytest.fixture
async def echo() -> Echo:
    return Echo()


@pytest.fixture
async def proxy(echo: Echo) -> AsyncIterator[Proxy]:
    """A proxy before the echo."""
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with Proxy(f"{host}:{port}") as proxy:
        yield proxy
    server.close()
    await server.wait_closed()


@contextlib.asynccontextmanager
async def _client(proxy: Proxy) -> AsyncIterator[Ends]:
    reader, writer = await asyncio.open_connection(proxy.host, proxy.port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _asked(ends: Ends, data: bytes) -> bytes:
    ends[1].write(data)
    return await asyncio.wait_for(ends[0].readexactly(len(data)), _DEADLINE_S)


async def test_a_connection_waits_if_told_so_for_a_target_that_does_not_listen_yet(echo: Echo) -> None:
    port = free_port()
    async with Proxy(f"127.0.0.1:{port}", wait_for_target_s=_DEADLINE_S) as proxy, _client(proxy) as ends:
        asked = asyncio.ensure_future(_asked(ends, b"hello"))
        while not proxy.connections:
            await asyncio.sleep(0)
        async with await asyncio.start_server(echo.serve, "127.0.0.1", port):
            assert await asked == b"hello"


async def _reset(ends: Ends) -> None:
    """The connection breaks off."""
    with pytest.raises(ConnectionResetError):
        await asyncio.wait_for(ends[0].read(1), _DEADLINE_S)


async def test_left_alone_it_passes_everything_and_both_ends_of_a_connection(proxy: Proxy, echo: Echo) -> None:
    async with _client(proxy) as ends:
        assert await _asked(ends, b"x" * 300_000) == b"x" * 300_000
        ends[1].write_eof()
        assert await asyncio.wait_for(ends[0].read(), _DEADLINE_S) == b""
        assert echo.ended.is_set()
    assert proxy.connections == 1


async def test_a_delay_is_added_each_way(proxy: Proxy) -> None:
    loop = asyncio.get_running_loop()
    async with _client(proxy) as ends:
        await _asked(ends, b"connected")
        for ways, least_s in (({}, 0.04), ({"to_client": False}, 0.02), ({"to_server": False}, 0.02)):
            proxy.heal()
            proxy.slow(0.02, **ways)
            begun = loop.time()
            assert await _asked(ends, b"hello") == b"hello"
            assert loop.time() - begun >= least_s


async def test_bytes_keep_their_order_when_a_delay_ends(proxy: Proxy) -> None:
    async with _client(proxy) as ends:
        await _asked(ends, b"connected")
        proxy.slow(0.05)
        ends[1].write(b"first, ")
        await asyncio.sleep(0)
        proxy.slow(0)
        ends[1].write(b"then this")
        assert await asyncio.wait_for(ends[0].readexactly(16), _DEADLINE_S) == b"first, then this"


async def test_a_cut_resets_what_is_open_and_takes_new_connections(proxy: Proxy, echo: Echo) -> None:
    async with _client(proxy) as ends:
        await _asked(ends, b"hello")
        proxy.cut()
        await _reset(ends)
    await asyncio.wait_for(echo.ended.wait(), _DEADLINE_S)
    async with _client(proxy) as ends:
        assert await _asked(ends, b"again") == b"again"


async def test_open_connections_can_go_silent_while_new_ones_work(proxy: Proxy) -> None:
    async with _client(proxy) as old:
        await _asked(old, b"hello")
        proxy.swallow_open()
        old[1].write(b"lost")
        async with _client(proxy) as new:
            assert await _asked(new, b"hello") == b"hello"
            proxy.heal()
            await _reset(old)
            assert await _asked(new, b"still here") == b"still here"


@pytest.mark.parametrize("turns", range(8))
async def test_a_connection_that_comes_as_the_proxy_ends_is_closed(turns: int) -> None:
    """Whether it was taken, and whether its task has begun: one that is left open is an error of this test."""
    async with Proxy("127.0.0.1:1") as proxy:
        client = socket.create_connection((proxy.host, proxy.port), _DEADLINE_S)
        for _ in range(turns):
            await asyncio.sleep(0)
    with client, contextlib.suppress(ConnectionResetError):
        assert client.recv(1) == b""


async def test_refusing_stops_new_connections_only_and_accepting_is_on_the_same_port(proxy: Proxy) -> None:
    async with _client(proxy) as old:
        await _asked(old, b"hello")
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(proxy.host, proxy.port)
        assert await _asked(old, b"still here") == b"still here"
        proxy.accept()
        async with _client(proxy) as new:
            assert await _asked(new, b"hello") == b"hello"


async def test_where_the_server_is_gone_a_new_connection_breaks_off(proxy: Proxy) -> None:
    """And the address that a failover changes is used for the next one."""
    alive, proxy.target = proxy.target, "127.0.0.1:1"
    async with _client(proxy) as ends:
        await _reset(ends)
    proxy.target = alive
    async with _client(proxy) as ends:
        assert await _asked(ends, b"hello") == b"hello"


async def test_held_bytes_arrive_after_the_network_heals(proxy: Proxy, echo: Echo) -> None:
    async with _client(proxy) as ends:
        await _asked(ends, b"hello")
        proxy.hold(to_server=False)
        ends[1].write(b", you")
        while echo.heard != b"hello, you":
            echo.reached.clear()
            await asyncio.wait_for(echo.reached.wait(), _DEADLINE_S)
        async with _client(proxy) as new:  # its answers go through the same network
            new[1].write(b"!")
            proxy.heal()
            assert await asyncio.wait_for(ends[0].readexactly(5), _DEADLINE_S) == b", you"
            assert await asyncio.wait_for(new[0].readexactly(1), _DEADLINE_S) == b"!"


async def test_half_open_requests_arrive_and_answers_never_do(proxy: Proxy, echo: Echo) -> None:
    """Nor does the end of the connection: only a time limit helps."""
    async with _client(proxy) as ends:
        await _asked(ends, b"hello")
        echo.reached.clear()
        proxy.swallow(to_server=False)
        ends[1].write(b"anybody?")
        await asyncio.wait_for(echo.reached.wait(), _DEADLINE_S)
        answer = asyncio.create_task(ends[0].read(1))
        ends[1].write_eof()
        await asyncio.wait_for(echo.ended.wait(), _DEADLINE_S)
        assert not answer.done()
        proxy.heal()
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(answer, _DEADLINE_S)


async def test_swallowed_requests_never_reach_the_server(proxy: Proxy, echo: Echo) -> None:
    """Connections that lost nothing continue afterwards; those that did break off."""
    async with _client(proxy) as quiet, _client(proxy) as ends:
        await _asked(quiet, b"one")
        await _asked(ends, b"two")
        proxy.swallow(to_client=False)
        ends[1].write(b"lost")
        while not proxy.lossy:
            await asyncio.sleep(0)
        proxy.heal()
        await _reset(ends)
        assert await _asked(quiet, b"three") == b"three"
    assert echo.heard == b"onetwothree"


@pytest.mark.parametrize("pieces", [[b"a COMMIT"], [b"a CO", b"MMIT"], [b"a COMMI", b"T", b" b"]])
async def test_a_lost_request_never_arrives_whole_however_it_was_cut_up(
    proxy: Proxy, echo: Echo, pieces: list[bytes]
) -> None:
    trap = proxy.lose_request(b"COMMIT")
    async with _client(proxy) as ends:
        for piece in pieces:
            with contextlib.suppress(ConnectionResetError, asyncio.IncompleteReadError):
                await _asked(ends, piece)
        await trap.wait()
    assert b"COMMIT" not in echo.heard
    async with _client(proxy) as ends:
        assert await _asked(ends, b"COMMIT") == b"COMMIT"


async def test_a_lost_answers_request_was_carried_out(proxy: Proxy, echo: Echo) -> None:
    """When the trap has sprung, the server has finished with it."""
    trap = proxy.lose_answer(b"COMMIT")
    async with _client(proxy) as ends:
        assert await _asked(ends, b"before") == b"before"
        ends[1].write(b"COMMIT")
        await _reset(ends)
        await trap.wait()
    assert echo.heard == b"beforeCOMMIT"
    assert echo.ended.is_set()


@pytest.mark.parametrize("answer", [True, False])
async def test_a_trap_may_go_silent_instead(proxy: Proxy, echo: Echo, answer: bool) -> None:
    lose = proxy.lose_answer if answer else proxy.lose_request
    trap = lose(b"COMMIT", hang=True)
    async with _client(proxy) as ends, _client(proxy) as other:
        ends[1].write(b"COMMIT")
        await asyncio.wait_for(trap.wait(), _DEADLINE_S)
        assert await _asked(other, b"hello") == b"hello"
        silent = asyncio.create_task(ends[0].read(1))
        assert (b"COMMIT" in echo.heard) == answer
        assert not silent.done()
        proxy.heal()
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(silent, _DEADLINE_S)


async def test_a_healed_proxy_has_forgotten_its_traps(proxy: Proxy) -> None:
    trap = proxy.lose_request(b"COMMIT")
    proxy.refuse()
    proxy.heal()
    async with _client(proxy) as ends:
        assert await _asked(ends, b"COMMIT") == b"COMMIT"
    assert not trap.sprung


def test_it_runs_in_a_thread_of_its_own_for_tests_without_a_loop() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = "{}:{}".format(*listener.getsockname())
        with in_thread(address) as proxy, socket.create_connection((proxy.host, proxy.port), _DEADLINE_S) as client:
            far, _ = listener.accept()
            with far:
                trap = proxy.lose_request(b"COMMIT")
                client.sendall(b"hello")
                assert far.recv(5) == b"hello"
                client.sendall(b"COMMIT")
                trap.wait_in_thread(_DEADLINE_S)
                with pytest.raises(ConnectionResetError):
                    client.recv(1)
    assert not any(thread.name == "proxy" for thread in threading.enumerate())


@pytest.mark.parametrize("committed", [True, False])
async def test_a_commit_lost_on_its_way_back_is_in_the_database_and_one_lost_on_its_way_there_is_not(
    shared_server: DatabaseServer, committed: bool
) -> None:
    """A client can't tell the two apart."""
    name = "lost_commit"
    await shared_server.execute(f"CREATE DATABASE {name}")
    await shared_server.execute(f"CREATE TABLE {name}.jobs (id INT PRIMARY KEY, writer VARCHAR(9))")
    async with Proxy(shared_server.address) as proxy:
        connection = await asyncmy.connect(**shared_server.login() | {"host": proxy.host, "port": proxy.port})
        async with connection.cursor() as cursor:
            await cursor.execute(f"INSERT INTO {name}.jobs VALUES (1, 'client')")
        trap = proxy.lose_answer(b"COMMIT") if committed else proxy.lose_request(b"COMMIT")
        with pytest.raises((asyncmy.errors.OperationalError, ConnectionResetError)):
            await connection.commit()
        await trap.wait()
        await connection.ensure_closed()
    # Waits for the row's lock while the server has not yet seen that the client is gone.
    await shared_server.execute(f"INSERT IGNORE INTO {name}.jobs VALUES (1, 'test')")
    rows = await shared_server.execute(f"SELECT writer FROM {name}.jobs")
    await shared_server.drop_databases(name)
    assert rows == [("client" if committed else "test",)]


@pytest.mark.parametrize("committed", [True, False])
async def test_the_answer_to_a_commit_becomes_an_error_and_the_connection_goes_on(
    shared_server: DatabaseServer, committed: bool
) -> None:
    """As from a server that fails in the middle of a commit: it may have been carried out or not."""
    name = "failed_commit"
    await shared_server.execute(f"CREATE DATABASE {name}")
    await shared_server.execute(f"CREATE TABLE {name}.jobs (id INT PRIMARY KEY)")
    async with (
        Proxy(shared_server.address) as proxy,
        shared_server.connect("pinlater", host=proxy.host, port=proxy.port, autocommit=False) as connection,
        connection.cursor() as cursor,
    ):
        trap = proxy.fail_answer(b";COMMIT", 1180, "Got error 28", instead=None if committed else b";DO   0")
        await cursor.execute(f"INSERT INTO {name}.jobs VALUES (1);COMMIT")
        with pytest.raises(asyncmy.errors.MySQLError, match="Got error 28"):
            await cursor.nextset()
        assert trap.sprung
        await connection.rollback()
        await cursor.execute(f"SELECT count(*) FROM {name}.jobs")
        rows = await cursor.fetchall()
    await shared_server.drop_databases(name)
    assert rows == ((int(committed),),)


async def test_a_connection_that_the_server_ends_ends_in_front_of_the_proxy_too(mariadb: MariaDb) -> None:
    """Its last bytes get through."""
    async with (
        Proxy(mariadb.address) as proxy,
        mariadb.connect("pinlater", host=proxy.host, port=proxy.port) as connection,
        connection.cursor() as cursor,
    ):
        await mariadb.execute(f"KILL {connection.thread_id()}")
        with pytest.raises((asyncmy.errors.OperationalError, ConnectionResetError)):
            await cursor.execute("SELECT 1")
