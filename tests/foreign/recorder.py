"""Stands between a client and the server, hands on every byte and keeps what the client said."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import Self

from pinlater.wire.codec import DecodedCall, Decoder

_CHUNK = 1 << 16
_IDLE_S = 60.0


class CallRecorder:
    """A port of its own before `server` (`host:port`). Use as `with CallRecorder(server.address) as between: ... between.address`."""

    def __init__(self, server: str) -> None:
        host, _, port = server.rpartition(":")
        self._server = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._said: list[bytearray] = []  # by connection
        self._open: list[socket.socket] = []

    @property
    def address(self) -> str:
        """Where the client is to connect."""
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def messages(self) -> list[bytes]:
        """What the client has sent, without the frames' lengths, connection after connection."""
        return [message for said in self._said for message in _unframed(bytes(said))]

    def calls(self, method: str) -> list[DecodedCall]:
        """The client's calls of one method, decoded."""
        named = struct.pack(">I", len(method)) + method.encode()
        return [Decoder().call(message) for message in self.messages() if named in message[: 8 + len(named)]]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self._listener, *self._open):
            with contextlib.suppress(OSError):  # not connected any more
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed: the test is over
                return
            server = socket.create_connection(self._server, _IDLE_S)
            client.settimeout(_IDLE_S)
            self._open += [client, server]
            said = bytearray()
            self._said.append(said)
            for here, there, kept in ((client, server, said), (server, client, bytearray())):
                threading.Thread(target=_hand_on, args=(here, there, kept), daemon=True).start()


def _hand_on(here: socket.socket, there: socket.socket, kept: bytearray) -> None:
    try:
        while chunk := here.recv(_CHUNK):
            kept += chunk
            there.sendall(chunk)
        there.shutdown(socket.SHUT_WR)
    except OSError:  # one side has gone
        return


def _unframed(said: bytes) -> list[bytes]:
    messages = []
    while len(said) >= 4:
        end = 4 + int.from_bytes(said[:4], "big")
        messages.append(said[4:end])
        said = said[end:]
    return messages
