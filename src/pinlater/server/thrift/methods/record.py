"""The record of one method: everything that this server knows about it. Guard, masks, quotas, tracing and answering read it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from pinlater.domain.body_masks import BodyMasks
from pinlater.domain.caller_names import NamedCaller
from pinlater.server.operations.service import Service
from pinlater.server.telemetry.tracing import Tracing
from pinlater.server.thrift.administrative import Administrative
from pinlater.server.thrift.costs import MemoryBounds
from pinlater.wire.generated.structs import CallerRights

Handler = Callable[[Service, Any], Awaitable[Any]]
"""Executes a call: from its decoded arguments to the answer of the wire. No business logic."""
AnyQueue = Callable[[str], bool]
"""Returns for a queue whether the token allows it."""
AllowedPart = Callable[[AnyQueue, Any], Any]
Mask = Callable[[BodyMasks, Any, Any], Awaitable[None]]
"""Masks an answer: `(masks, call, answer)`."""


class KnownCaller(NamedTuple):
    """The caller, as access control knows it. Handlers of methods that need it get it with the arguments.

    `shown`: the display name of the caller.
    `caller`: the caller, by its names.
    `rights`: the rights that are reported to the caller.
    `may`: whether its roles and its queues allow the call.
    `queues`: returns for a queue whether the token allows it; None if it allows all.
    """

    shown: str
    caller: NamedCaller
    rights: CallerRights
    may: bool
    queues: AnyQueue | None


class Chosen(NamedTuple):
    """The criteria of a call that may refer to masked text."""

    queue: str
    body_regex: str | None
    error_text: str | None = None


def no_queue(call: Any) -> Collection[str]:
    del call
    return ()


def queue_of_call(call: Any) -> Collection[str]:
    return (call.queue,)


def queue_of_request(call: Any) -> Collection[str]:
    return (call.request.queue,)


def queues_of_call(call: Any) -> Collection[str]:
    return call.queues  # type: ignore[no-any-return]


def queues_of_request(call: Any) -> Collection[str]:
    return call.request.queues  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class ServedMethod:
    """A server's record of one method of the protocol. `domain.access` has its roles, since clients ask for them too.

    `name`: its name in the IDL.
    `handle`: executes a call.
    `queues`: the queues that a call names, all of which the token must allow.
    `allowed_part`: the part of an answer that is about these queues, for a token that does not allow all.
    `variant`: the key of `domain.access.VARIANT_ROLES` for a call that needs other roles than the method; else None.
    `proves_itself`: whether a call brings a password, which takes the place of a role.
    `wants_known_caller`: whether the handler gets a `KnownCaller`, as `call.known_caller`.
    `chosen`: the criteria by which a call selects jobs, if these may be masked.
    `mask`: masks the answer to a call.
    `without_texts`: an answer without the texts of databases, which only some roles may see.
    `administrative`: the fields of a call for the log and for listeners to changes; None if it is not administrative.
    `cost_bytes`: how much memory a call may need; None if none is to be reserved.
    `is_report`: whether a worker reports on its jobs; quotas refuse such calls last.
    `hands_out`: whether its answers hand out jobs, which are given back if the answer can't be delivered.
    `searches`: whether a call reads many jobs to find few, or searches bodies: it is ended when its caller has gone.
    `wants_arrival`: whether the handler gets the time when the call arrived, as `call.arrived_s`.
    `jobs_shown`: the jobs of an answer: one with a single job may be longer than others.
    `in_span`: executes a call within a span of a trace.
    """

    name: str
    _: KW_ONLY
    handle: Handler
    queues: Callable[[Any], Collection[str]] = no_queue
    allowed_part: AllowedPart | None = None
    variant: Callable[[Any], str | None] | None = None
    proves_itself: Callable[[Any], bool] | None = None
    wants_known_caller: bool = False
    chosen: Callable[[Any], Chosen] | None = None
    mask: Mask | None = None
    without_texts: Callable[[Any], Any] | None = None
    administrative: Administrative | None = None
    cost_bytes: Callable[[MemoryBounds, Any], int] | None = None
    is_report: bool = False
    hands_out: bool = False
    searches: Callable[[Any], bool] | None = None
    wants_arrival: bool = False
    jobs_shown: Callable[[Any], Collection[Any]] | None = None
    in_span: Callable[[Tracing, Handler, Service, Any], Awaitable[Any]] | None = None

    def needed_for(self, call: Any) -> str:
        """Returns what the caller's roles must allow: the method, or a variant of it."""
        return (self.variant and self.variant(call)) or self.name

    def traced(self, tracing: Tracing) -> ServedMethod:
        """Returns the method with a span around its handler, if it has one and calls are traced: a server without tracing pays nothing."""
        if self.in_span is None or not tracing.enabled:
            return self
        return replace(self, handle=partial(self.in_span, tracing, self.handle))


def known_caller_of(call: Any) -> KnownCaller | None:
    """Returns the caller; None without access control."""
    return getattr(call, "known_caller", None)
