"""Calls in the caller's own thread, over blocking connections: how a sync client makes all calls but long polls.

Makes one try of one call; the engine handles a failure. Must never hand an answer to the wrong call: a connection on which a
call was given up is closed. Weakness: threads that call at the same time hold a connection each; beyond a bound they are sent to
the engine, whose connections they share.
"""

from __future__ import annotations

import select
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from pinlater.client import _connection
from pinlater.client._client_call import ClientCall
from pinlater.client._connection import unreachable
from pinlater.client._engine import Engine
from pinlater.client._servers import ServerAddress
from pinlater.client._thrift import AnswerDecoder, FrameReader, WireError, context_of, error_in, types, wrong_argument
from pinlater.client._tls import TlsSource
from pinlater.client.errors import ClientClosed, ConnectionLost, PinLaterError, ServerUnreachable
from pinlater.tls.reasons import is_refusal
from pinlater.wire.codec import encode_call
from pinlater.wire.framing import LENGTH_BYTES, read_length

T = TypeVar("T")
_CONNECTIONS_MAX = 64
_IDLE_MAX = 64
# An owner has answered before, so a connection to it is quick or not worth the time.
_OWNER_CONNECT_S = 1.0
_READ_BYTES = 65_536
_SEQUENCE_MAX = 2**31 - 1
# No time left still asks the socket once: zero would mean not to wait at all.
_SHORTEST_S = 0.001


class Dial:
    """How connections are made."""

    __slots__ = ("max_frame_bytes", "timeout_s", "tls")

    def __init__(self, timeout_s: float, max_frame_bytes: int, tls: TlsSource | None = None) -> None:
        self.timeout_s, self.max_frame_bytes, self.tls = timeout_s, max_frame_bytes, tls


class DirectConnection:
    """A connection, for one call at a time."""

    __slots__ = (
        "_decoder",
        "_frames",
        "_quiet",
        "_sequence",
        "_socket",
        "_tls",
        "address",
        "leave_at",
        "renewals",
    )

    def __init__(self, address: ServerAddress, dial: Dial, until: float) -> None:
        """Raises ServerUnreachable."""
        _connection.check_allowed(address)
        self.address = address
        self.leave_at = 0.0
        self.renewals = 0
        timeout_s = max(_SHORTEST_S, min(dial.timeout_s, until - time.monotonic()))
        try:
            self._socket = socket.create_connection(address, timeout_s)
        except (OSError, UnicodeError) as error:
            raise unreachable(address, error, timeout_s) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._tls = dial.tls
        if self._tls is not None:
            self._socket = _with_tls(self._socket, self._tls, address, timeout_s)
        self._frames = FrameReader(dial.max_frame_bytes)
        self._decoder = AnswerDecoder(dial.max_frame_bytes)
        self._sequence = 0
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        self._quiet = poll.poll

    def usable(self) -> bool:
        """Whether nothing has come since the last answer: the connection's end, above all."""
        return not self._quiet(0) or (self._tls is not None and self._nothing_decrypted())

    def _nothing_decrypted(self) -> bool:
        """Whether what has come is for the TLS layer alone, such as new keys."""
        self._socket.settimeout(0)
        try:
            self._socket.recv(1)
        except ssl.SSLWantReadError:
            return True
        except OSError:
            return False
        return False  # an answer that no call waits for, or the connection's end

    def ask(
        self,
        method: str,
        context: types.RequestContext,
        args: tuple[Any, ...],
        until: float,
        meanwhile: Callable[[], None] | None,
    ) -> Any:
        """The answer, an exception if that is what came. Raises ConnectionLost, and TimeoutError at `until`.

        `meanwhile` is called once the request is sent.
        """
        sequence = self._sequence = self._sequence % _SEQUENCE_MAX + 1
        try:
            frame = encode_call(method, sequence, context, *args)
        except WireError as error:
            raise wrong_argument(method, args, error) from None
        connection, monotonic = self._socket, time.monotonic
        try:
            connection.settimeout(max(_SHORTEST_S, until - monotonic()))
            connection.sendall(frame)
            if meanwhile is not None:
                meanwhile()
            connection.settimeout(max(_SHORTEST_S, until - monotonic()))
            data = connection.recv(_READ_BYTES)
            # Mostly it comes as a whole.
            is_whole = len(data) > LENGTH_BYTES and read_length(data)[0] == len(data) - LENGTH_BYTES
            whole = data[LENGTH_BYTES:] if is_whole and not self._frames.partial else self._rest_of(data, until)
            reply = self._decoder.reply(whole)
            if reply.seqid != sequence:
                raise WireError(f"answer {reply.seqid} came where {sequence} was due")
            if reply.exception is None and reply.application_error is None:
                return reply.value
            return error_in(reply, method)
        except TimeoutError:
            raise
        except (OSError, WireError) as error:
            if self._tls is not None and is_refusal(error):  # so the call was not executed
                raise self._tls.unreachable(self.address, error) from error
            raise ConnectionLost(f"Connection to {self.address} lost before the answer came") from error

    def _rest_of(self, data: bytes, until: float) -> bytes:
        """The answer that begins with `data`."""
        while data:
            answers = self._frames.feed(data)
            if len(answers) > 1:
                raise WireError("an answer came that no call asked for")
            if answers:
                return answers[0]
            self._socket.settimeout(max(_SHORTEST_S, until - time.monotonic()))
            data = self._socket.recv(_READ_BYTES)
        raise ConnectionResetError("closed by the server")

    def hang_up(self) -> None:
        """Ends the call under way with ConnectionLost. From another thread."""
        try:
            socket.socket.shutdown(
                self._socket, socket.SHUT_RDWR
            )  # that of TLS would take the keys from the other thread
        except OSError:
            return  # it is closed already

    def close(self) -> None:
        self._socket.close()


def _with_tls(plain: socket.socket, tls: TlsSource, address: ServerAddress, timeout_s: float) -> socket.socket:
    """The same connection after the handshake. Raises ServerUnreachable, having closed it."""
    side = tls.side(address)
    try:
        return side.context.wrap_socket(plain, server_hostname=side.server_name)
    except TimeoutError as error:
        plain.close()
        raise unreachable(address, TimeoutError(), timeout_s) from error
    except (OSError, ValueError) as error:
        plain.close()
        raise tls.unreachable(address, error) from error


class AllTaken(Exception):
    """Every connection that there may be is taken by another thread's call."""


class Direct:
    """The connections of one client. Everything may be called from any thread."""

    def __init__(self, engine: Engine, dial: Dial) -> None:
        self._engine = engine
        self._servers = engine.servers
        self._dial = dial
        token = engine.token()
        self._context = token, context_of(engine.name, token)
        self._lock = threading.RLock()  # a signal's handler may make calls of its own
        self._idle: list[DirectConnection] = []
        self._open: set[DirectConnection] = set()
        self._taken = 0
        self._made = 0
        self._renewals = 0
        self._closed = False

    def once(self, call: ClientCall[T], until: float, meanwhile: Callable[[], None] | None = None) -> T:
        """The call's value. Raises what the server said, ServerUnreachable, ConnectionLost, DeadlineExceeded, and AllTaken.

        `meanwhile` is called once the request is sent, while the server works on it.
        """
        engine = self._engine
        line = self._take(until, None if engine.owners is None else engine.owners.route(call))
        good = False
        try:
            token, context = self._context
            if (now := engine.token()) is not token:
                context = context_of(engine.name, now)
                self._context = now, context
            answer = line.ask(call.method, context, call.args, until, meanwhile)
            good = True
            if isinstance(answer, Exception):
                raise answer
            if line.address in self._servers.failures:
                self._servers.worked(line.address)
            return call.read(answer)
        except TimeoutError as error:
            raise engine.no_answer(call, line.address) from error
        except PinLaterError as error:
            explained, good = engine.after_failure(call, line.address, error)
            if explained is not error:
                raise explained from None
            raise
        finally:
            self._give_back(line, good=good)

    def _take(self, until: float, owner: ServerAddress | None) -> DirectConnection:
        engine = self._engine
        with self._lock:
            if self._taken >= _CONNECTIONS_MAX:
                raise AllTaken
            self._taken += 1
        try:
            while True:
                with self._lock:
                    idle = self._idle
                    line = self._take_idle(owner) if owner is not None else idle.pop() if idle else None
                if line is None and owner is not None:
                    line, owner = self._connect_to_owner(owner, until), None
                    if line is not None:
                        return line
                    continue
                if line is None:
                    return self._connect(until)
                is_current = line.renewals == self._renewals and engine.monotonic() < line.leave_at
                if is_current and (engine.is_fixed or self._is_known(line.address)) and line.usable():
                    return line
                self._drop(line)
        except BaseException:
            with self._lock:
                self._taken -= 1
            raise

    def _is_known(self, address: ServerAddress) -> bool:
        owners = self._engine.owners
        return self._servers.is_listed(address) or (owners is not None and owners.has_reached(address))

    def _take_idle(self, owner: ServerAddress) -> DirectConnection | None:
        """The newest to the owner."""
        for index in reversed(range(len(self._idle))):
            if self._idle[index].address == owner:
                return self._idle.pop(index)
        return None

    def _connect_to_owner(self, address: ServerAddress, until: float) -> DirectConnection | None:
        with self._lock:
            renewals = self._renewals
        try:
            line = DirectConnection(address, self._dial, min(until, time.monotonic() + _OWNER_CONNECT_S))
        except ServerUnreachable:
            self._engine.failed(address)
            return None
        return self._opened(line, renewals, 0)

    def _opened(self, line: DirectConnection, renewals: int, start: int) -> DirectConnection | None:
        """The connection, unless the client is closed. `renewals` there were as it was begun; `start`: as for `stay_s`."""
        line.renewals = renewals
        line.leave_at = self._engine.monotonic() + self._servers.stay_s(line.address, start)
        with self._lock:
            if not self._closed:
                self._open.add(line)
                return line
        line.close()
        return None

    def _connect(self, until: float) -> DirectConnection:
        self._servers.check_round()
        failure: ServerUnreachable | None = None
        with self._lock:
            self._made += 1
            start, renewals = self._made, self._renewals
        for address in self._servers.candidates(start):
            if self._closed:
                break
            try:
                line = DirectConnection(address, self._dial, until)
            except ServerUnreachable as error:
                self._servers.failed(address)
                failure = error
                continue
            if self._opened(line, renewals, start) is not None:
                return line
        if failure is not None and not self._closed:
            raise self._servers.none_reached(failure) from failure.__cause__
        raise ClientClosed("The client is closed")

    def _give_back(self, line: DirectConnection, *, good: bool) -> None:
        with self._lock:
            self._taken -= 1
            if good and not self._closed:
                self._idle.append(line)
                if len(self._idle) <= _IDLE_MAX:
                    return
                line = self._idle.pop(0)
        self._drop(line)

    def _drop(self, line: DirectConnection) -> None:
        with self._lock:
            self._open.discard(line)
        line.close()

    def renew(self) -> None:
        """Makes no new call over any connection that is open now: one of them does not answer, and the others may be broken, too."""
        with self._lock:
            self._renewals += 1
            idle, self._idle = self._idle, []
        for line in idle:
            self._drop(line)

    def close(self) -> None:
        """Closes all connections; calls under way end with ConnectionLost."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            busy = self._open.difference(idle)
        for line in idle:
            self._drop(line)
        for line in busy:
            line.hang_up()
