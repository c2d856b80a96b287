"""The side that answers, and the listener that has its connections.

Answers wait here while the other side does not read them. Claims in an answer that is lost are given back.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Collection
from typing import Any, Generic, NamedTuple, TypeVar

from pinlater.server.link.messages import GOODBYE, BadMessage, Part, PartAnswer, message_of_answering, parts_of
from pinlater.server.link.side import LinkSide

_LOOK_S = 0.01
_GOODBYE = message_of_answering(GOODBYE)

Claims = TypeVar("Claims")


class Answered(NamedTuple):
    """An answer. `claims`: the claims that it hands out, or None."""

    message: PartAnswer
    size_bytes: int
    claims: Any


class AnsweringSide(LinkSide[Answered], Generic[Claims]):
    """`answers`: how many were written. `unconfirmed`: claims in answers that may not have arrived, each with the number of its answer;
    the subclass decides about them when the connection is over."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(limit_bytes)
        self.answers = 0
        self.unconfirmed: deque[tuple[int, Claims]] = deque()
        self._waiting_bytes = 0  # of answers that are not written

    @property
    def untaken_bytes(self) -> int:
        """The size of the answers that the kernel has not accepted."""
        return self._waiting_bytes + self.unsent_bytes

    def _hear(self, message: bytes) -> None:
        parts = parts_of(message)
        share_bytes = len(message) // max(1, len(parts))
        for part in parts:
            if part.number > 0:
                self._begin(part, share_bytes)
            elif len(parts) == 1:
                self._told(part)
            else:  # each is bounded, and so are all calls in a frame
                raise BadMessage(f"a message of kind {part.number} that has no frame of its own")

    def answer(self, message: PartAnswer, claims: Claims | None = None) -> None:
        """Writes an answer at the end of this turn of the loop, or once the other side reads more."""
        size_bytes = memoryview(message.answers).nbytes
        self._waiting_bytes += size_bytes
        self.say(Answered(message, size_bytes, claims))

    def _part_of(self, one: Answered) -> PartAnswer:
        message, size_bytes, claims = one
        self._waiting_bytes -= size_bytes
        self.answers += 1
        if claims is not None:
            self.unconfirmed.append((self.answers, claims))
        return message

    def _not_written(self, one: Answered) -> None:
        if one.claims is not None:
            self._give_back(one.claims)

    def confirm(self, answers: int) -> None:
        """Notes that the other side has received this number of answers."""
        while self.unconfirmed and self.unconfirmed[0][0] <= answers:
            self.unconfirmed.popleft()

    def give_back_unconfirmed(self) -> None:
        """Gives back the claims in answers that the other side did not receive."""
        while self.unconfirmed:
            self._give_back(self.unconfirmed.popleft()[1])

    def pause_writing(self) -> None:
        self._may_write = False

    def resume_writing(self) -> None:
        self._may_write = True
        self._flush()

    def say_goodbye(self) -> None:
        """This side stops: the other one is to send nothing more."""
        self.tell(_GOODBYE)

    # --- of subclasses ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def _begin(self, part: Part, share_bytes: int) -> None:
        """Executes a call, whose share of its frame is that size."""

    @abstractmethod
    def _told(self, message: Part) -> None:
        """Takes a message of the other side."""

    @abstractmethod
    def _give_back(self, claims: Claims) -> None:
        """Called if the answer with these claims was not written."""


Connection = TypeVar("Connection", bound=AnsweringSide[Any])


class Listener(Generic[Connection]):
    """Listens, and has the connections. `still_runs()`: False if this process stood still, and has closed them."""

    def __init__(self, still_runs: Callable[[], bool]) -> None:
        self.still_runs = still_runs
        self._servers: list[asyncio.Server] = []
        self._connections: dict[Connection, None] = {}

    @property
    def connections(self) -> Collection[Connection]:
        """All connections, oldest first."""
        return self._connections.keys()

    async def open_local(self, path: str) -> None:
        """Listens at the path of a Unix socket, and replaces the socket of a process that was killed. Raises OSError."""
        self._servers.append(await asyncio.get_running_loop().create_unix_server(self._new, path))

    def _new(self) -> Connection:
        """Makes the protocol of a connection over a Unix socket."""
        raise NotImplementedError

    def discard(self, connection: Connection) -> None:
        """Called when the connection is over."""
        self._connections.pop(connection, None)

    async def _until(self, true: Callable[[], bool], seconds: float) -> bool:
        """Returns whether the condition becomes true within this time."""
        try:
            async with asyncio.timeout(seconds):
                while not true():  # noqa: ASYNC110 no event says that the kernel has taken the last bytes
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        """Stops listening, and ends the connections. Calls under way are executed without an answer."""
        self._stop_listening()
        self.abort_connections()

    def _stop_listening(self) -> None:
        for server in self._servers:
            server.close()
        self._servers.clear()

    def abort_connections(self) -> None:
        """Closes all connections without reading their pending input."""
        for connection in list(self._connections):
            connection.abort()
