"""What every face of the client shares: a call goes out over a pooled connection, under a deadline, again where that is safe.

Belongs to one event loop. Must never make a call twice that could then take effect twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from random import Random
from typing import TypeVar

from pinlater.client import _calls
from pinlater.client._calls import Call
from pinlater.client._connection import Connect, Link
from pinlater.client._pool import ConnectionPool
from pinlater.client._retries import Again, Resend, decide, is_lost, is_turned_away, is_unsent, pause_s
from pinlater.client._servers import ServerChoice, ServerSource
from pinlater.client.errors import DeadlineExceeded, PinLaterError, UnknownMethod

T = TypeVar("T")
# A call given up after so long without an answer says that its network may hang, half open.
_SUSPICIOUS_S = 0.5
_log = logging.getLogger("pinlater.client")


class Engine:
    """Carries out calls. Open from the start; connects with the first call."""

    def __init__(
        self,
        source: ServerSource,
        name: str,
        *,
        timeout_s: float,
        connect: Connect,
        connections: int,
        retries: int,
        monotonic: Callable[[], float],
    ) -> None:
        self._name = name
        self._timeout_s = timeout_s
        self._retries = retries
        self._source = source
        self._random = Random()  # noqa: S311 - spreads load and returns, guards nothing
        self._servers = ServerChoice(source, monotonic, self._random)
        self._pool = ConnectionPool(
            self._servers,
            shared_max=connections,
            connect=connect,
            monotonic=monotonic,
        )
        self._keys_honoured: bool | None = None
        self._asking: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Closes every connection; calls under way end with ConnectionLost."""
        if self._asking is not None:
            self._asking.cancel()
        await self._pool.close()

    async def run(self, call: Call[T]) -> T:
        """The call's value. Raises what the server said, or what kept it from being asked."""
        timeout_s = self._timeout_s + call.wait_ms / 1000
        deadline = asyncio.get_running_loop().time() + timeout_s
        try:
            async with asyncio.timeout_at(deadline):
                return await self._try(call, deadline)
        except TimeoutError as error:
            self._pool.renew()
            raise DeadlineExceeded(f"No answer to {call.method} within {timeout_s:g} s") from error

    async def _try(self, call: Call[T], deadline: float) -> T:
        failures = 0
        lost: PinLaterError | None = None  # set once the call may have taken effect and only its key tells
        while True:
            try:
                if lost is not None and not await self._honours_keys():
                    raise lost
                return await self._once(call, deadline)
            except PinLaterError as error:
                failures += 1
                again = decide(call.resend, error, failures, self._retries)
                if again is Again.NO and lost is not None and is_unsent(error):
                    raise lost from error  # the first try may have taken effect, whatever the last one says
                if again is Again.NO or error is lost:
                    raise
                if again is Again.AS_A_REPEAT and call.resend is Resend.KEYED and lost is None:
                    call, lost = call.as_repeat(), error
                _log.debug("%s failed (%s); trying again", call.method, error)
                others = len(self._source.addresses()) > 1
                await asyncio.sleep(pause_s(failures, error.retry_after_ms, others, self._random.random()))

    async def _once(self, call: Call[T], deadline: float) -> T:
        if call.wait_ms:
            async with self._pool.alone() as connection:
                return await self._ask(connection, call)
        connection = await self._pool.shared()
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout_at(self._patience(call, deadline)) as patience:
                answer = await self._ask(connection, call)
        except asyncio.CancelledError:
            connection.retire()
            if asyncio.get_running_loop().time() - began > _SUSPICIOUS_S:
                self._pool.renew()
            raise
        except TimeoutError:
            if not patience.expired():
                raise
            connection.retire()
            self._servers.failed(connection.address)
            raise DeadlineExceeded(f"No answer to {call.method} from {connection.address} in time") from None
        if call.resend is Resend.KEYED and self._keys_honoured is None and self._asking is None:
            self._asking = asyncio.create_task(self._learn(connection))
        return answer

    def _patience(self, call: Call[T], deadline: float) -> float | None:
        """Where another server could still be asked, this one gets half of the time that is left."""
        if call.resend is Resend.NEVER or not self._retries or len(self._source.addresses()) < 2:
            return None
        now = asyncio.get_running_loop().time()
        return now + (deadline - now) / 2

    async def _ask(self, connection: Link, call: Call[T]) -> T:
        try:
            answer = call.read(await connection.call(call.method, self._name, call.args))
        except PinLaterError as error:
            if is_turned_away(error):
                connection.retire()
                self._servers.failed(connection.address)
            elif is_lost(error):
                self._servers.failed(connection.address)
            raise
        self._servers.worked(connection.address)
        return answer

    # --- does this server know request keys? ------------------------------------------------------------------------------
    async def _honours_keys(self) -> bool:
        """Whether the servers tell a resend by its key. Asks where it isn't known yet; raises what kept it from asking."""
        if self._keys_honoured is None:
            await self._find_out(await self._pool.shared())
        return self._keys_honoured is True

    async def _learn(self, connection: Link) -> None:
        try:
            await self._find_out(connection)
        except PinLaterError:
            self._asking = None  # the next enqueue asks again

    async def _find_out(self, connection: Link) -> None:
        call = _calls.server_info()
        try:
            await connection.call(call.method, self._name, call.args)
        except UnknownMethod:
            self._keys_honoured = False
            _log.warning(
                "%s is an original PinLater server: it ignores request keys, so an enqueue whose answer is lost is not sent again",
                connection.address,
            )
        except asyncio.CancelledError:
            connection.retire()
            raise
        else:
            self._keys_honoured = True
