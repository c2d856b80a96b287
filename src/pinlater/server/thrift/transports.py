"""The operations of a transport that a connection uses. None stands for the transport of a connection that is gone."""

from __future__ import annotations

import asyncio
import select
import socket

KEEPALIVE_IDLE_S = 60


def keep_alive(transport: asyncio.Transport) -> None:
    """Makes the kernel ask a silent peer whether it is still there."""
    peer: socket.socket | None = transport.get_extra_info("socket")
    if peer is not None:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S)


def descriptor_of(transport: asyncio.Transport | None) -> int:
    """The socket's descriptor; -1 if it is closed."""
    if transport is None or transport.is_closing():
        return -1
    peer: socket.socket | None = transport.get_extra_info("socket")
    return -1 if peer is None else peer.fileno()


def peer_has_left(transport: asyncio.Transport | None) -> bool:
    """Whether the peer has closed or reset the connection, though none of that has been read."""
    descriptor = descriptor_of(transport)
    if descriptor < 0:
        return True
    poll = select.poll()
    poll.register(descriptor, select.POLLRDHUP)
    return bool(poll.poll(0))


def stop_reading(transport: asyncio.Transport | None) -> None:
    """May be called twice."""
    if transport is not None and transport.is_reading():
        transport.pause_reading()


def start_reading(transport: asyncio.Transport | None) -> None:
    """May be called twice; does nothing on a transport that is closing."""
    if transport is not None and not transport.is_closing() and not transport.is_reading():
        transport.resume_reading()
