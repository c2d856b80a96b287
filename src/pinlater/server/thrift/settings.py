"""Settings of the Thrift listener. Units are in the names."""

from __future__ import annotations

from dataclasses import dataclass

from pinlater.wire.limits import ANSWER_BYTES_MAX, FRAME_BYTES_MAX, WireLimits


@dataclass(frozen=True, slots=True)
class ThriftSettings:
    """Where to listen, and the bounds of connections and requests.

    `max_concurrent_requests` counts requests under way, long polls excepted (the service has a bound of its own for them).
    `max_body_bytes` (of jobs) is used to estimate what a scan needs.
    `max_connections_refused` more connections than `max_connections` are let in, only to be told so at their first call.
    """

    host: str = "127.0.0.1"
    port: int = 9010
    backlog: int = 1024
    max_connections: int = 20_000
    max_connections_refused: int = 256
    max_concurrent_requests: int = 5_000
    max_frame_bytes: int = FRAME_BYTES_MAX
    max_answer_bytes: int = ANSWER_BYTES_MAX
    max_body_bytes: int = 1024 * 1024
    max_container_items: int = 100_000
    idle_timeout_s: float = 300.0
    # A connection whose requests wait unread behind the one under way is not read from beyond these.
    max_pipelined_requests: int = 128
    max_pipelined_bytes: int = 1024 * 1024
    # Bytes in flight on the server: requests that are not answered yet, answers that are not sent yet, scans under way.
    # Beyond it requests are refused (TOO_MANY_WAITING); a quarter more is kept for small requests.
    max_buffered_bytes: int = 256 * 1024 * 1024
    # Answers of one connection that are collected before they are written. While the kernel doesn't take all of them,
    # because the client doesn't read, no further request of the connection is answered.
    write_buffer_high_bytes: int = 1024 * 1024
    write_stall_timeout_s: float = 30.0
    # A server that did not run for this long (it was stopped, or its event loop was blocked) closes its connections unread.
    standstill_s: float = 20.0

    @property
    def answer_bytes_max(self) -> int:
        """How long an answer with more than one item may be."""
        return min(self.max_answer_bytes, self.max_frame_bytes)

    @property
    def wire_limits(self) -> WireLimits:
        """The decoder's bounds."""
        return WireLimits(self.max_frame_bytes, self.max_container_items)
