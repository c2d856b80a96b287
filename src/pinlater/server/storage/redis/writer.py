"""Changes: one script per call, executed once even if it is sent several times.

Every call has a number, greater than all earlier ones, and its script stores number and answer in the writer's key, as its last write. If a
connection is lost before the answer arrives, or a proxy answers instead of Redis, the same call is sent again on the next connection: if
it was executed, the script repeats its answer and changes nothing. A delayed call from a lost connection does no harm either: once a
later call was executed, its number is too low.

The writer's key also holds the lease of the server's slot. If that is another server's, the script refuses, and this server takes another
slot.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

from pinlater.domain.errors import OutcomeUnknown
from pinlater.server.storage.connections import DatabaseConnectionLost, OneConnection, level, now
from pinlater.server.storage.leases import SlotLost
from pinlater.server.storage.redis.connection import Address, Connection
from pinlater.server.storage.redis.errors import ELSEWHERE, Refused, ScriptFailed, StaleQueues, translate
from pinlater.server.storage.redis.scripts import script
from pinlater.server.storage.redis.settings import RedisEndpoint, RedisSettings
from pinlater.server.storage.redis.stats import Stats

logger = logging.getLogger(__name__)

# Refused only briefly, and nothing was changed: worth another attempt within the call.
_TRY_AGAIN = ELSEWHERE | {"BUSY", "TRYAGAIN"}

Answered = Callable[[Any], None]
Arguments = tuple[bytes | int | str, ...]


def _always(_: Any) -> bool:
    return True


class Writer(OneConnection[Connection]):
    """Makes one call after the other on one connection. `rejoin` leases another slot if this writer's slot is lost."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[Connection]],
        endpoint: RedisEndpoint,
        rejoin: Callable[[int], Awaitable[None]],
        settings: RedisSettings,
        stats: Stats,
        writers: int,
    ) -> None:
        super().__init__(connect, settings)
        self._endpoint = endpoint
        self._rejoin = rejoin
        self._settings = settings
        self._stats = stats
        self._writers = writers
        self._newest = 0
        self._lease = b""
        self._packed = b""
        self._unsettled: tuple[int, Answered | None] | None = None
        self.number = 0

    async def become(self, number: int, lease: bytes) -> None:
        """Makes all further calls as another writer."""
        async with self._turn:
            self.number = number
            self._packed = number.to_bytes(2, "big")
            self._lease = lease
            self._newest = 0
            self._unsettled = None

    async def run(
        self,
        name: str,
        *arguments: bytes | int | str,
        if_answered: Answered | None = None,
        under_any_slot: bool = True,
        has_changed: Callable[[Any], bool] = _always,
    ) -> Any:
        """Returns the answer of the script.

        `has_changed(answer)`: whether it changed anything, for `Stats.changes`.
        `if_answered` is called with the answer if it turns out later that an unknown outcome was a success. `under_any_slot`: the same
        arguments remain valid after another slot was taken; otherwise that raises `StaleQueues`, too.

        Raises `StaleQueues`, `OutcomeUnknown`, and `Unavailable` if Redis failed.
        """
        try:
            return await self._in_turn(name, arguments, if_answered, has_changed)
        except SlotLost as lost:
            self._stats.slots_lost += 1
            await self._rejoin(lost.slot)
            if not under_any_slot:
                raise StaleQueues from lost
        return await self._in_turn(name, arguments, if_answered, has_changed)

    def leave(self, address: Address) -> int:
        """Closes the connection if it is to another address; a call under way is sent again on the next one. How many there were."""
        if self._connection is None or not self._connection.open or self._connection.address == address:
            return 0
        self._connection.close()
        return 1

    async def settle(self) -> None:
        """Finds the outcome of the previous call, if that is unknown. Raises `Unavailable` if Redis can't be queried."""
        if self._unsettled is not None:
            async with self._turn:
                try:
                    await self._settle(await self._usable_connection())
                except (DatabaseConnectionLost, Refused) as error:
                    raise translate(error, self._endpoint) from error

    async def _in_turn(
        self, name: str, arguments: Arguments, if_answered: Answered | None, has_changed: Callable[[Any], bool]
    ) -> Any:
        async with self._turn:
            began = time.perf_counter()
            self._newest += 1
            try:
                answer = await self._until_answered(name, arguments, if_answered)
            except BaseException:  # it may have been executed
                self._stats.changes += 1
                raise
            self._stats.changes += has_changed(answer)
            self._stats.transactions += 1
            self._stats.transaction_s += time.perf_counter() - began
            return answer

    async def _until_answered(self, name: str, arguments: Arguments, if_answered: Answered | None) -> Any:
        """Sends it until there is an answer. No new attempt begins once a command's time limit has passed since the first began."""
        doubt = False  # whether an earlier attempt may have been executed
        give_up_at = now() + self._settings.command_timeout_ms / 1000
        for attempt in count():
            last = attempt >= self._settings.retries
            sending = False
            try:
                connection = await self._usable_connection()
                if self._unsettled is not None and not doubt:
                    await self._settle(connection)
                sending = True
                answer = await self._send(connection, name, arguments)
            except Refused as refused:
                if sending and isinstance(refused, ScriptFailed):
                    self._unsettled = (self._newest, if_answered)
                    failed = f"{translate(refused, self._endpoint)}; a part of the change may be stored"
                    raise OutcomeUnknown(failed) from refused
                if not self._may_retry(refused) or last or now() >= give_up_at:
                    if doubt:
                        return await self._find_out(refused, name, arguments, if_answered)
                    raise self._failure(refused) from refused
            except DatabaseConnectionLost as error:
                doubt = doubt or sending
                self._stats.lost_connections += sending
                if last or now() >= give_up_at:
                    if doubt:
                        return await self._find_out(error, name, arguments, if_answered)
                    raise self._failure(error) from error
            except BaseException:
                if doubt or sending:
                    self._unsettled = (self._newest, if_answered)
                raise
            else:
                self._stats.settled += doubt
                return answer
            await self._pause(attempt)
        raise AssertionError  # `count` never ends

    async def _send(self, connection: Connection, name: str, arguments: Arguments) -> Any:
        return await connection.run(script(name), self._packed, self._head(self._newest), *arguments)

    async def _find_out(
        self, cause: DatabaseConnectionLost | Refused, name: str, arguments: Arguments, if_answered: Answered | None
    ) -> Any:
        """Finds the outcome of a call after its last attempt: returns its answer if Redis executed it; otherwise makes sure that Redis
        never does, and raises an error.

        A Redis that refuses connections may be restarting: it is queried repeatedly for `connect_timeout_ms`.

        Raises `OutcomeUnknown` if Redis can't be queried, or another server has this one's slot by now.
        """
        self._unsettled = (self._newest, if_answered)
        give_up_at = self._settle_until()
        for attempt in count():
            try:
                connection = await self._usable_connection()
                if await self._was_carried_out(connection, self._newest) is not None:
                    answer = await self._send(connection, name, arguments)
                    self._unsettled = None
                    self._stats.settled += 1
                    return answer
                self._unsettled = None
                raise translate(
                    DatabaseConnectionLost(f"{cause}; the change was not carried out"), self._endpoint
                ) from cause
            except (DatabaseConnectionLost, Refused) as error:
                logger.log(
                    level(attempt), "%s: the outcome of a change can't be asked for yet: %s", self._endpoint, error
                )
                if now() >= give_up_at:
                    unknown = f"{cause}; whether the change was carried out could not be asked: {error}"
                    raise OutcomeUnknown(unknown) from cause
            await self._pause(attempt)
        raise AssertionError

    def _head(self, number: int) -> bytes:
        return self._lease + number.to_bytes(8, "big")

    def _failure(self, error: DatabaseConnectionLost | Refused) -> Exception:
        """The error to raise after a call that changed nothing."""
        if isinstance(error, Refused) and error.code == "SLOTLOST":
            return SlotLost(self._endpoint, self.number // self._writers)
        if isinstance(error, Refused) and error.code == "STALEQUEUE":
            return StaleQueues()
        return translate(error, self._endpoint)

    def _may_retry(self, refused: Refused) -> bool:
        if refused.code in ELSEWHERE and self._connection is not None:
            self._connection.close()
        return refused.code in _TRY_AGAIN

    async def _usable_connection(self) -> Connection:
        if self._connection is not None and self._connection.alive:
            return self._connection
        if self._connection is not None:
            self._connection.close()
        self._connection = await self._connect()
        return self._connection

    async def _settle(self, connection: Connection) -> None:
        """Finds out whether the previous call, whose outcome was unknown, was executed."""
        if self._unsettled is None:
            return
        number, if_answered = self._unsettled
        try:
            answered = await self._was_carried_out(connection, number)
        except OutcomeUnknown:
            return  # for ever; jobs that it may have claimed time out
        self._unsettled = None
        if answered is not None:
            self._stats.settled += 1
            if if_answered is not None:
                if_answered(answered)

    async def _was_carried_out(self, connection: Connection, number: int) -> Any:
        """Returns the answer of the call, or None if it wasn't executed; then it never will be, because its number is too low from now on.

        Raises `OutcomeUnknown` if the number is gone, because another server has the slot.
        """
        above = max(self._newest, number) + 1
        found = await connection.run(script("settle"), self._packed, self._head(number), above.to_bytes(8, "big"))
        if found[0] == 1:
            return found[1]
        if found[0] == 2:
            self._unsettled = None
            raise OutcomeUnknown(
                f"{self._endpoint}: meanwhile another server took this one's slot; "
                "whether the change before was carried out is not known"
            )
        # The next call, or the same one again, has a later number.
        self._newest = above + 1
        return None
