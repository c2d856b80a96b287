"""The tries of one call on an event loop: under one deadline, over connections of its engine, again where that is safe (`_retries`).

Must never make a call twice that could then take effect twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Generic, TypeVar

from pinlater.client._client_call import ClientCall
from pinlater.client._connection import Link
from pinlater.client._engine import Engine, is_suspicious
from pinlater.client._retries import (
    Again,
    Resend,
    decide,
    give_up_at,
    is_lost,
    is_outage,
    is_unsent,
    outcome_is_unknown,
    passes_by_waiting,
    pause_s,
    repeats_end_at,
)
from pinlater.client._token import TokenSource
from pinlater.client.errors import ClientClosed, PinLaterError, RequestTooOld, TooManyWaiting

T = TypeVar("T")
_log = logging.getLogger("pinlater.client")
# Errors that prove that their own try did nothing, but prove nothing of earlier tries.
_OF_ITS_OWN_TRY = (TooManyWaiting, RequestTooOld, ClientClosed)


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


class Caller:
    """One of the callers that share a client. `token`: what their calls carry. `polls`: their long polls. `waits`: whether tries that reach
    no server or no shard do not count as retries. `alone`: whether no other call is on the connections of their calls."""

    __slots__ = ("alone", "polls", "token", "waits")

    def __init__(self, token: TokenSource, polls: LongPolls, waits: bool = True, alone: bool = False) -> None:
        self.token, self.polls, self.waits, self.alone = token, polls, waits, alone


class CallTries(Generic[T]):
    """One call, which ends at `deadline` by the loop's clock. `failed`: the error of its first try, if that was made elsewhere."""

    def __init__(
        self, engine: Engine, call: ClientCall[T], caller: Caller, deadline: float, failed: PinLaterError | None = None
    ) -> None:
        self._engine = engine
        self._call = call
        self._caller = caller
        self._deadline = deadline
        self._failed = failed
        self._waits = caller.waits and engine.waits
        self._repeats_end = repeats_end_at(engine.began_at(call, deadline))
        self._failures = 0
        self._counted = 0  # those that count against the client's `retries`
        self._lost: PinLaterError | None = None  # set once the call may have taken effect and only its key tells
        self._ended: PinLaterError | None = None  # how the newest try ended; None while it may still be under way
        self._before: PinLaterError | None = None  # the newest error

    async def run(self) -> T:
        """The call's value. Raises what the server said, or what kept it from being asked."""
        try:
            async with asyncio.timeout_at(self._deadline):
                return await self._until_answered(self._call)
        except TimeoutError:
            if (last := self._ended) is not None:
                if self._lost is not None and self._lost is not last:
                    raise self._lost from last
                # Its text has that of the last try, so a traceback of that would only repeat it.
                raise self._engine.at_the_deadline(self._call, last) from None
            self._engine.renew()
            raise self._engine.too_late(self._call, self._before) from None

    async def _until_answered(self, call: ClientCall[T]) -> T:
        engine = self._engine
        with engine.waiting.one(call.shown, self._deadline) as waiting:
            while True:
                try:
                    if self._failed is not None:
                        error, self._failed = self._failed, None
                        raise error
                    return await self._try(call)
                except PinLaterError as error:
                    call = self._next(call, error)
                    if self._waits:
                        waiting.failed(error)
                    hint_ms = error.retry_after_ms
                await asyncio.sleep(pause_s(self._failures, hint_ms, engine.has_others, engine.random.random()))

    def _next(self, call: ClientCall[T], error: PinLaterError) -> ClientCall[T]:
        """The call of the next try after this error. Raises the error of the whole call if there is none."""
        lost = self._lost
        self._failures += 1
        self._counted += not (self._waits and passes_by_waiting(error))
        retries = self._engine.retries
        again = decide(call.resend, error, self._counted, retries, all_or_nothing=call.all_or_nothing)
        of_its_own_try = is_unsent(error) or isinstance(error, _OF_ITS_OWN_TRY)
        of_its_own_try = of_its_own_try or (outcome_is_unknown(lost) and is_outage(error))
        if again is Again.NO and lost is not None and of_its_own_try and error is not lost:
            raise lost from error  # the first try may have taken effect, whatever the last one says
        if again is Again.NO or error is lost or (self._caller.polls.hung_up and call.wait_ms):
            try:
                raise error
            finally:  # otherwise the error and this frame hold each other, and with them the bodies of the call
                del error, lost
        if again is Again.AS_A_REPEAT and call.resend is Resend.KEYED and not outcome_is_unknown(lost):
            self._lost = error
            call = call.as_repeat()
        self._ended, self._before = None if is_lost(error) else error, error
        _log.debug("%s failed (%s); trying again", call.method, error)
        return call

    async def _try(self, call: ClientCall[T]) -> T:
        engine, lost = self._engine, self._lost
        if lost is None:
            if call.wait_ms and self._failures:
                left_s = (
                    self._deadline - engine.loop_time() - engine.timeout_s / 2
                )  # its answer must come before the deadline
                call = call.waiting_at_most(max(1, round(left_s * 1000)))
            return await self._once(call, engine.try_deadline(call, self._deadline))
        if engine.loop_time() >= self._repeats_end or not await engine.honours_keys():
            raise lost
        # A repeat that can't be sent in time must not be sent later, so it has no longer than repeats may be made.
        end = min(self._deadline, self._repeats_end)
        is_last = self._counted >= engine.retries or not engine.has_others
        return await self._once(call, end if is_last else give_up_at(engine.loop_time(), end))

    async def _once(self, call: ClientCall[T], give_up_at_s: float | None) -> T:
        engine, caller = self._engine, self._caller
        owner = None if engine.owners is None or self._failures or caller.alone else engine.owners.route(call)
        if call.wait_ms or caller.alone:
            async with engine.pool.alone(owner) as connection:
                self._ended = None
                with caller.polls.one(connection, call) if call.wait_ms else nullcontext():
                    answer = await self._ask(connection, call)
            engine.follow()
            return answer
        connection = engine.to_owner(owner) or await engine.pool.shared()
        self._ended = None
        began = engine.loop_time()
        try:
            async with asyncio.timeout_at(give_up_at_s) as limit:
                answer = await self._ask(connection, call)
        except asyncio.CancelledError:
            connection.retire()
            if is_suspicious(engine.loop_time() - began):
                engine.renew()
            raise
        except TimeoutError:
            if not limit.expired():
                raise
            connection.retire()
            raise engine.no_answer(call, connection.address) from None
        engine.follow()
        if engine.wants_to_learn(call):
            engine.learn(connection)
        return answer

    async def _ask(self, connection: Link, call: ClientCall[T]) -> T:
        engine = self._engine
        try:
            answer = call.read(await connection.call(call.method, engine.name, call.args, self._caller.token()))
        except PinLaterError as error:
            explained, stays = engine.after_failure(call, connection.address, error)
            if not stays:
                connection.retire()
            if explained is not error:
                raise explained from explained.__cause__
            raise
        engine.servers.worked(connection.address)
        return answer
