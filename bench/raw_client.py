"""A blocking connection that sends frames and reads replies: for setting up, for long polls, and for the fault harness."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from types import TracebackType

from bench import frames


class RawClient:
    """One connection. A time-out or a broken connection raises `OSError`; a refusal raises `frames.Refused`."""

    def __init__(self, port: int, *, host: str = "127.0.0.1", timeout_seconds: float = 60.0) -> None:
        self.socket = socket.create_connection((host, port), timeout=timeout_seconds)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection; may be called twice."""
        self.socket.close()

    def send(self, frame: bytes) -> None:
        """Sends without reading the answer."""
        self.socket.sendall(frame)

    def receive(self) -> bytes:
        """The next whole reply frame, length included."""
        head = self._exactly(4)
        return head + self._exactly(int.from_bytes(head, "big"))

    def _exactly(self, size: int) -> bytes:
        parts = []
        while size:
            part = self.socket.recv(min(size, 1 << 20))
            if not part:
                raise ConnectionResetError("the server closed the connection")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def call(self, frame: bytes) -> bytes:
        """Sends and returns the reply, if it is no error."""
        self.send(frame)
        reply = self.receive()
        frames.result_at(reply)
        return reply

    def create_queue(self, queue: str, partitions: int = 1) -> None:
        """Makes the queue, or finds it made."""
        self.call(frames.create_queue(queue))
        if partitions > 1:
            self.call(frames.divide_queue(queue, partitions))

    def enqueue_many(
        self, queue: str, body: bytes, count: int, *, jobs_per_request: int = 500, ordered: bool = False
    ) -> None:
        """Enqueues `count` equal jobs, four requests in flight. `ordered`: with ordering keys."""
        sizes = [jobs_per_request] * (count // jobs_per_request) + [count % jobs_per_request or jobs_per_request]
        sizes = sizes if count % jobs_per_request else sizes[:-1]
        made: dict[int, bytes] = {}
        keyed = {size: frames.OrderedEnqueue(queue, [body] * size) for size in set(sizes) if ordered}
        for number, size in enumerate(sizes):
            if size not in made:
                made[size] = frames.enqueue(queue, [body] * size)
            self.send(keyed[size].frame() if ordered else made[size])
            if number >= 3:
                frames.result_at(self.receive())
        for _ in range(min(3, len(sizes))):
            frames.result_at(self.receive())

    def claim(self, queue: str, limit: int, *, wait_ms: int | None = None) -> list[frames.Claimed]:
        """Claims jobs."""
        return frames.claimed_jobs(self.call(frames.dequeue(queue, limit, wait_ms=wait_ms)))

    def ack(self, queue: str, descriptors: Sequence[bytes]) -> None:
        """Acks them as succeeded."""
        self.call(frames.AckMaker(queue).frame(descriptors))
