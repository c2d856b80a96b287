"""Settings of the Thrift listener. Units are in the names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from pinlater.domain.request_keys import BEGUN_WITHIN_MS
from pinlater.wire.limits import ANSWER_BYTES_MAX, FRAME_BYTES_MAX, WireLimits


@dataclass(frozen=True, slots=True)
class ThriftSettings:
    """Where to listen, and the bounds of connections and requests.

    `max_concurrent_requests` counts requests under way, long polls excepted (the service has a bound of its own for them).
    `max_body_bytes` (of jobs) is used to estimate what a scan needs.
    `max_connections_refused` more connections than `max_connections` are let in, only to be told so at their first call.
    """

    host: str = "127.0.0.1"
    """Address that Thrift listens on."""
    port: int = 9010
    """Port of Thrift; 0 takes any free one."""
    backlog: Annotated[int, Meta(le=2**31 - 1)] = 1024  # an int of C
    """Connections that the kernel keeps waiting to be accepted."""
    max_connections: int = 20_000
    """Most open connections."""
    max_connections_refused: int = 256
    """How many more are let in only to be told so at their first call."""
    max_concurrent_requests: int = 5_000
    """Most requests under way at once, long polls excepted."""
    max_frame_bytes: Annotated[int, Meta(ge=1024, le=2**31 - 1)] = FRAME_BYTES_MAX
    """Longest request, also longest answer if that is less than max_answer_bytes. A longer request is refused and its connection
    closed."""
    max_answer_bytes: Annotated[int, Meta(ge=1024, le=2**31 - 1)] = ANSWER_BYTES_MAX
    """Longest answer, unless it shows a single job: dequeues and scans stop there, other calls are refused. Libraries of Apache Thrift
    take 16,384,000 bytes by default."""
    max_body_bytes: int = 1024 * 1024
    max_container_items: int = 100_000
    """Most items of one list or map in a request."""
    idle_timeout_s: Annotated[float, Meta(ge=0.1)] = 300.0  # 0 would cut every connection at once
    """How long a connection may say nothing; a waiting dequeue is not idle."""
    # A connection whose requests wait unread behind the one under way is not read from beyond these.
    max_pipelined_requests: int = 128
    """Requests of one connection that wait behind the one under way before reading from it pauses."""
    max_pipelined_bytes: int = 1024 * 1024
    """The same in bytes."""
    max_buffered_bytes: int = 256 * 1024 * 1024
    """Bytes in flight on the server: requests that are not answered yet, answers that are not sent yet, scans under way. Beyond it
    requests are refused (TOO_MANY_WAITING); a quarter more is kept for small requests."""
    # Answers of one connection that are collected before they are written. While the kernel doesn't take all of them,
    # because the client doesn't read, no further request of the connection is answered.
    write_buffer_high_bytes: int = 1024 * 1024
    """Answers of one connection that are collected before they are written."""
    write_stall_timeout_s: Annotated[float, Meta(ge=0.1)] = 30.0
    """How long a client may read nothing of answers that wait for it before it is cut."""
    standstill_s: Annotated[float, Meta(ge=0.1, le=BEGUN_WITHIN_MS / 1000)] = 20.0
    """A server that did not run for this long (it was stopped, or its event loop was blocked) closes its connections unread."""

    @property
    def answer_bytes_max(self) -> int:
        """How long an answer with more than one item may be."""
        return min(self.max_answer_bytes, self.max_frame_bytes)

    @property
    def wire_limits(self) -> WireLimits:
        """The decoder's bounds."""
        return WireLimits(self.max_frame_bytes, self.max_container_items)
