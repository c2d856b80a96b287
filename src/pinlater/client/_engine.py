"""What the calls of a client share, async or sync: its servers and their health, connections, owners of queues, and what the end of a try
means. `_tries` and `_direct` make the tries.

Belongs to one event loop; what may be asked from other threads says so.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from copy import copy
from random import Random
from typing import Any, NamedTuple

from pinlater.client import _service_calls
from pinlater.client._client_call import ClientCall
from pinlater.client._connection import Connect, Link
from pinlater.client._following import OwnerConnections
from pinlater.client._owners import KnownOwners
from pinlater.client._pool import ConnectionPool
from pinlater.client._retries import (
    Again,
    Resend,
    decide,
    ends_connection,
    give_up_at,
    is_lost,
    is_unsent,
    passes_by_waiting,
    repeats_end_at,
)
from pinlater.client._servers import NONE_REACHED, FixedServers, ServerAddress, ServerChoice, ServerSource, tried
from pinlater.client._token import TokenSource
from pinlater.client._waiting_calls import SayWaiting, WaitingCalls, log_waiting
from pinlater.client.errors import DeadlineExceeded, PinLaterError, ServerUnreachable, UnknownMethod

_SUSPICIOUS_S = 0.5
_log = logging.getLogger("pinlater.client")


def is_suspicious(waited_s: float) -> bool:
    """Whether a call given up after so long says that its network may hang, half open."""
    return waited_s > _SUSPICIOUS_S


def _nothing() -> None: ...


def _no_token() -> str:
    return ""


def _may_follow(follow_owners: bool | None, source: ServerSource) -> bool:
    """A client of one server has no choice, unless it is told to learn of others."""
    if follow_owners is None:
        return not (isinstance(source, FixedServers) and len(source.listed) < 2)
    return follow_owners


class EngineOptions(NamedTuple):
    """How calls are made.

    `loop_time`: the time of the event loop that they are made on, to be asked from any thread.
    `follow_owners`: whether they go to the owners of queues; None: to those that the client's servers list.
    `say_waiting` is told of calls that have waited for a second.
    """

    timeout_s: float
    connect: Connect
    connections: int
    retries: int
    monotonic: Callable[[], float]
    token: TokenSource = _no_token
    wait_for_servers: bool = True
    follow_owners: bool | None = None
    say_waiting: SayWaiting = log_waiting
    loop_time: Callable[[], float] = time.monotonic
    random: Random | None = None


class Engine:
    """Executes calls. Open from the start; connects with the first call."""

    def __init__(self, source: ServerSource, name: str, options: EngineOptions) -> None:
        self.name = name
        self.token = options.token
        self.renewed: Callable[[], None] = _nothing  # called when the open connections are given up
        self.timeout_s = options.timeout_s
        self.retries = options.retries
        self.waits = options.wait_for_servers and options.retries > 0
        self._source = source
        self.random = options.random or Random()  # noqa: S311 - spreads load and returns, guards nothing
        self.loop_time = options.loop_time
        monotonic, follow_owners = options.monotonic, options.follow_owners
        self.monotonic = monotonic
        self.servers = ServerChoice(source, monotonic, self.random)
        self.pool = ConnectionPool(
            self.servers, shared_max=options.connections, connect=options.connect, monotonic=monotonic
        )
        self.owners: KnownOwners | None = None
        self._owner_connections: OwnerConnections | None = None
        if _may_follow(follow_owners, source):
            self.owners = KnownOwners(source, only_listed=not follow_owners, monotonic=monotonic, random=self.random)
            self._owner_connections = OwnerConnections(
                self.owners, name, lambda: self.token(), self.pool.shared, self.pool.connect_to
            )
            self.pool.also = self.owners
        # Whether its servers stay the same ones, so that no connection goes to a server that has left them; whether it has several.
        self.is_fixed = isinstance(source, FixedServers) and self.owners is None
        self.has_choice = not self.is_fixed or len(source.addresses()) > 1
        self.waiting = WaitingCalls(options.say_waiting)
        self.keys_honoured: bool | None = None
        self._asking: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Closes every connection; calls under way end with ConnectionLost."""
        self.waiting.close()
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait({self._asking})
        if self._owner_connections is not None:
            await self._owner_connections.close()
        await self.pool.close()

    def renew(self) -> None:
        """Makes no new call over connections that are open now."""
        self.pool.renew()
        if self._owner_connections is not None:
            self._owner_connections.renew()
        self.renewed()

    def deadline_of(self, call: ClientCall[Any]) -> float:
        """When a call that is made now must be answered, by the loop's clock. From any thread."""
        return self.loop_time() + self.timeout_s + call.wait_ms / 1000

    def began_at(self, call: ClientCall[Any], deadline: float) -> float:
        """When a call with this deadline was made."""
        return deadline - self.timeout_s - call.wait_ms / 1000

    def try_deadline(self, call: ClientCall[Any], deadline: float) -> float | None:
        """When to give this try up: halfway to the deadline if another server can be asked then, else None. From any thread."""
        if call.resend is Resend.NEVER or not self.retries or not self.has_others:
            return None
        now = self.loop_time()
        end = deadline
        if call.resend is Resend.KEYED:
            end = min(deadline, repeats_end_at(self.began_at(call, deadline)))
        return give_up_at(now, end) if now < end else None

    # --- what the end of a try means --------------------------------------------------------------------------------------
    def at_the_deadline(self, call: ClientCall[Any], last: PinLaterError) -> PinLaterError:
        """The error of a call whose deadline passed between two tries. `last`: the error of its last try."""
        if not isinstance(last, ServerUnreachable):
            return copy(last)
        why = last.message.removeprefix(f"{NONE_REACHED}; ")
        if why == last.message:
            why = f"{tried(self._source.addresses())}; last: {why}"
        return ServerUnreachable(f"{NONE_REACHED} within {self._seconds(call):g} s for {call.shown}; {why}")

    def _seconds(self, call: ClientCall[Any]) -> float:
        return self.timeout_s + call.wait_ms / 1000

    def too_late(self, call: ClientCall[Any], before: PinLaterError | None = None) -> PinLaterError:
        """The error of a call whose newest try got no answer in time. `before`: how the try before that one ended."""
        why = "" if before is None else f"; the try before: {before.message}"
        return call.explained(DeadlineExceeded(f"No answer to {call.shown} within {self._seconds(call):g} s{why}"))

    def gives_up(self, call: ClientCall[Any], error: PinLaterError) -> bool:
        """Whether a call whose first try ended so is not made again. From any thread."""
        counted = 0 if self.waits and passes_by_waiting(error) else 1
        again = decide(call.resend, error, counted, self.retries, all_or_nothing=call.all_or_nothing)
        return again is Again.NO

    def no_answer(self, call: ClientCall[Any], address: ServerAddress) -> PinLaterError:
        """Notes that a try was given up at this server. Returns its error. From any thread."""
        self.failed(address)
        return call.explained(DeadlineExceeded(f"No answer to {call.shown} from {address} in time"))

    def after_failure(
        self, call: ClientCall[Any], address: ServerAddress, error: PinLaterError
    ) -> tuple[PinLaterError, bool]:
        """Notes how a try at this server ended. Returns the error for its caller, and whether its connection stays. From any thread."""
        of_the_server = is_unsent(error) or is_lost(error)
        if of_the_server:
            self.failed(address)
        return call.explained(error), not (of_the_server or ends_connection(error))

    def failed(self, address: ServerAddress) -> None:
        """As `ServerChoice.failed`, whether the server is an owner or not. From any thread."""
        self.servers.failed(address)
        if self.owners is not None:
            self.owners.failed(address)

    # --- owners of queues ---------------------------------------------------------------------------------------------------
    @property
    def has_others(self) -> bool:
        """Whether a call that fails at one server can be made at another. From any thread."""
        return len(self._source.addresses()) > 1 or (self.owners is not None and self.owners.has_reached_any)

    def to_owner(self, address: ServerAddress | None) -> Link | None:
        """The connection to an owner, if there is one."""
        return None if address is None or self._owner_connections is None else self._owner_connections.to(address)

    def wants_to_follow(self) -> bool:
        """Whether it is time to ask who owns queues, or to connect to owners. From any thread."""
        return self.owners is not None and self.owners.has_work()

    def follow(self) -> None:
        """Does that if it is time, without delaying a call."""
        if self._owner_connections is not None:
            self._owner_connections.work_if_due()

    # --- does this server know request keys? ------------------------------------------------------------------------------
    async def honours_keys(self) -> bool:
        """Whether the servers tell a resend by its key. Asks if it isn't known yet; raises what kept it from asking."""
        if self.keys_honoured is None:
            await self._find_out(await self.pool.shared())
        return self.keys_honoured is True

    def wants_to_learn(self, call: ClientCall[Any]) -> bool:
        """Whether this call's success is the time to ask. From any thread."""
        return call.resend is Resend.KEYED and self.keys_honoured is None and self._asking is None

    def learn(self, connection: Link | None = None) -> None:
        """Asks, once, without delaying a call."""
        if self.keys_honoured is None and self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._learn(connection))

    async def _learn(self, connection: Link | None) -> None:
        try:
            await self._find_out(connection or await self.pool.shared())
        except PinLaterError:
            self._asking = None  # the next enqueue asks again

    async def _find_out(self, connection: Link) -> None:
        call = _service_calls.server_info()
        try:
            await connection.call(call.method, self.name, call.args, self.token())
        except UnknownMethod:
            self.keys_honoured = False
            _log.warning(
                "%s is an original PinLater server: it ignores request keys, so an enqueue whose answer is lost is not sent again",
                connection.address,
            )
        except asyncio.CancelledError:
            connection.retire()
            raise
        else:
            self.keys_honoured = True
