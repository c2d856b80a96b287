"""Cuts what another server sends into messages."""

from __future__ import annotations

from collections.abc import Iterator

from pinlater.server.cluster.forwarding.messages import LENGTH_BYTES, BadMessage


class Frames:
    """One direction of one connection. A message has at most `limit_bytes`, which may change between two messages of one read."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._partial = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The messages that `data` completes, cut one by one. Raises `BadMessage` at a length beyond the limit."""
        partial = self._partial
        partial += data
        at, end = 0, len(partial)
        try:
            while end - at >= LENGTH_BYTES:
                size = int.from_bytes(partial[at : at + LENGTH_BYTES], "big")
                if size > self.limit_bytes:
                    raise BadMessage(f"a message of {size} bytes; at most {self.limit_bytes} are taken")
                start = at + LENGTH_BYTES
                if end - start < size:
                    break
                at = start + size
                with memoryview(partial) as view:
                    message = bytes(view[start:at])
                yield message
        finally:
            del partial[:at]  # once for all messages: what follows is moved
