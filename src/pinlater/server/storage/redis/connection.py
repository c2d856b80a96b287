"""One connection to one Redis: calls of scripts and plain commands, each under a time limit.

A lost connection is never used again, as in `storage.mysql.connection`. The driver's own retries are switched off: code that knows a
call's outcome decides whether it may be repeated.
"""

from __future__ import annotations

import asyncio
import contextlib
from operator import itemgetter
from typing import Any

from redis.asyncio.connection import Connection as TcpConnection
from redis.asyncio.connection import SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, RedisError, ResponseError
from redis.exceptions import ConnectionError as NotConnected

from pinlater.server.storage.connections import DatabaseConnectionLost
from pinlater.server.storage.redis.errors import NoConnection, Refused, refusal_of
from pinlater.server.storage.redis.scripts import Script
from pinlater.server.storage.redis.settings import RedisEndpoint, RedisSettings
from pinlater.server.storage.redis.stats import Stats
from pinlater.server.storage.redis.tls import tls_arguments
from pinlater.server.storage.tls import wants_tls

Address = tuple[str, int]
"""Host and port."""
# Share of the time for a new connection that the Sentinels have.
_SENTINELS_PART = 2


class Connection:
    """An open connection to `address`, for one caller at a time."""

    def __init__(
        self, raw: Any, endpoint: RedisEndpoint, address: Address, front: bytes, settings: RedisSettings, stats: Stats
    ) -> None:
        self._raw = raw
        self.address = address
        self._front = front
        self._stats = stats
        stats.connections += 1
        self.endpoint = endpoint
        self._limit_s = settings.command_timeout_ms / 1000
        self.open = True

    @property
    def alive(self) -> bool:
        """Whether it is open, and its stream has neither ended nor failed."""
        reader = self._raw._reader  # noqa: SLF001 the driver has no public name for it
        return self.open and reader is not None and not reader.at_eof() and reader.exception() is None

    async def run(self, script: Script, *arguments: bytes | int | str) -> Any:
        """Returns the answer of the script. Raises the errors of `command`, and `ScriptFailed` if it failed in the middle."""
        try:
            return await self.command(b"EVALSHA", script.sha, 1, self._front, *arguments)
        except Refused as refused:
            if refused.code != "NOSCRIPT":
                raise
        return await self.command(b"EVAL", script.text, 1, self._front, *arguments)

    async def command(self, *words: bytes | int | str) -> Any:
        """Returns the answer to one command. Raises `Refused`, or `DatabaseConnectionLost` if the connection was lost, the time limit
        passed, or a proxy answered with an error of its own: then Redis may execute the command, even later.
        """
        if not self.open:
            raise NoConnection(f"{self.endpoint}: not connected")
        self._stats.round_trips += 1
        self._stats.statements += 1
        try:
            async with asyncio.timeout(self._limit_s):
                await self._raw.send_packed_command(self._raw.pack_command(*words), check_health=False)
                return await self._raw.read_response(disconnect_on_error=False)
        except TimeoutError as error:
            self.close()
            raise DatabaseConnectionLost(f"{self.endpoint}: no answer within {self._limit_s:g} s") from error
        except (RedisError, OSError, ValueError) as error:  # the last for an answer that the driver can't parse
            refused = refusal_of(error)
            if refused is None or isinstance(error, NotConnected):
                self.close()
            raise refused or DatabaseConnectionLost(f"{self.endpoint}: {error}") from error
        except BaseException:  # cancelled in the middle of an answer: the stream can no longer be used
            self.close()
            raise

    def close(self) -> None:
        """Closes the connection at once; unsent bytes are discarded."""
        if self.open:
            self._stats.connections -= 1
            self.open = False
        raw = self._raw  # its own `disconnect` would wait for a server that hangs
        if raw._writer is not None:  # noqa: SLF001
            with contextlib.suppress(Exception):
                raw._writer.transport.abort()  # noqa: SLF001
            with contextlib.suppress(Exception):
                raw._close()  # noqa: SLF001

    async def quit(self) -> None:
        """Ends the connection."""
        self.close()
        with contextlib.suppress(Exception):
            await self._raw.disconnect(nowait=True)


async def connect(endpoint: RedisEndpoint, front: bytes, settings: RedisSettings, stats: Stats) -> Connection:
    """Opens a connection. Raises `NoConnection`, or `Refused` if Redis refuses the login."""
    limit_s = settings.connect_timeout_ms / 1000
    raw: Any = None
    try:
        async with asyncio.timeout(limit_s):
            host, port = await master_address(endpoint, settings)
            raw = _raw_connection(endpoint, settings, host, port)
            await raw.connect()
    except TimeoutError as error:
        await _drop(raw)
        raise NoConnection(f"Redis {endpoint}: no connection within {limit_s:g} s") from error
    except AuthenticationError as error:
        await _drop(raw)
        raise Refused("WRONGPASS", str(error)) from error
    except (RedisError, OSError, ValueError) as error:
        await _drop(raw)
        refused = refusal_of(error)
        raise refused or NoConnection(f"Redis {endpoint}: {str(error).rstrip('.')}") from error
    except BaseException:
        await _drop(raw)
        raise
    return Connection(raw, endpoint, (host, port), front, settings, stats)


async def _drop(raw: Any) -> None:
    if raw is not None:
        with contextlib.suppress(Exception):
            await raw.disconnect(nowait=True)


def _raw_connection(endpoint: RedisEndpoint, settings: RedisSettings, host: str, port: int) -> Any:
    arguments: dict[str, Any] = {
        "db": endpoint.db,
        # The endpoint has the values of the settings if its URL or entry has none. Sentinels have logins of their own.
        "username": endpoint.user or None,
        "password": endpoint.password or None,
        "socket_timeout": None,
        "socket_connect_timeout": settings.connect_timeout_ms / 1000,
        "retry": Retry(NoBackoff(), 0),
        "retry_on_error": [],
        "health_check_interval": 0,
        "client_name": "pinlater",
        "protocol": 2,
    }
    if endpoint.socket is not None:
        return UnixDomainSocketConnection(path=endpoint.socket, **arguments)
    if wants_tls(endpoint, settings):
        return SSLConnection(host=host, port=port, **arguments, **tls_arguments(settings))
    return TcpConnection(host=host, port=port, **arguments)


async def master_address(endpoint: RedisEndpoint, settings: RedisSettings) -> Address:
    """Returns where to connect: the configured address, or that of the master according to the Sentinels.

    They are asked at the same time. Of the first answers, those of more than half of them if that many answer in time, the one with the
    latest configuration counts: a Sentinel that is cut off from the others names a master that they have replaced. Raises `NoConnection`
    if none knows the master.
    """
    if not endpoint.sentinels:
        return endpoint.host, endpoint.port
    asking = [asyncio.create_task(_ask_sentinel(endpoint, settings, *place)) for place in endpoint.sentinels]
    found: list[tuple[int, Address]] = []
    trouble = "none answered"
    try:
        for answer in asyncio.as_completed(asking):
            try:
                found.append(await answer)
            except (RedisError, OSError, LookupError) as error:
                trouble = str(error) or type(error).__name__
            if len(found) > len(asking) // 2:
                break
    finally:
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
    if not found:
        raise NoConnection(f"{endpoint}: no Sentinel says where the master is ({trouble})")
    return max(found, key=itemgetter(0))[1]


async def _ask_sentinel(endpoint: RedisEndpoint, settings: RedisSettings, host: str, port: int) -> tuple[int, Address]:
    """Returns the epoch of the configuration (0 if the login may not see it) and the address of the master. Raises `LookupError` if it
    knows none.
    """
    place = RedisEndpoint(host, port, settings.sentinel_user, settings.sentinel_password or "", tls=endpoint.tls)
    raw = _raw_connection(place, settings, host, port)
    try:
        async with asyncio.timeout(settings.connect_timeout_ms / 1000 / _SENTINELS_PART):
            await raw.connect()
            await raw.send_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", endpoint.master)
            address = await raw.read_response()
            if not address:
                raise LookupError(f"{host}:{port} knows no master {endpoint.master}")
            await raw.send_command("SENTINEL", "MASTER", endpoint.master)
            about: list[bytes] = []
            with contextlib.suppress(ResponseError):
                about = await raw.read_response()
    finally:
        await _drop(raw)
    epoch = dict(zip(about[::2], about[1::2], strict=True)).get(b"config-epoch", b"0")
    return int(epoch), (address[0].decode(), int(address[1]))
