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
from typing import Any, NamedTuple, TypeVar

from pinlater.client import _connection
from pinlater.client._client_call import ClientCall
from pinlater.client._connection import unreachable
from pinlater.client._owners import KnownOwners
from pinlater.client._retries import ends_connection, is_lost, is_unsent
from pinlater.client._servers import ServerAddress, ServerChoice
from pinlater.client._thrift import AnswerDecoder, FrameReader, WireError, encode_request
from pinlater.client._tls import TlsSource
from pinlater.client._token import TokenSource
from pinlater.client.errors import ClientClosed, ConnectionLost, DeadlineExceeded, PinLaterError, ServerUnreachable
from pinlater.tls.reasons import is_refusal

T = TypeVar("T")
_CONNECTIONS_MAX = 64
_IDLE_MAX = 64
# An owner has answered before, so a connection to it is quick or not worth the time.
_OWNER_CONNECT_S = 1.0
_READ_BYTES = 65_536
_SEQUENCE_MAX = 2**31 - 1
# No time left still asks the socket once: zero would mean not to wait at all.
_SHORTEST_S = 0.001


class Dial(NamedTuple):
    """How connections are made."""

    timeout_s: float
    max_frame_bytes: int
    tls: TlsSource | None = None


class DirectConnection:
    """A connection, for one call at a time."""

    __slots__ = ("_decoder", "_frames", "_quiet", "_sequence", "_socket", "_tls", "address", "leave_at", "renewals")

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
        source: str,
        args: tuple[Any, ...],
        until: float,
        meanwhile: Callable[[], None] | None,
        token: str = "",
    ) -> Any:
        """The answer, an exception if that is what came. Raises ConnectionLost, and TimeoutError at `until`.

        `meanwhile` is called once the request is sent.
        """
        self._sequence = self._sequence % _SEQUENCE_MAX + 1
        frame = encode_request(method, self._sequence, source, args, token)
        try:
            self._socket.settimeout(max(_SHORTEST_S, until - time.monotonic()))
            self._socket.sendall(frame)
            if meanwhile is not None:
                meanwhile()
            while True:
                self._socket.settimeout(max(_SHORTEST_S, until - time.monotonic()))
                data = self._socket.recv(_READ_BYTES)
                if not data:
                    raise ConnectionResetError("closed by the server")
                frames, error = self._frames.take_while_good(data)
                if error is not None:
                    raise error
                if frames:
                    break
            sequence, answer = self._decoder.decode(frames[0], method)
            if sequence != self._sequence or len(frames) > 1:
                raise WireError(f"answer {sequence} came where {self._sequence} was due")
            return answer  # noqa: TRY300 - what decodes it may raise, too
        except TimeoutError:
            raise
        except (OSError, WireError) as error:
            if self._tls is not None and is_refusal(error):  # so the call was not carried out
                raise self._tls.unreachable(self.address, error) from error
            raise ConnectionLost(f"Connection to {self.address} lost before the answer came") from error

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

    def __init__(
        self,
        servers: ServerChoice,
        source: str,
        dial: Dial,
        monotonic: Callable[[], float],
        token: TokenSource,
        owners: KnownOwners | None = None,
    ) -> None:
        self._servers = servers
        self._owners = owners
        self._source = source
        self._dial = dial
        self._token = token
        self._monotonic = monotonic
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
        owner = None if self._owners is None else self._owners.route(call)
        line = self._take(until, owner)
        good = False
        try:
            answer = line.ask(call.method, self._source, call.args, until, meanwhile, self._token())
            good = True
            if isinstance(answer, Exception):
                raise answer
            self._servers.worked(line.address)
            return call.read(answer)
        except TimeoutError as error:
            self._failed(line.address)
            late = DeadlineExceeded(f"No answer to {call.shown} from {line.address} in time")
            raise call.explained(late) from error
        except PinLaterError as error:
            unreachable_now = is_unsent(error) or is_lost(error)
            good = not (unreachable_now or ends_connection(error))
            if unreachable_now:
                self._failed(line.address)
            explained = call.explained(error)
            if explained is not error:
                raise explained from None
            raise
        finally:
            self._give_back(line, good=good)

    def _failed(self, address: ServerAddress) -> None:
        self._servers.failed(address)
        if self._owners is not None:
            self._owners.failed(address)

    def _take(self, until: float, owner: ServerAddress | None) -> DirectConnection:
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
                if line.renewals == self._renewals and self._monotonic() < line.leave_at:
                    owners, address = self._owners, line.address
                    is_known = self._servers.is_listed(address) or (owners is not None and owners.has_reached(address))
                    if is_known and line.usable():
                        return line
                self._drop(line)
        except BaseException:
            with self._lock:
                self._taken -= 1
            raise

    def _take_idle(self, owner: ServerAddress) -> DirectConnection | None:
        """The newest to the owner."""
        for index in reversed(range(len(self._idle))):
            if self._idle[index].address == owner:
                return self._idle.pop(index)
        return None

    def _connect_to_owner(self, address: ServerAddress, until: float) -> DirectConnection | None:
        with self._lock:
            renewals = self._renewals
        quick = self._dial._replace(timeout_s=min(self._dial.timeout_s, _OWNER_CONNECT_S))
        try:
            line = DirectConnection(address, quick, until)
        except ServerUnreachable:
            self._failed(address)
            return None
        line.renewals = renewals
        line.leave_at = self._monotonic() + self._servers.stay_s(address, 0)
        return self._opened(line)

    def _opened(self, line: DirectConnection) -> DirectConnection | None:
        """The connection, unless the client is closed."""
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
            line.renewals = renewals
            line.leave_at = self._monotonic() + self._servers.stay_s(address, start)
            if self._opened(line) is not None:
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
