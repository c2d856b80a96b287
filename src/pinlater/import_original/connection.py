"""A connection to an old MySQL server that only reads, each statement under a time limit. Every failure is a `SourceFailed`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import asyncmy
from asyncmy import errors as driver

from pinlater.import_original.old_server import OldServer, OriginalTls, SourceFailed

_CONNECT_S, _ANSWER_S = 10, 60
# Independent of the server's own defaults: some would change the meaning of a statement, or truncate its result.
_SESSION = (
    "SET NAMES utf8mb4, SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', SESSION time_zone = '+00:00', "
    "SESSION sql_big_selects = 1, SESSION sql_select_limit = 18446744073709551615"
    # A statement that is given up here must also end in the database: MariaDB counts seconds, MySQL milliseconds, each with a variable of
    # its own.
    f" /*M! , SESSION max_statement_time = {_ANSWER_S} */ /*!80000 , SESSION max_execution_time = {_ANSWER_S * 1000} */"
)
_ISOLATION = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
# Too many connections, lock wait, deadlock; and the server's errors for a connection that it closes or has lost. The client's own error
# numbers, 2000 to 2999, are temporary, too.
_PASSING = {1040, 1203, 1205, 1213, 1226, 1053, 1077, 1079, 1080, 1152, *range(1154, 1162), 1184, 1927, 3169, 4031}


class OldConnection:
    """An open connection; not for two callers at once. After a failure it can no longer be used."""

    def __init__(self, raw: Any, server: OldServer) -> None:
        self._raw = raw
        self._server = server

    async def rows(self, statement: str) -> Sequence[tuple[Any, ...]]:
        """Returns the result of a statement. Raises `SourceFailed`."""
        try:
            with _failures(self._server, f"no answer within {_ANSWER_S} s"):
                async with asyncio.timeout(_ANSWER_S), self._raw.cursor() as cursor:
                    await cursor.execute(statement)
                    return tuple(await cursor.fetchall())
        except BaseException:  # also cancelled in the middle of an answer: the stream can no longer be used
            self.close()
            raise

    def close(self) -> None:
        """Cuts the connection."""
        with contextlib.suppress(Exception):
            self._raw.close()

    async def quit(self) -> None:
        """Tells the database that the connection ends, and closes it."""
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self._raw.ensure_closed(), 1)


async def connect(server: OldServer, tls: OriginalTls) -> OldConnection:
    """Opens a connection. Raises `SourceFailed`."""
    with _failures(server, f"no connection within {_CONNECT_S} s"):
        async with asyncio.timeout(_CONNECT_S):
            raw = await asyncmy.connect(
                host=server.host,
                port=server.port,
                unix_socket=server.socket,
                user=server.user,
                password=server.password.encode(),  # text that the driver would take for Latin-1
                charset="utf8mb4",
                autocommit=True,
                connect_timeout=_CONNECT_S,
                ssl=tls.context_for(server),
            )
    connection = OldConnection(raw, server)
    for statement in (_SESSION, _ISOLATION):
        await connection.rows(statement)
    return connection


@contextlib.contextmanager
def _failures(server: OldServer, too_late: str) -> Iterator[None]:
    """Converts the errors of the driver to `SourceFailed`."""
    try:
        yield
    except TimeoutError as error:
        raise SourceFailed(f"{server.address}: {too_late}", passing=True) from error
    except driver.MySQLError as error:
        text, code = _text_of(error), _code_of(error)
        hint = "; check user, password and grants (SELECT is enough)" if "denied" in text else ""
        passing = code in _PASSING or 2000 <= code < 3000 or isinstance(error, driver.InterfaceError)
        raise SourceFailed(f"{server.address}: {text}{hint}", passing=passing) from error
    except (OSError, EOFError, RuntimeError) as error:
        raise SourceFailed(f"{server.address}: {error}", passing=True) from error


def _code_of(error: driver.MySQLError) -> int:
    """The database's number for an error, or 0 for none."""
    return int(error.args[0]) if error.args and isinstance(error.args[0], int) else 0


def _text_of(error: driver.MySQLError) -> str:
    """The text of the database, with the number."""
    return f"{error.args[1]} ({error.args[0]})" if len(error.args) > 1 else str(error)
