"""One side of a connection: all that it sends in a turn of the event loop goes out in one frame, or in several if that is much."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from typing import Generic, Protocol, TypeVar, cast

from pinlater.server.link.messages import BadMessage, Frames, frame

# Bytes of parts in one frame, above which others go into the next one.
FRAME_BYTES = 4 * 1024 * 1024
# A frame with more than 65,535 parts is refused.
_PARTS_MAX = 50_000


class Sized(Protocol):
    """A call or an answer. `size_bytes`: of its part, once that is made."""

    @property
    def size_bytes(self) -> int: ...


Said = TypeVar("Said", bound=Sized)


class LinkSide(asyncio.Protocol, Generic[Said], ABC):
    """Writes calls or answers, and splits the input into frames of at most `limit_bytes`."""

    def __init__(self, limit_bytes: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._frames = Frames(limit_bytes)
        self._transport: asyncio.Transport | None = None
        self._said: deque[Said] = deque()  # and not written
        self._is_flush_due = False
        self._may_write = True  # the kernel accepts the written data, since the other side reads it
        self.frames = 0
        self.written_bytes = 0

    def say(self, one: Said) -> None:
        """Writes it at the end of this turn of the loop, or once the other side reads more."""
        self._said.append(one)
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def tell(self, message: tuple[object, ...]) -> None:
        """Writes a message now."""
        self._write(frame((message,)))

    def _flush(self) -> None:
        self._is_flush_due = False
        if self._transport is None or self._transport.is_closing():
            self._drop()
            return
        said = self._said
        while said and self._may_write:
            parts: list[object] = []
            size_bytes = 0
            while said and size_bytes < FRAME_BYTES and len(parts) < _PARTS_MAX:
                one = said.popleft()
                part = self._part_of(one)
                if part is not None:
                    parts.append(part)
                    size_bytes += one.size_bytes
            if parts:
                self._write(frame(parts))

    def _drop(self) -> None:
        said, self._said = self._said, deque()
        for one in said:
            self._not_written(one)

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self.frames += 1
            self.written_bytes += len(data)
            self._transport.write(data)

    @property
    def unsent_bytes(self) -> int:
        """Returns how much of the written data the kernel has not accepted."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    # --- life ---------------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._frames.feed(data, self._hear)
        except BadMessage as error:
            self._refuse(error)
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._transport = None
        self._drop()

    def close(self) -> None:
        """Closes the connection once all messages are written."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Ends it at once, without reading its pending input."""
        if self._transport is not None:
            self._transport.abort()

    # --- of subclasses ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def _part_of(self, one: Said) -> tuple[object, ...] | None:
        """Returns the part to write, which counts as written from then on, or None."""

    @abstractmethod
    def _not_written(self, one: Said) -> None:
        """Called when the connection is over, and this was not written."""

    @abstractmethod
    def _hear(self, message: bytes) -> None:
        """Takes a frame of the other side. Raises `BadMessage`."""

    @abstractmethod
    def _refuse(self, error: BadMessage) -> None:
        """Logs why the connection is closed."""
