"""What every form of the client shares: a call goes out over a pooled connection, under a deadline, again if that is safe.

Belongs to one event loop; what may be asked from other threads says so. Must never make a call twice that could then take effect
twice.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from copy import copy
from random import Random
from typing import Any, NamedTuple, TypeVar

from pinlater.client import _calls
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
    is_outage,
    is_unsent,
    outcome_is_unknown,
    passes_by_waiting,
    pause_s,
    repeats_end_at,
    was_refused,
)
from pinlater.client._servers import NONE_REACHED, FixedServers, ServerAddress, ServerChoice, ServerSource, tried
from pinlater.client._token import TokenSource
from pinlater.client._waiting_calls import SayWaiting, WaitingCalls, log_waiting
from pinlater.client.errors import (
    ClientClosed,
    DeadlineExceeded,
    PinLaterError,
    RequestTooOld,
    ServerUnreachable,
    TooManyWaiting,
    UnknownMethod,
)

T = TypeVar("T")
_SUSPICIOUS_S = 0.5
_log = logging.getLogger("pinlater.client")
# Errors that prove that their own try did nothing, but prove nothing of earlier tries.
_OF_ITS_OWN_TRY = (TooManyWaiting, RequestTooOld, ClientClosed)


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


class _Tries:
    """The outcomes of one call's tries so far."""

    __slots__ = ("before", "counted", "ended", "failures", "lost")

    def __init__(self) -> None:
        self.failures = 0
        self.counted = 0  # those that count against the client's `retries`
        self.lost: PinLaterError | None = None  # set once the call may have taken effect and only its key tells
        self.ended: PinLaterError | None = None  # how the newest try ended; None while it may still be under way
        self.before: PinLaterError | None = None  # the newest error


class _Sending(NamedTuple):
    """How a call is sent: with which token, and whether no other call is on its connection."""

    token: TokenSource
    alone: bool = False


class LongPolls:
    """The long polls of one user of a client. Hanging up on them ends no other user's, but those that are `among` them."""

    def __init__(self, among: LongPolls | None = None) -> None:
        self._among = among
        self._under_way: dict[Link, ClientCall[Any]] = {}
        self._hung_up = False

    @property
    def hung_up(self) -> bool:
        """Whether a poll that fails is not made again."""
        return self._hung_up or (self._among is not None and self._among.hung_up)

    @contextmanager
    def one(self, connection: Link, call: ClientCall[Any]) -> Iterator[None]:
        """While it is under way."""
        self._under_way[connection] = call
        try:
            with nullcontext() if self._among is None else self._among.one(connection, call):
                yield
        finally:
            del self._under_way[connection]

    def hang_up(self) -> None:
        """Ends them and loses no claim: each returns what the server has answered, or ends with ConnectionLost.

        Later ones are not made again once they have failed.
        """
        self._hung_up = True
        for connection in list(self._under_way):
            connection.hang_up()

    def unread(self) -> list[Any]:
        """The answers that have arrived but that the event loop has not read yet. From another thread, while the loop is blocked."""
        answers = [(call, connection.unread()) for connection, call in list(self._under_way.items())]
        return [call.read(answer) for call, answer in answers if answer is not None]


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
    """Carries out calls. Open from the start; connects with the first call."""

    def __init__(self, source: ServerSource, name: str, options: EngineOptions) -> None:
        self.name = name
        self.token = options.token
        self.renewed: Callable[[], None] = _nothing  # called when the open connections are given up
        self._timeout_s = options.timeout_s
        self._retries = options.retries
        self._wait_for_servers = options.wait_for_servers and options.retries > 0
        self._source = source
        self._random = options.random or Random()  # noqa: S311 - spreads load and returns, guards nothing
        self._loop_time = options.loop_time
        monotonic, follow_owners = options.monotonic, options.follow_owners
        self.servers = ServerChoice(source, monotonic, self._random)
        self._pool = ConnectionPool(
            self.servers, shared_max=options.connections, connect=options.connect, monotonic=monotonic
        )
        self.owners: KnownOwners | None = None
        self._owner_connections: OwnerConnections | None = None
        if _may_follow(follow_owners, source):
            self.owners = KnownOwners(source, only_listed=not follow_owners, monotonic=monotonic, random=self._random)
            self._owner_connections = OwnerConnections(
                self.owners, name, lambda: self.token(), self._pool.shared, self._pool.connect_to
            )
            self._pool.also = self.owners
        self._polls = LongPolls()  # of callers who never hang up
        self._waiting = WaitingCalls(options.say_waiting)
        self.keys_honoured: bool | None = None
        self._asking: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Closes every connection; calls under way end with ConnectionLost."""
        self._waiting.close()
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait({self._asking})
        if self._owner_connections is not None:
            await self._owner_connections.close()
        await self._pool.close()

    def renew(self) -> None:
        """Makes no new call over connections that are open now."""
        self._pool.renew()
        if self._owner_connections is not None:
            self._owner_connections.renew()
        self.renewed()

    def deadlines(self, call: ClientCall[T]) -> tuple[float, float]:
        """When a call that is made now must be answered, by the loop's clock, and when its first try. From any thread."""
        deadline = self._loop_time() + self._timeout_s + call.wait_ms / 1000
        return deadline, self.try_deadline(call, deadline) or deadline if self._has_others else deadline

    async def run(
        self,
        call: ClientCall[T],
        deadline: float | None = None,
        failed: PinLaterError | None = None,
        polls: LongPolls | None = None,
        wait_for_servers: bool = True,
        token: TokenSource | None = None,
        alone: bool = False,
    ) -> T:
        """The call's value. Raises what the server said, or what kept it from being asked.

        `failed`: how its first try ended, which was made elsewhere; then `deadline` is the whole call's. `polls`: whose long poll it is,
        if it is one. Without `wait_for_servers` tries that reach no server or no shard count as retries. `token`: another one than the
        engine's.
        `alone`: no other call is on its connection.
        """
        deadline = deadline or self._loop_time() + self._timeout_s + call.wait_ms / 1000
        tries = _Tries()
        sending = _Sending(token or self.token, alone)
        try:
            async with asyncio.timeout_at(deadline):
                return await self._try(call, deadline, failed, polls or self._polls, tries, wait_for_servers, sending)
        except TimeoutError:
            if (last := tries.ended) is not None:
                if tries.lost is not None and tries.lost is not last:
                    raise tries.lost from last
                # Its text has that of the last try, so a traceback of that would only repeat it.
                raise self._at_the_deadline(call, last) from None
            self.renew()
            raise self.too_late(call, tries.before) from None

    def _at_the_deadline(self, call: ClientCall[T], last: PinLaterError) -> PinLaterError:
        """The error of a call whose deadline passed between two tries. `last`: the error of its last try."""
        if not isinstance(last, ServerUnreachable):
            return copy(last)
        why = last.message.removeprefix(f"{NONE_REACHED}; ")
        if why == last.message:
            why = f"{tried(self._source.addresses())}; last: {why}"
        return ServerUnreachable(f"{NONE_REACHED} within {self._seconds(call):g} s for {call.shown}; {why}")

    def _seconds(self, call: ClientCall[T]) -> float:
        return self._timeout_s + call.wait_ms / 1000

    def too_late(self, call: ClientCall[T], before: PinLaterError | None = None) -> PinLaterError:
        """The error of a call whose newest try got no answer in time. `before`: how the try before that one ended."""
        why = "" if before is None else f"; the try before: {before.message}"
        return call.explained(DeadlineExceeded(f"No answer to {call.shown} within {self._seconds(call):g} s{why}"))

    def gives_up(self, call: ClientCall[T], error: PinLaterError) -> bool:
        """Whether a call whose first try ended so is not made again. From any thread."""
        counted = 0 if self._wait_for_servers and passes_by_waiting(error) else 1
        again = decide(call.resend, error, counted, self._retries, all_or_nothing=call.all_or_nothing)
        return again is Again.NO

    async def _try(
        self,
        call: ClientCall[T],
        deadline: float,
        failed: PinLaterError | None,
        polls: LongPolls,
        tries: _Tries,
        wait_for_servers: bool,
        sending: _Sending,
    ) -> T:
        waits = wait_for_servers and self._wait_for_servers
        repeats_end, is_poll = self._repeats_end(call, deadline), bool(call.wait_ms)
        with self._waiting.one(call.shown, deadline) as waiting:
            while True:
                try:
                    if failed is not None:
                        error, failed = failed, None
                        raise error
                    lost = tries.lost
                    if lost is not None and (self._loop_time() >= repeats_end or not await self._honours_keys()):
                        raise lost
                    if lost is None:
                        if is_poll and tries.failures:
                            call = call.waiting_at_most(self._poll_left_ms(deadline))
                        return await self._once(call, self.try_deadline(call, deadline), polls, tries, sending)
                    return await self._once(
                        call, self._repeat_deadline(call, deadline, tries.counted), polls, tries, sending
                    )
                except PinLaterError as error:
                    lost = tries.lost
                    tries.failures += 1
                    tries.counted += not (waits and passes_by_waiting(error))
                    again = decide(call.resend, error, tries.counted, self._retries, all_or_nothing=call.all_or_nothing)
                    of_its_own_try = is_unsent(error) or isinstance(error, _OF_ITS_OWN_TRY)
                    of_its_own_try = of_its_own_try or (outcome_is_unknown(lost) and is_outage(error))
                    if again is Again.NO and lost is not None and of_its_own_try and error is not lost:
                        raise lost from error  # the first try may have taken effect, whatever the last one says
                    if again is Again.NO or error is lost or (polls.hung_up and is_poll):
                        raise
                    if again is Again.AS_A_REPEAT and call.resend is Resend.KEYED and not outcome_is_unknown(lost):
                        tries.lost = error
                        call = call.as_repeat()
                    tries.ended, tries.before = None if is_lost(error) else error, error
                    _log.debug("%s failed (%s); trying again", call.method, error)
                    if waits:
                        waiting.failed(error)
                    others = self._has_others
                    await asyncio.sleep(pause_s(tries.failures, error.retry_after_ms, others, self._random.random()))

    def _poll_left_ms(self, deadline: float) -> int:
        """How long a long poll that is made again may wait, so that its answer comes before the deadline."""
        return max(1, round((deadline - self._loop_time() - self._timeout_s / 2) * 1000))

    async def _once(
        self, call: ClientCall[T], give_up_at_s: float | None, polls: LongPolls, tries: _Tries, sending: _Sending
    ) -> T:
        owner = None if self.owners is None or tries.failures or sending.alone else self.owners.route(call)
        if call.wait_ms:
            async with self._pool.alone(owner) as connection:
                tries.ended = None
                with polls.one(connection, call):
                    answer = await self._ask(connection, call, sending.token)
            self.follow()
            return answer
        if sending.alone:
            async with self._pool.alone() as connection:
                tries.ended = None
                return await self._ask(connection, call, sending.token)
        connection = self._to_owner(owner) or await self._pool.shared()
        tries.ended = None
        began = self._loop_time()
        try:
            async with asyncio.timeout_at(give_up_at_s) as limit:
                answer = await self._ask(connection, call, sending.token)
        except asyncio.CancelledError:
            connection.retire()
            if is_suspicious(self._loop_time() - began):
                self.renew()
            raise
        except TimeoutError:
            if not limit.expired():
                raise
            connection.retire()
            self.failed(connection.address)
            late = DeadlineExceeded(f"No answer to {call.shown} from {connection.address} in time")
            raise call.explained(late) from None
        self.follow()
        if self.wants_to_learn(call):
            self.learn(connection)
        return answer

    def try_deadline(self, call: ClientCall[T], deadline: float) -> float | None:
        """When to give this try up: halfway to the deadline if another server can be asked then, else None. From any thread."""
        if call.resend is Resend.NEVER or not self._retries or not self._has_others:
            return None
        now = self._loop_time()
        end = deadline if call.resend is Resend.SAFE else min(deadline, self._repeats_end(call, deadline))
        return give_up_at(now, end) if now < end else None

    def _repeat_deadline(self, call: ClientCall[T], deadline: float, failures: int) -> float:
        """A repeat that can't be sent in time must not be sent later, so it has no longer than repeats may be made."""
        end = min(deadline, self._repeats_end(call, deadline))
        if failures >= self._retries or not self._has_others:
            return end
        return give_up_at(self._loop_time(), end)

    def _repeats_end(self, call: ClientCall[T], deadline: float) -> float:
        return repeats_end_at(deadline - self._timeout_s - call.wait_ms / 1000)

    async def _ask(self, connection: Link, call: ClientCall[T], token: TokenSource) -> T:
        try:
            answer = call.read(await connection.call(call.method, self.name, call.args, token()))
        except PinLaterError as error:
            if was_refused(error):
                connection.retire()
                self.failed(connection.address)
            elif ends_connection(error):
                connection.retire()
            elif is_lost(error) or isinstance(error, ServerUnreachable):
                self.failed(connection.address)
            explained = call.explained(error)
            if explained is not error:
                raise explained from explained.__cause__
            raise
        self.servers.worked(connection.address)
        return answer

    # --- owners of queues ---------------------------------------------------------------------------------------------------
    @property
    def _has_others(self) -> bool:
        """Whether a call that fails at one server can be made at another. From any thread."""
        return len(self._source.addresses()) > 1 or (self.owners is not None and self.owners.has_reached_any)

    def _to_owner(self, address: ServerAddress | None) -> Link | None:
        return None if address is None or self._owner_connections is None else self._owner_connections.to(address)

    def wants_to_follow(self) -> bool:
        """Whether it is time to ask who owns queues, or to connect to owners. From any thread."""
        return self.owners is not None and self.owners.has_work()

    def follow(self) -> None:
        """Does that if it is time, without delaying a call."""
        if self._owner_connections is not None:
            self._owner_connections.work_if_due()

    def failed(self, address: ServerAddress) -> None:
        """As `ServerChoice.failed`, whether the server is an owner or not. From any thread."""
        self.servers.failed(address)
        if self.owners is not None:
            self.owners.failed(address)

    # --- does this server know request keys? ------------------------------------------------------------------------------
    async def _honours_keys(self) -> bool:
        """Whether the servers tell a resend by its key. Asks if it isn't known yet; raises what kept it from asking."""
        if self.keys_honoured is None:
            await self._find_out(await self._pool.shared())
        return self.keys_honoured is True

    def wants_to_learn(self, call: ClientCall[T]) -> bool:
        """Whether this call's success is the time to ask. From any thread."""
        return call.resend is Resend.KEYED and self.keys_honoured is None and self._asking is None

    def learn(self, connection: Link | None = None) -> None:
        """Asks, once, without delaying a call."""
        if self.keys_honoured is None and self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._learn(connection))

    async def _learn(self, connection: Link | None) -> None:
        try:
            await self._find_out(connection or await self._pool.shared())
        except PinLaterError:
            self._asking = None  # the next enqueue asks again

    async def _find_out(self, connection: Link) -> None:
        call = _calls.server_info()
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
