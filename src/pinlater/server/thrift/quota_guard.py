"""Quotas at a listener: refuses calls of callers whose token uses as much of this server as its quota allows.

A call is refused before any part of it is executed, and refusals close no connection that counts for a token. Reports of workers on
their jobs (acks, checkpoints, heartbeats, releases) are accepted longer than other calls, so that no job runs twice because polls and
enqueues of the same token use up the quota.

Weakness: the token of a request is known once its frame, or the beginning of a long one, has arrived. Bytes that a connection holds before
that count for the token of its latest request, or for none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from pinlater.domain.errors import QuotaExceeded
from pinlater.domain.wording import counted
from pinlater.server.access.control import AccessControl
from pinlater.server.access.quotas import TokenUse
from pinlater.server.telemetry.metrics import Metrics
from pinlater.server.thrift.connection_use import ConnectionUse
from pinlater.server.thrift.methods.record import ServedMethod
from pinlater.server.thrift.request_queue import QUEUED_BYTES
from pinlater.wire.codec import DecodedCall, Decoder
from pinlater.wire.context_token import token_of_call
from pinlater.wire.errors import WireError

logger = logging.getLogger(__name__)

CONNECTIONS, POLLS, BYTES = "connections", "polls", "bytes"
_RETRY_AFTER_MS = 1_000
_LOG_EVERY_S = 60.0


class CountedConnection(Protocol):
    """The connection of a call."""

    use: ConnectionUse | None  # None while no quota was checked
    over_limit: bool  # it is refused as a whole, and closed

    def count_for(self, token: TokenUse, own_bytes: int) -> ConnectionUse: ...  # its bytes count for that token

    def end_when_answered(self) -> None: ...  # closes it unless more requests have come


class CallHead(NamedTuple):
    """The content of the beginning of a frame."""

    token: TokenUse
    is_report: bool


class QuotaGuard:
    """Guards the quotas of one listener. `monotonic`: seconds."""

    def __init__(
        self,
        access: AccessControl,
        metrics: Metrics,
        monotonic: Callable[[], float],
        methods: Mapping[str, ServedMethod],
    ) -> None:
        self._access = access
        self._methods = methods
        self._metrics = metrics
        self._monotonic = monotonic
        self._header = Decoder().header

    def refusal(self, call: DecodedCall, connection: CountedConnection, frame_bytes: int) -> QuotaExceeded | None:
        """Why a call is refused; None if it is not, or if access control will refuse its token. Counts its connection."""
        token = self._access.use_of(call.arguments.context.auth_token)
        if token is None or connection.over_limit:
            return None
        request_bytes = frame_bytes + QUEUED_BYTES
        use = connection.use
        if use is None or use.token is not token:
            use = connection.count_for(token, request_bytes)
        if (use.counts_for is not token or use.is_beyond) and not use.takes(
            is_report=self._methods[call.method.name].is_report
        ):
            if use.counts_for is None:
                connection.end_when_answered()
            return self._connections_used_up(token)
        bound = token.quota.bytes_in_flight
        if bound and token.bytes_held > bound:
            return self._refusal_for_bytes(
                token, use, request_bytes, is_report=self._methods[call.method.name].is_report
            )
        return None

    def _refusal_for_bytes(
        self, token: TokenUse, use: ConnectionUse, request_bytes: int, *, is_report: bool
    ) -> QuotaExceeded | None:
        """Requests that wait on the same connection don't count: they are executed after this one."""
        waiting_bytes = use.bytes_held - request_bytes
        if token.takes_bytes(token.bytes_held - waiting_bytes, request_bytes, is_report=is_report):
            return None
        return self.bytes_used_up(token, request_bytes, is_report=is_report)

    # --- long frames ------------------------------------------------------------------------------------------------------
    @property
    def are_set(self) -> bool:
        """Whether there are any quotas."""
        return self._access.has_quotas

    def caller_of(self, head: bytes) -> CallHead | None:
        """The token of the call that begins with these bytes; None if that can't be determined."""
        try:
            header = self._header(head)
        except WireError:
            return None
        secret = token_of_call(head, header.body_at)
        token = None if secret is None else self._access.use_of(secret)
        served = self._methods.get(header.name.decode("latin-1"))
        return None if token is None else CallHead(token, served is not None and served.is_report)

    def frame_refused(self, head: bytes, frame_bytes: int, connection: CountedConnection) -> QuotaExceeded | None:
        """The refusal of a frame of which only the beginning was kept; None if its token has no such quota by now."""
        call = self.caller_of(head)
        if call is None or not call.token.quota.bytes_in_flight:
            return None
        use = connection.count_for(call.token, len(head) + QUEUED_BYTES)
        if not use.takes(is_report=call.is_report) and use.counts_for is None:
            connection.end_when_answered()
        return self.bytes_used_up(call.token, frame_bytes, is_report=call.is_report)

    # --- errors -----------------------------------------------------------------------------------------------------------
    def _connections_used_up(self, token: TokenUse) -> QuotaExceeded:
        error = QuotaExceeded(
            f"{_used_up(token, token.quota.connections, 'connection')} to this server (max_connections)",
            detail="CONNECTION_QUOTA_EXCEEDED",
            retry_after_ms=_RETRY_AFTER_MS,
        )
        return self._refused(token, CONNECTIONS, error)

    def polls_used_up(self, token: TokenUse) -> QuotaExceeded:
        """The refusal of a dequeue that would wait."""
        error = QuotaExceeded(
            f"{_used_up(token, token.quota.polls, 'waiting dequeue')} on this server (max_polls); a dequeue without waitMillis is "
            "possible",
            retry_after_ms=_RETRY_AFTER_MS,
        )
        return self._refused(token, POLLS, error)

    def bytes_used_up(self, token: TokenUse, request_bytes: int, *, is_report: bool) -> QuotaExceeded:
        """The refusal of a request of this size. One that can never fit is not worth a retry."""
        most = token.quota.bytes_in_flight
        if token.takes_bytes(request_bytes, request_bytes, is_report=is_report):
            error = QuotaExceeded(
                f"{_used_up(token, most, 'byte')} in flight on this server (max_bytes_in_flight): with this request, those of requests "
                "and of answers that clients have not read would be more",
                retry_after_ms=_RETRY_AFTER_MS,
            )
        else:
            error = QuotaExceeded(
                f"{_callers(token)} may have {counted(most, 'byte')} in flight on this server (max_bytes_in_flight); this request of "
                f"{counted(request_bytes, 'byte')} never fits",
                retryable=False,
            )
        return self._refused(token, BYTES, error)

    def _refused(self, token: TokenUse, what: str, error: QuotaExceeded) -> QuotaExceeded:
        """Counts a refusal, and logs the first one, then at most one a minute per token."""
        self._metrics.count(f"quota_refused_{what}")
        token.refusals += 1
        token.unlogged += 1
        now_s = self._monotonic()
        if token.logged_s is None or now_s - token.logged_s >= _LOG_EVERY_S:
            logger.warning("quota exceeded: %s", error.message, extra={"refusals": token.unlogged})
            token.logged_s, token.unlogged = now_s, 0
        return error


def _callers(token: TokenUse) -> str:
    return f"Callers with token {token.name}" if token.name else "Callers without a token"


def _used_up(token: TokenUse, bound: int, what: str) -> str:
    return f"{_callers(token)} have used up their quota of {counted(bound, what)}"
