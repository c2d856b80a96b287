"""From one frame to its reply: decode, find the operation, call it, encode. Knows no sockets.

Any failure in an operation becomes an answer; only a frame that is not Thrift at all raises an error, because then the connection is
lost. Written to cost little for each request: no objects beyond the decoded call, no formatting unless it is logged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pinlater.domain.byte_budget import ByteBudget
from pinlater.domain.caller_names import WITHOUT_TOKEN, NamedCaller
from pinlater.domain.clock import Clock
from pinlater.domain.errors import AccessDenied, AnswerTooLarge, PinLaterError, QuotaExceeded, code_of
from pinlater.server.operations.changes import AdministrativeChange
from pinlater.server.operations.long_lists import ITEMS_A_TURN, JOBS_A_TURN, step_by_step
from pinlater.server.operations.service import Service
from pinlater.server.telemetry.catalogue import MethodMetrics
from pinlater.server.telemetry.metrics import Metrics
from pinlater.server.thrift import administrative
from pinlater.server.thrift.administrative import Administrative, AdministrativeCall
from pinlater.server.thrift.costs import MemoryBounds
from pinlater.server.thrift.failures import (
    TooManyBytes,
    TooManyConnections,
    TooManyPipelined,
    TooManyRequests,
    declared_exception,
    unexpected,
)
from pinlater.server.thrift.guard import Guard
from pinlater.server.thrift.large_frames import SMALL_BYTES, LargeFrames
from pinlater.server.thrift.methods.jobs import DequeueAnswer
from pinlater.server.thrift.methods.record import Handler, ServedMethod
from pinlater.server.thrift.quota_guard import CountedConnection, QuotaGuard
from pinlater.server.thrift.settings import ThriftSettings
from pinlater.wire.codec import (
    DecodedCall,
    Decoder,
    encode_application_error,
    encode_exception,
    encode_reply,
    encode_reply_in_steps,
)
from pinlater.wire.errors import ApplicationErrorKind, WireError
from pinlater.wire.framing import LENGTH_BYTES, FrameTooLong
from pinlater.wire.methods import METHODS as WIRE_METHODS

logger = logging.getLogger(__name__)

NO_ANSWER = b""
# For a dequeue for which the quota has no poll, but whose acks are to be executed. Without any wait a paused queue would refuse it.
WAIT_OVER_QUOTA_MS = 1
_QUEUES_SHOWN = 3


class Recipient(CountedConnection, Protocol):
    """The data and methods of a connection that answering a request needs."""

    gone: bool  # no client will read the answer; jobs must not be handed out
    waiting: bool  # set while a long poll or a search of bodies is under way, which may be cancelled
    last_request: bool  # set when the connection is to be closed after the answer
    active_at_s: float  # set to the time when the answer was ready
    handed_out: DequeueAnswer | None  # set to the answer where it hands out jobs; None again once it is delivered

    @property
    def peer(self) -> str: ...  # the name of the other end, for the log

    @property
    def host(self) -> str: ...  # the address of the other end, without its port


@dataclass(frozen=True, slots=True)
class MethodRoute:
    """The service that executes a method's calls."""

    served: ServedMethod
    handle: Handler
    metrics: MethodMetrics
    may_wait_or_cost: bool  # its calls may wait, search, or need much memory
    caller: NamedCaller = WITHOUT_TOKEN  # only of administrative calls


class Answering:
    """Converts the frames of one server's callers to replies. `running` counts requests under way, long polls excepted.

    `large_frames` decodes large frames; if it is not given, they are decoded on the event loop as well. `methods`: the record of each
    method.
    `guard`: access control, if there is any.
    """

    def __init__(
        self,
        service: Service,
        settings: ThriftSettings,
        metrics: Metrics,
        clock: Clock,
        methods: Mapping[str, ServedMethod],
        budget: ByteBudget | None = None,
        *,
        large_frames: LargeFrames | None = None,
        guard: Guard | None = None,
    ) -> None:
        self.budget = budget or ByteBudget(settings.max_buffered_bytes)
        self._service = service
        self._settings = settings
        self._metrics = metrics
        self._monotonic = clock.monotonic
        self._guard = guard
        self.quotas = None if guard is None else QuotaGuard(guard.access, metrics, clock.monotonic, methods)
        decoder = Decoder(settings.wire_limits)
        self._large_frames = large_frames
        self._inline_bytes_max = settings.max_frame_bytes if large_frames is None else SMALL_BYTES
        self._decode = decoder.call
        self._header = decoder.header
        self._answer_bytes_max = settings.answer_bytes_max + LENGTH_BYTES
        self._requests_max = settings.max_concurrent_requests
        self._debug = logger.isEnabledFor(logging.DEBUG)
        self._memory_bounds = MemoryBounds(settings)
        self._routes = {
            name: MethodRoute(
                served,
                served.handle,
                metrics.method(name),
                served.hands_out or served.searches is not None or served.cost_bytes is not None,
            )
            for name, served in methods.items()
        }
        self.running = 0
        self.waiting = 0

    async def answer(self, frame: bytes, arrived_s: float, recipient: Recipient) -> bytes:
        """The framed reply, or `NO_ANSWER`. Raises `WireError` only if the connection is lost with it."""
        try:
            if len(frame) <= self._inline_bytes_max or self._large_frames is None:
                call = self._decode(frame)
            else:
                call = await self._large_frames.decode(frame, recipient.host)
        except WireError as error:
            return self._undecodable(error)
        route = self._routes[call.method.name]
        route.metrics.requests += 1
        if route.served.wants_arrival:
            call.arguments.arrived_s = arrived_s
        if self._guard is not None:
            # A connection that was counted once still is, so that it counts for the right token when there are quotas again.
            if (self._guard.access.has_quotas or recipient.use is not None) and (
                reply := self._refused_by_quota(self._guard, call, route, recipient, len(frame))
            ):
                return NO_ANSWER if call.oneway else reply
            try:
                handle = self._guard.admit(call, route.served, route.handle)
            except AccessDenied as error:
                if route.served.administrative is not None:
                    route = replace(route, caller=self._guard.caller(call))
                reply = await self._deny(self._guard, call, route, recipient, error)
                recipient.active_at_s = self._monotonic()
                return NO_ANSWER if call.oneway else reply
            if route.served.administrative is not None:
                route = replace(route, handle=handle, caller=self._guard.caller(call))
            elif handle is not route.handle:
                route = replace(route, handle=handle)
        bounded: object = route.may_wait_or_cost
        if bounded and route.served.hands_out:  # of dequeues only long polls and dry runs
            asked = call.arguments.request
            bounded = asked.wait_ms or asked.dry_run
        leave: Callable[[], None] | None = None
        method, seqid, oneway, arguments = call
        answer: Any = None
        self.running += 1
        try:
            if bounded or recipient.over_limit or self.running > self._requests_max:
                leave = self._admit_bounded(call, route, recipient)
            if recipient.gone and route.served.hands_out:
                reply = NO_ANSWER
            else:
                answer = await route.handle(self._service, arguments)
                if method.returns_many and len(answer) > ITEMS_A_TURN:
                    reply = await step_by_step(encode_reply_in_steps(method, seqid, answer, ITEMS_A_TURN))
                elif method.list_field and len(getattr(answer, method.list_field)) > JOBS_A_TURN:
                    reply = await step_by_step(encode_reply_in_steps(method, seqid, answer, JOBS_A_TURN))
                else:
                    reply = encode_reply(method, seqid, answer)
                if len(reply) > self._answer_bytes_max:
                    self._check_long(len(reply) - LENGTH_BYTES, call, route, answer)
        except PinLaterError as error:
            reply = self._failed(call, route, recipient, error)
            undelivered = True
        except asyncio.CancelledError:
            if (shown := route.served.administrative) is not None:
                self._tell(administrative.interrupted(_administrative(shown, call, route, recipient)))
            raise
        except Exception:
            logger.exception("request failed", extra={"method": method.name})
            self._metrics.count("thrift_internal_errors")
            reply = self._failed(call, route, recipient, unexpected())
            undelivered = True
        else:
            if (shown := route.served.administrative) is not None:
                self._tell(administrative.succeeded(_administrative(shown, call, route, recipient), answer))
            undelivered = recipient.gone or oneway
        finally:
            self.running -= 1
            if leave is not None:
                leave()
        if isinstance(answer, DequeueAnswer):
            if undelivered:
                self.undelivered(answer)
                reply = NO_ANSWER if recipient.gone else reply
            elif answer.claimed and answer.claimed[0].token:  # a dry run shows jobs without one
                recipient.handed_out = answer
        recipient.active_at_s = ended_s = self._monotonic()
        route.metrics.msec.record((ended_s - arrived_s) * 1000)
        if self._debug:
            self._log(call, frame, reply, ended_s - arrived_s)
        return NO_ANSWER if oneway else reply

    def _admit_bounded(self, call: DecodedCall, route: MethodRoute, recipient: Recipient) -> Callable[[], None]:
        """Admits a call that waits, searches or needs much memory, or that comes if there are too many; raises its refusal. Call the
        returned function at its end. A long poll doesn't count as running, and may be cancelled when its caller has gone.
        """
        request: Any = call.arguments.request if route.may_wait_or_cost else None
        waits = route.served.hands_out and bool(request.wait_ms) and not request.dry_run
        token = None if recipient.use is None else recipient.use.token
        if waits and token is not None and self.quotas is not None and not token.takes_poll():
            if request.acks is None:
                raise self.quotas.polls_used_up(token)
            request.wait_ms, waits = WAIT_OVER_QUOTA_MS, False
        if recipient.over_limit or (self.running > self._requests_max and not waits):
            raise self._refusal(recipient)
        cost, reserved = route.served.cost_bytes, 0
        searches = route.served.searches is not None and route.served.searches(call.arguments)
        if waits:
            self.running -= 1
            self.waiting += 1
            if token is not None:
                token.polls += 1
        elif cost is not None and (cost_bytes := cost(self._memory_bounds, call.arguments)):
            reserved = self.budget.reserve_scan(cost_bytes)
            if not reserved:
                self._metrics.count("thrift_requests_refused_for_memory")
                raise TooManyBytes(self.budget.limit_bytes)
        recipient.waiting = waits or searches

        def leave() -> None:
            recipient.waiting = False
            self.budget.free_scan(reserved)
            if waits:
                self.running += 1
                self.waiting -= 1
                if token is not None:
                    token.polls -= 1

        return leave

    def _refused_by_quota(
        self, guard: Guard, call: DecodedCall, route: MethodRoute, recipient: Recipient, frame_bytes: int
    ) -> bytes:
        """The refusal of a call for which the quota of its token has no space; `NO_ANSWER` if it has space."""
        error = None if self.quotas is None else self.quotas.refusal(call, recipient, frame_bytes)
        if error is None:
            return NO_ANSWER
        if route.served.administrative is not None:
            route = replace(route, caller=guard.caller(call))
        recipient.active_at_s = self._monotonic()
        return self._failed(call, route, recipient, error)

    async def _deny(
        self, guard: Guard, call: DecodedCall, route: MethodRoute, recipient: Recipient, error: AccessDenied
    ) -> bytes:
        """The refusal of a caller that may not do this, delayed more the more often its address was refused. It does not count as
        running."""
        recipient.last_request = recipient.over_limit
        delay_s = guard.refused(call, recipient.host, error)
        if delay_s:
            recipient.waiting = True
            try:
                await asyncio.sleep(delay_s)
            finally:
                recipient.waiting = False
        return self._failed(call, route, recipient, error)

    def _refusal(self, recipient: Recipient) -> PinLaterError:
        if recipient.over_limit:
            recipient.last_request = True
            return TooManyConnections()
        return TooManyRequests(self._requests_max)

    def _check_long(self, size_bytes: int, call: DecodedCall, route: MethodRoute, answer: Any) -> None:
        """Raises `AnswerTooLarge` for an answer that is too long, unless it is a single job that fits a frame. It would stay in its queue
        for ever.
        """
        jobs_shown = route.served.jobs_shown
        jobs = () if jobs_shown is None else jobs_shown(answer)
        if size_bytes > self._settings.max_frame_bytes or len(jobs) != 1:
            raise AnswerTooLarge.of(size_bytes, self._settings.answer_bytes_max)
        event = "an answer with a single job is longer than answers may be; many clients can't read it"
        self._warn_of_size(event, call, route, size_bytes, self._settings.answer_bytes_max)

    def _warn_of_size(
        self, event: str, call: DecodedCall, route: MethodRoute, size_bytes: int, limit_bytes: int
    ) -> None:
        queues = route.served.queues(call.arguments)
        about = {
            "method": call.method.name,
            "queue": ", ".join(sorted(queues)[:_QUEUES_SHOWN]),
            "source": call.arguments.context.source,
            "answer_bytes": size_bytes,
            "max_answer_bytes": limit_bytes,
        }
        logger.warning(event, extra=about)

    def _tell(self, change: AdministrativeChange | None) -> None:
        if change is not None:
            self._service.changed(change)

    def undelivered(self, answer: DequeueAnswer) -> None:
        """The kernel did not accept all of this answer: its jobs go back, unspent."""
        self._service.dequeuing.undelivered(answer.queue, answer.claimed)

    def _failed(self, call: DecodedCall, route: MethodRoute, recipient: Recipient, error: PinLaterError) -> bytes:
        route.metrics.error(_counted_as(error))
        if isinstance(error, AnswerTooLarge):
            event = "an answer is too long, so that its caller gets an error"
            self._warn_of_size(event, call, route, error.size_bytes, error.limit_bytes)
        if (shown := route.served.administrative) is not None:
            self._tell(administrative.refused(_administrative(shown, call, route, recipient), error))
        try:
            return encode_exception(call.method, call.seqid, declared_exception(error))
        except WireError:
            logger.exception("an error could not be encoded", extra={"method": call.method.name})
            return encode_exception(call.method, call.seqid, declared_exception(unexpected()))

    def _undecodable(self, error: WireError) -> bytes:
        """Thrift's own exception, with the connection left open, if it is known which call to answer."""
        if error.name is None:
            raise error
        known = error.kind is not ApplicationErrorKind.UNKNOWN_METHOD
        self._metrics.count("thrift_undecodable_requests" if known else "thrift_unknown_methods")
        if error.oneway:
            return NO_ANSWER
        return encode_application_error(error.name, error.seqid, error.kind, error.message)

    def refuse_unread(self, head: bytes, *, pipelined: bool) -> bytes:
        """The answer to a frame of which only the beginning was kept; `NO_ANSWER` if its caller waits for none.

        Raises `WireError` if it is not a call. `pipelined`: too many requests wait on its own connection; otherwise the budget is used up.
        """
        self._metrics.count("thrift_requests_refused_for_memory")
        return self._refuse_head(head, TooManyPipelined() if pipelined else TooManyBytes(self.budget.limit_bytes))

    def refuse_over_quota(self, head: bytes, frame_bytes: int, recipient: Recipient) -> bytes:
        """The same for a frame for which the quota of its token had no space."""
        error = None if self.quotas is None else self.quotas.frame_refused(head, frame_bytes, recipient)
        return self._refuse_head(head, error or TooManyBytes(self.budget.limit_bytes))

    def _refuse_head(self, head: bytes, error: PinLaterError) -> bytes:
        header = self._header(head)
        if header.oneway:
            return NO_ANSWER
        method = WIRE_METHODS.get(header.name)
        if method is None:
            return encode_application_error(
                header.name, header.seqid, ApplicationErrorKind.INTERNAL_ERROR, error.message
            )
        self._routes[method.name].metrics.error(_counted_as(error))
        return encode_exception(method, header.seqid, declared_exception(error))

    def too_long(self, error: FrameTooLong) -> bytes:
        """The error for the caller of a frame beyond the bound; `NO_ANSWER` if it isn't known to be a call."""
        try:
            header = self._header(error.start)
        except WireError:
            return NO_ANSWER
        return encode_application_error(header.name, header.seqid, error.kind, error.message)

    def _log(self, call: DecodedCall, frame: bytes, reply: bytes, seconds: float) -> None:
        context = call.arguments.context
        logger.debug(
            "request",
            extra={
                "method": call.method.name,
                "source": context.source,
                "request_id": context.request_id,
                "request_bytes": len(frame),
                "answer_bytes": len(reply),
                "msec": round(seconds * 1000, 3),
            },
        )


def _counted_as(error: PinLaterError) -> str:
    """The name of the method in metrics."""
    return error.detail if isinstance(error, AccessDenied | QuotaExceeded) else code_of(error).name


def _administrative(
    shown: Administrative, call: DecodedCall, route: MethodRoute, recipient: Recipient
) -> AdministrativeCall:
    return AdministrativeCall(shown, call.method.name, call.arguments, recipient.peer, recipient.host, route.caller)
