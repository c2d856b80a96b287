"""Whether a call may be executed: checks its method and its queues against the rights of the caller's token, before any operation sees it.

A caller whose token is for some queues sees only these in lists. Acks, cancels and the like name their queue, and the operations ignore
descriptors of other queues; only lookupJobs names no queue, so each of its descriptors is checked. Bodies that the caller's roles may not
see are masked in its answers (`masking`).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from pinlater.domain.access import FAILURE_TEXTS
from pinlater.domain.body_masks import BodyMasks
from pinlater.domain.caller_address import shown_address
from pinlater.domain.caller_names import NO_TOKEN, UNKNOWN_TOKEN, NamedCaller
from pinlater.domain.errors import AccessDenied, BodiesMasked
from pinlater.server.access.control import AccessControl, Grant
from pinlater.server.dispatch.identity import SOURCE_CHARS_MAX
from pinlater.server.operations.service import Service
from pinlater.server.thrift.methods.callers import named_source
from pinlater.server.thrift.methods.record import (
    AllowedPart,
    AnyQueue,
    Chosen,
    Handler,
    KnownCaller,
    Mask,
    ServedMethod,
)
from pinlater.wire.codec import DecodedCall

logger = logging.getLogger(__name__)
Change = Callable[[Any, Any], Awaitable[Any]]
"""Converts an answer to the one that the caller sees: `(call, answer)`."""


class Guard:
    """Guards the calls of one listener."""

    def __init__(self, access: AccessControl) -> None:
        self.access = access

    def admit(self, call: DecodedCall, served: ServedMethod, handle: Handler) -> Handler:
        """Returns the function that executes the call: `handle`, or, for a caller that may see less of the answer, another handler.

        Raises AccessDenied.
        """
        name, arguments = served.name, call.arguments
        grant = self.access.grant_of(arguments.context.auth_token)
        user = arguments.context.on_behalf_of
        who = grant.who(user) if user else grant.name
        needed = served.needed_for(arguments)
        proven = served.proves_itself is not None and served.proves_itself(arguments)
        if needed not in grant.allowed and not proven:
            grant.check_roles(needed)
        if not grant.all_queues and not proven:
            grant.check_queues(name, served.queues(arguments))
        if served.wants_known_caller:
            arguments.known_caller = self._known_caller(call, served, grant, who)
        masks = grant.masks
        if masks is not None and served.chosen is not None and (refusal := _refusal(masks, served.chosen(arguments))):
            return _refusing(refusal)
        changes: list[Change] = []
        if masks is not None and served.mask is not None:
            changes.append(partial(_masked, served.mask, masks))
        if served.without_texts is not None and FAILURE_TEXTS not in grant.allowed:
            changes.append(partial(_without_texts, served.without_texts))
        if served.allowed_part is not None and not grant.all_queues:
            changes.append(partial(_allowed_part, served.allowed_part, grant.has_queue))
        return _changed(handle, changes) if changes else handle

    def _known_caller(self, call: DecodedCall, served: ServedMethod, grant: Grant, who: str) -> KnownCaller:
        may = served.name in grant.allowed and all(map(grant.has_queue, served.queues(call.arguments)))
        queues = None if grant.all_queues else grant.has_queue
        return KnownCaller(self._shown(call, grant, who), self.caller(call), grant.rights, may, queues)

    def _shown(self, call: DecodedCall, grant: Grant, who: str) -> str:
        """How a caller is displayed. The part in brackets at the end is proven; a source is only what callers call themselves."""
        context = call.arguments.context
        if grant.name:
            return _with_proof(context.source, f" (token {who})")
        return _with_proof(named_source(context), f" ({NO_TOKEN})" if self.access.has_tokens else "")

    def caller(self, call: DecodedCall) -> NamedCaller:
        context = call.arguments.context
        try:
            grant = self.access.grant_of(context.auth_token)
        except AccessDenied:
            return NamedCaller(UNKNOWN_TOKEN)
        roles = tuple(role.value for role in grant.roles)
        try:
            return NamedCaller(grant.who(context.on_behalf_of), roles)
        except AccessDenied:  # the user in the call is not a valid name
            return NamedCaller(grant.name, roles)

    def refused(self, call: DecodedCall, host: str, error: AccessDenied) -> float:
        """Notes a refusal; returns after how many seconds to answer it.

        Callers without a good token are counted by address, each good token at an address separately: all callers of a console have its
        address, and guesses must not delay the refusals of others.
        """
        use = self.access.use_of(call.arguments.context.auth_token)
        refusal = self.access.refusals.one(f"{host} token {use.name}" if use is not None and use.name else host)
        if refusal.log:
            logger.warning(
                "access refused: %s",
                error.message,
                extra={
                    "method": call.method.name,
                    "detail": error.detail,
                    "host": shown_address(call.arguments.context.caller_address or "", host),
                    "source": call.arguments.context.source,
                    "refusals": refusal.log,
                },
            )
        return refusal.delay_s


def _with_proof(source: str, proof: str) -> str:
    """A long source is truncated, so that it can't displace the name of the token."""
    return source[: SOURCE_CHARS_MAX - len(proof)] + proof


def _refusal(masks: BodyMasks, chosen: Chosen) -> BodiesMasked | None:
    """A caller that may choose jobs by hidden text could find a body letter by letter."""
    mask = masks.of(chosen.queue)
    if chosen.body_regex and mask.hides:
        return BodiesMasked.of(chosen.queue)
    if chosen.error_text and mask.texts:
        return BodiesMasked.of(chosen.queue, "Errors", "text")
    return None


def _refusing(refusal: BodiesMasked) -> Handler:
    """The refusal is an error of the call, not a denial that slows the caller down."""

    async def refuse(service: Service, call: Any) -> Any:
        del service, call
        raise refusal

    return refuse


def _changed(handle: Handler, changes: Sequence[Change]) -> Handler:
    async def answer(service: Service, call: Any) -> Any:
        found = await handle(service, call)
        for change in changes:
            found = await change(call, found)
        return found

    return answer


async def _masked(mask: Mask, masks: BodyMasks, call: Any, found: Any) -> Any:
    await mask(masks, call, found)
    return found


async def _without_texts(reduced: Callable[[Any], Any], call: Any, found: Any) -> Any:
    del call
    return reduced(found)


async def _allowed_part(allowed: AllowedPart, has_queue: AnyQueue, call: Any, found: Any) -> Any:
    del call
    return allowed(has_queue, found)
