"""Splits a stream of bytes into frames: four bytes of length, then the message.

Knows no sockets. Reserves no memory because of a length alone, and copies each byte at most twice however the stream is split. Must never
accept a length beyond the bound, or a negative one: that stream has no next frame and is lost.
"""

from __future__ import annotations

from struct import Struct

from pinlater.wire.errors import WireError

LENGTH_BYTES = 4
read_length = Struct(">i").unpack_from


class BadLength(WireError):
    """A length that no frame can have. `received`: the bytes so far, from the length on, so that the error for the sender can depend on
    them."""

    def __init__(self, message: str, received: bytes) -> None:
        super().__init__(message)
        self.received = received


class FrameTooLong(BadLength):
    """A frame beyond the bound."""

    def __init__(self, size: int, limit: int, received: bytes) -> None:
        super().__init__(
            f"a frame of {size} bytes; this side takes at most {limit} (setting max_frame_bytes)", received
        )
        self.size = size

    @property
    def start(self) -> bytes:
        """The received part of the frame, without its length."""
        return self.received[LENGTH_BYTES:]


class FrameSplitter:
    """The frames of one direction of a connection. `partial`: the received bytes of an incomplete frame; code outside must not change
    it."""

    __slots__ = ("_max_frame_bytes", "_skipping_bytes", "partial")

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self.partial = bytearray()
        self._skipping_bytes = 0

    @property
    def buffered(self) -> bytes:
        """The bytes of an incomplete frame."""
        return bytes(self.partial)

    @property
    def partial_size(self) -> int:
        """How long the frame will be that isn't whole yet, without its length. At least its length must have come."""
        size: int = read_length(self.partial)[0]
        return size

    def head(self, head_bytes: int) -> bytes:
        """The first bytes of the incomplete frame, without its length."""
        return bytes(self.partial[LENGTH_BYTES : LENGTH_BYTES + head_bytes])

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that `data` completes, in order. Raises `WireError` (fatal) at an invalid length.

        Frames before the bad length, of this call, are lost with it; `take_while_good` keeps them.
        """
        frames, error = self.take_while_good(data)
        if error is not None:
            raise error
        return frames

    def take_while_good(self, data: bytes) -> tuple[list[bytes], WireError | None]:
        """Does the same as `feed`, but returns the complete frames before a bad length together with the error. Do not feed it after an
        error.
        """
        if self._skipping_bytes:
            skipped = min(self._skipping_bytes, len(data))
            self._skipping_bytes -= skipped
            data = data[skipped:]
        if not self.partial:
            if LENGTH_BYTES < len(data) <= self._max_frame_bytes and read_length(data)[0] == len(data) - LENGTH_BYTES:
                return [data[LENGTH_BYTES:]], None  # mostly one whole frame comes at a time
            frames, used, error = self._cut(data)
            if used < len(data):
                self.partial += memoryview(data)[used:]
            return frames, error
        self.partial += data
        if len(self.partial) < self._wanted():
            return [], None
        whole = bytes(self.partial)
        frames, used, error = self._cut(whole)
        del self.partial[:used]
        return frames, error

    def skip(self, head_bytes: int) -> bytes:
        """Drops the incomplete frame, including the rest that is still to arrive; returns its first bytes.

        At least its length must have arrived (`LENGTH_BYTES` of `partial`).
        """
        head = self.head(head_bytes)
        self._skipping_bytes = LENGTH_BYTES + self.partial_size - len(self.partial)
        self.partial = bytearray()
        return head

    def _wanted(self) -> int:
        """Returns how many bytes are needed to continue: the whole first frame, or its length."""
        partial = self.partial
        if len(partial) < LENGTH_BYTES:
            return LENGTH_BYTES
        size: int = read_length(partial)[0]
        return LENGTH_BYTES + size if 0 <= size <= self._max_frame_bytes else 0

    def _cut(self, data: bytes) -> tuple[list[bytes], int, WireError | None]:
        """Frames in `data`, how many bytes they took, and what stopped it."""
        frames: list[bytes] = []
        at, end = 0, len(data)
        while end - at >= LENGTH_BYTES:
            size: int = read_length(data, at)[0]
            if size < 0:
                return frames, at, BadLength(f"a frame of {size} bytes", data[at:])
            if size > self._max_frame_bytes:
                return frames, at, FrameTooLong(size, self._max_frame_bytes, data[at:])
            start = at + LENGTH_BYTES
            if end - start < size:
                break
            at = start + size
            frames.append(data[start:at])
        return frames, at, None
