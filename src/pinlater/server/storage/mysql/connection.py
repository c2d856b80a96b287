"""One connection to one database: packets of statements, each under a time limit.

Several statements travel in one packet and are answered one after the other; the first that fails ends its packet. A connection that
was cut, or that took too long, is never used again: what it was doing may still continue in the database.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Sequence
from typing import Any, NamedTuple

import asyncmy
from asyncmy import errors as driver

from pinlater.domain.errors import ShardConnectionFailed
from pinlater.server.storage.connections import DatabaseConnectionLost
from pinlater.server.storage.mysql.products import refusal_of
from pinlater.server.storage.mysql.settings import MysqlEndpoint, MysqlSettings
from pinlater.server.storage.mysql.stats import Stats
from pinlater.server.storage.tls import make_context, wants_tls

# For the packet's head, and for what the server adds.
_PACKET_SLACK_BYTES = 1024
# A younger connection was made after any failover.
_LONG_OPEN_S = 1.0
# Independent of the server's own defaults: they are made for other programs, and some would change the meaning of our statements.
_SESSION = (
    "SET NAMES utf8mb4, SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', SESSION time_zone = '+00:00', "
    "SESSION autocommit = {autocommit:d}, SESSION completion_type = 0, "
    "SESSION foreign_key_checks = 1, SESSION unique_checks = 1, "
    "SESSION sql_safe_updates = 0, SESSION sql_big_selects = 1, SESSION sql_select_limit = 18446744073709551615, "
    "SESSION innodb_lock_wait_timeout = {lock_wait_s}, SESSION lock_wait_timeout = {lock_wait_s}"
    # For a thousand ids or more, MariaDB would make a table of them and might then scan all jobs.
    " /*M! , SESSION in_predicate_conversion_threshold = 0 */"
)
# A writer whose machine died must not keep its locks for hours; and not longer than its slot, or it might still commit something.
_WRITERS_SESSION = ", SESSION wait_timeout = {idle_s} /*M! , SESSION max_statement_time = 0 */ /*!80000 , SESSION max_execution_time = 0 */"
# A statement whose caller has given up must end: MariaDB counts seconds, MySQL milliseconds, each with a variable of its own.
_READERS_SESSION = (
    " /*M! , SESSION max_statement_time = {limit_s:g} */ /*!80000 , SESSION max_execution_time = {limit_ms} */"
)
# A Galera node without a quorum, or one that is still joining, answers logins and queries without tables as if it were well, and
# everything else with this error: the command was not begun.
NODE_NOT_READY = 1047
_LOCK_WAIT = 1205
_NO_TABLE = 1146
# For clusters whose nodes apply changes some time after they were committed, by the variable that identifies one: the setting that makes
# the statements of a session wait until the node has applied everything committed before, and the one that ends this.
_CATCH_UP = {
    "wsrep_on": (
        b"SET SESSION wsrep_dirty_reads = 0, SESSION wsrep_sync_wait = 1",
        b"SET SESSION wsrep_sync_wait = @@global.wsrep_sync_wait",
    ),
    "group_replication_group_name": (
        b"SET SESSION group_replication_consistency = 'BEFORE'",
        b"SET SESSION group_replication_consistency = @@global.group_replication_consistency",
    ),
}
_SHOW_CLUSTER = f"SHOW SESSION VARIABLES WHERE Variable_name IN ({', '.join(map(repr, _CATCH_UP))})"


class Result(NamedTuple):
    """The result of one statement."""

    rows: Sequence[tuple[Any, ...]]
    affected: int


class MysqlConnection:
    """An open connection, for one caller at a time.

    `name`: a lock that it holds in the database while it lives there, so that another connection can see whether it has ended.
    """

    def __init__(self, raw: Any, endpoint: MysqlEndpoint, settings: MysqlSettings, stats: Stats) -> None:
        self._raw = raw
        self._stats = stats
        stats.connections += 1
        self.endpoint = endpoint
        self._limit_s = settings.statement_timeout_ms / 1000
        self._idle_max_s = settings.idle_writer_s / 2
        self._loop = asyncio.get_running_loop()  # kept: reading it costs a system call
        self._used_at = self._opened_at = self._loop.time()
        self._too_slow = False
        self._packet_max = 1_000_000
        self.name = f"pinlater-{secrets.token_hex(12)}"
        self.node = ""  # the machine and port of the database
        self.commits_alone = False  # a COMMIT must be a packet of its own
        self.several_nodes = False  # the database may be a cluster
        self.open = True
        self.unanswered = 0  # statements of the last `run` without an answer, or with an error for one

    def is_known(self, packet_bytes: int, node: str, clusters: Sequence[str]) -> None:
        """Notes the properties that the database has reported. Connections to another node are no longer used."""
        self._packet_max = packet_bytes - _PACKET_SLACK_BYTES
        self.node = self._stats.node = node
        self.several_nodes = bool(clusters)
        self.commits_alone = "wsrep_on" in clusters

    @property
    def packet_bytes_max(self) -> int:
        """How long one statement may be."""
        return self._packet_max

    @property
    def alive(self) -> bool:
        """Whether it is open, the driver has not seen its stream break, and no newer connection of this shard leads to another node."""
        # SLF001: the driver offers no other way.
        return self.open and not self._raw._stream_broken and self.node == self._stats.node  # noqa: SLF001

    @property
    def usable(self) -> bool:
        """Whether it is alive, and not idle for so long that the database is about to close it."""
        return self.alive and self._loop.time() - self._used_at < self._idle_max_s

    @property
    def had_long_been_open(self) -> bool:
        """Whether a new connection may lead to another server."""
        return self._loop.time() - self._opened_at >= _LONG_OPEN_S

    async def run(self, statements: Sequence[bytes]) -> list[Result]:
        """The results of all statements, in as few packets as their sizes allow.

        Raises the driver's error of the first statement that failed (those before it have taken effect), `DatabaseConnectionLost` if the
        connection was lost or the time limit passed.
        """
        results: list[Result] = []
        start = 0
        try:
            while start < len(statements):
                end, size = start + 1, len(statements[start])
                while end < len(statements) and size + len(statements[end]) + 1 <= self._packet_max:
                    size += len(statements[end]) + 1
                    end += 1
                await self._send(statements[start:end], results)
                start = end
        finally:
            self.unanswered = len(statements) - len(results)
        return results

    async def _send(self, statements: Sequence[bytes], results: list[Result]) -> None:
        if not self.open:
            raise DatabaseConnectionLost(f"{self.endpoint}: not connected")
        raw = self._raw
        self._stats.round_trips += 1
        self._stats.statements += len(statements)
        self._used_at = self._loop.time()
        limit = self._loop.call_later(self._limit_s, self._give_up)
        try:
            await raw.query(statements[0] if len(statements) == 1 else b";".join(statements))
            results.append(_result(raw))
            while raw._result.has_next:  # noqa: SLF001 the driver's cursors do the same, with a copy of each row
                await raw.next_result()
                results.append(_result(raw))
        except driver.MySQLError as error:
            if is_lost(error):
                raise self._lost(text_of(error)) from error
            raise
        except (OSError, EOFError) as error:
            raise self._lost(str(error)) from error
        except BaseException:  # cancelled in the middle of an answer: the stream can no longer be used
            self.close()
            raise
        finally:
            limit.cancel()

    def _give_up(self) -> None:
        """Ends the call that waits for an answer when the time limit has passed, as if the connection were gone."""
        self._too_slow = True
        self._abort()

    def _lost(self, reason: str) -> DatabaseConnectionLost:
        self.close()
        return DatabaseConnectionLost(
            f"{self.endpoint}: " + (f"no answer within {self._limit_s:g} s" if self._too_slow else reason)
        )

    def close(self) -> None:
        """Closes the connection and discards unsent bytes; the database rolls back uncommitted changes."""
        self._is_gone()
        self._abort()
        with contextlib.suppress(Exception):
            self._raw.close()

    def _abort(self) -> None:
        with contextlib.suppress(Exception):
            self._raw._transport.abort()  # noqa: SLF001 its own `close` would wait until a server that hangs has read everything

    async def quit(self) -> None:
        """Tells the database that the connection ends, and closes it."""
        if self.open:
            self._is_gone()
            with contextlib.suppress(Exception):
                await asyncio.wait_for(self._raw.ensure_closed(), 1)

    def _is_gone(self) -> None:
        self._stats.connections -= self.open
        self.open = False


def _result(raw: Any) -> Result:
    found = raw._result  # noqa: SLF001
    return Result(found.rows or (), found.affected_rows)


async def connect(
    endpoint: MysqlEndpoint,
    settings: MysqlSettings,
    *,
    autocommit: bool,
    database: bool = True,
    stats: Stats | None = None,
) -> MysqlConnection:
    """An open connection in READ COMMITTED. Raises `DatabaseConnectionLost`, `ShardConnectionFailed` if the database is unsuitable, or
    the driver's error if the database refused.
    """
    limit_s = settings.connect_timeout_ms / 1000
    try:
        async with asyncio.timeout(limit_s):
            raw = await asyncmy.connect(
                host=endpoint.host,
                port=endpoint.port,
                unix_socket=endpoint.socket,
                user=endpoint.user,
                password=endpoint.password.encode(),  # text that the driver would take for Latin-1
                database=endpoint.database if database else None,
                charset="utf8mb4",
                autocommit=autocommit,
                connect_timeout=settings.connect_timeout_ms / 1000,
                ssl=make_context(settings) if wants_tls(endpoint, settings) else None,
            )
    except TimeoutError as error:
        raise DatabaseConnectionLost(f"{endpoint}: no connection within {limit_s:g} s") from error
    except driver.MySQLError as error:
        if code_of(error) == _ENDED:
            why = "the connection was ended before the login was over; is it a proxy without a database behind it?"
            raise DatabaseConnectionLost(f"{endpoint}: {why} ({text_of(error)})") from error
        if is_lost(error):
            raise DatabaseConnectionLost(f"{endpoint}: {text_of(error)}") from error
        raise
    except (OSError, RuntimeError) as error:  # the latter if uvloop has seen the connection close before the driver has
        raise DatabaseConnectionLost(f"{endpoint}: {error}") from error
    connection = MysqlConnection(raw, endpoint, settings, stats or Stats())
    # Before the first statement: some of these products fail at it with an error that does not name the reason.
    if (refused := refusal_of(raw.get_server_info())) is not None:
        connection.close()
        raise ShardConnectionFailed(f"{endpoint}: {refused}", retryable=False)
    session = (_SESSION + (_READERS_SESSION if autocommit else _WRITERS_SESSION)).format(
        autocommit=autocommit,
        lock_wait_s=settings.lock_wait_s,
        idle_s=settings.idle_writer_s,
        limit_s=settings.statement_timeout_ms / 1000,
        limit_ms=settings.statement_timeout_ms,
    )
    try:
        [*_, answer, cluster] = await connection.run(
            [
                session.encode(),
                b"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
                f"SELECT @@max_allowed_packet, CONCAT(@@hostname, ':', @@port), GET_LOCK('{connection.name}', 0)".encode(),
                _SHOW_CLUSTER.encode(),
            ]
        )
        clusters = [as_text(name) for name, value in cluster.rows if as_text(value) not in ("", "OFF")]
        for name in clusters if database else ():
            await _catch_up(connection, *_CATCH_UP[name])
    except BaseException:
        connection.close()
        raise
    packet_bytes, node, _ = answer.rows[0]
    connection.is_known(int(packet_bytes), as_text(node), clusters)
    return connection


async def _catch_up(connection: MysqlConnection, wait: bytes, end: bytes) -> None:
    """Waits until the node has applied all changes that were committed on others before. Raises `DatabaseConnectionLost` if it can't do
    that."""
    try:
        await connection.run([wait, b"SELECT 1 FROM writers LIMIT 1"])
    except driver.MySQLError as error:
        if code_of(error) not in (_LOCK_WAIT, _NO_TABLE):
            raise
        if code_of(error) == _LOCK_WAIT:
            reason = f"the node does not catch up with its cluster ({text_of(error)}); has it a quorum?"
            raise DatabaseConnectionLost(f"{connection.endpoint}: {reason}") from error
    await connection.run([b"ROLLBACK", end])


def code_of(error: BaseException | None) -> int:
    """The database's number for an error, or 0 for none."""
    if error is None:
        return 0
    return int(error.args[0]) if error.args and isinstance(error.args[0], int) else 0


def as_text(value: object) -> str:
    """A string that the database may give as bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)


def text_of(error: BaseException) -> str:
    """The text of the database, with the number."""
    return f"{error.args[1]} ({error.args[0]})" if len(error.args) > 1 else str(error)


_ENDED = 2013
# The client's own numbers (2000 to 2999): no connection, or a lost one. And the server's: it closes this connection, or accepts no
# commands.
_LOST = {
    NODE_NOT_READY,
    1053,
    1077,
    1079,
    1080,
    1152,
    1154,
    1155,
    1156,
    1157,
    1158,
    1159,
    1160,
    1161,
    1184,
    1927,
    3169,
    4031,
}


def is_lost(error: driver.MySQLError) -> bool:
    """Returns whether the connection can no longer be used."""
    code = code_of(error)
    return code in _LOST or 2000 <= code < 3000 or isinstance(error, driver.InterfaceError)
