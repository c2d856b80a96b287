"""The Thrift port of several processes: chosen once, and reserved for them while none of them listens.

Each process listens on a socket of its own with SO_REUSEPORT, and the kernel distributes new connections among those that listen. The
sockets here are bound and never listen, so no connection goes to them. Any process of the same user could join a shared port; to keep a
second server out, the code first checks whether it can have the port alone.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def reserved(host: str, port: int) -> Iterator[int]:
    """The port, which is `port` unless that is 0. Raises OSError if it is taken, or the host is unknown."""
    with contextlib.ExitStack() as stack:
        for family, kind, protocol, _, address in _addresses(host, port):
            where = (address[0], port, *address[2:])
            if port:
                with _bound(family, kind, protocol, where, shared=False):
                    pass
            one = stack.enter_context(_bound(family, kind, protocol, where, shared=True))
            port = port or one.getsockname()[1]
        yield port


def _addresses(host: str, port: int) -> list[tuple[int, int, int, str, tuple[str | int, ...]]]:
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys(found))  # type: ignore[arg-type] # a tuple each


def _bound(family: int, kind: int, protocol: int, where: tuple[str | int, ...], *, shared: bool) -> socket.socket:
    one = socket.socket(family, kind, protocol)
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.bind(where)
    except BaseException:
        one.close()
        raise
    return one
