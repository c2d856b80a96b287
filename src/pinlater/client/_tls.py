"""TLS of a client: what it is given, what the environment says, and the context made of it, which is made anew when a file changes."""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from pinlater.client._servers import ServerAddress
from pinlater.client.errors import ServerUnreachable
from pinlater.tls.protocol import ConnectingSide
from pinlater.tls.reasons import why_no_tls_server
from pinlater.tls.trust import no_passphrase, trusting_context

_log = logging.getLogger("pinlater.client")

VARIABLE = "PINLATER_TLS"
CA_VARIABLE, NAME_VARIABLE = "PINLATER_TLS_CA_FILE", "PINLATER_TLS_SERVER_NAME"
CERTIFICATE_VARIABLE, KEY_VARIABLE = "PINLATER_TLS_CLIENT_CERTIFICATE_FILE", "PINLATER_TLS_CLIENT_KEY_FILE"
_YES, _NO = frozenset({"1", "true", "yes", "on"}), frozenset({"0", "false", "no", "off"})
_LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class Tls:
    """How a client makes sure of its servers, and of itself to them.

    `ca_file`: authorities that may have signed the certificate of a server, as PEM; without it those of the operating system.
    `certificate_file` and `key_file` (not set: in the same file): the client's own, for servers that want one. `server_name`: that the
    certificate must be for, if it is not the host that the client connects to. All files are read again when they change.
    """

    ca_file: str | os.PathLike[str] | None = None
    certificate_file: str | os.PathLike[str] | None = None
    key_file: str | os.PathLike[str] | None = None
    server_name: str | None = None


class TlsSource:
    """The sides of connections to servers, from any thread. While the files can't be used the last context stays."""

    def __init__(self, options: Tls, monotonic: Callable[[], float]) -> None:
        """Raises ValueError."""
        if options.key_file is not None and options.certificate_file is None:
            raise ValueError("tls: key_file needs certificate_file")
        self._options = options
        self._monotonic = monotonic
        self._failed = False
        self._seen = self._marks()
        self._context = self._made()
        self._next_look_s = monotonic() + _LOOK_S

    def side(self, address: ServerAddress) -> ConnectingSide:
        """For a connection to this server."""
        now_s = self._monotonic()
        if now_s >= self._next_look_s:
            self._next_look_s = now_s + _LOOK_S
            self._look()
        return ConnectingSide(self._context, self._options.server_name or address.host)

    def unreachable(self, address: ServerAddress, error: BaseException) -> ServerUnreachable:
        """Why there is no connection with TLS, in words for people."""
        why = why_no_tls_server(error, self._options.server_name or address.host)
        return ServerUnreachable(f"Server {address} can't be reached with TLS: {why}")

    def _look(self) -> None:
        seen = self._marks()
        if seen == self._seen:
            return
        try:
            self._context, self._seen, self._failed = self._made(), seen, False
        except ValueError as error:
            if not self._failed:
                _log.warning("%s; the last good files stay", error)
            self._failed = True

    def _marks(self) -> list[tuple[int, int, int] | None]:
        return [_mark(path) for path in self._files() if path is not None]

    def _files(self) -> tuple[str | os.PathLike[str] | None, ...]:
        options = self._options
        return options.ca_file, options.certificate_file, options.key_file

    def _made(self) -> ssl.SSLContext:
        options = self._options
        try:
            context = trusting_context(options.ca_file)
        except OSError as error:
            raise ValueError(f"tls: {options.ca_file} holds no certificates: {error.strerror or error}") from error
        if options.certificate_file is not None:
            key = options.key_file or options.certificate_file
            try:
                context.load_cert_chain(os.fspath(options.certificate_file), os.fspath(key), no_passphrase)
            except OSError as error:
                mismatch = getattr(error, "reason", None) == "KEY_VALUES_MISMATCH"
                why = "the key does not belong to the certificate" if mismatch else error.strerror or error
                raise ValueError(f"tls: {options.certificate_file} and {key} can't be used: {why}") from error
        return context


def tls_source(given: Tls | bool | None, monotonic: Callable[[], float]) -> TlsSource | None:
    """None for no TLS. True is TLS with the operating system's authorities; None takes what the environment says.

    Raises TypeError, and ValueError for files that can't be used.
    """
    if given is None:
        given = _by_default()
    if given is False:
        return None
    if given is True:
        given = Tls()
    if not isinstance(given, Tls):
        raise TypeError(f"tls must be True, False or pinlater.Tls(...), not {type(given).__name__}")
    return TlsSource(given, monotonic)


def _by_default() -> Tls | bool:
    """Naming a file of authorities, or a certificate, asks for TLS, unless PINLATER_TLS says no."""
    read = os.environ.get
    said = (read(VARIABLE) or "").strip().lower()
    if said and said not in _YES | _NO:
        raise ValueError(f"{VARIABLE} is {said[:80]!r}, which is neither 1 nor 0")
    options = Tls(read(CA_VARIABLE) or None, read(CERTIFICATE_VARIABLE) or None, read(KEY_VARIABLE) or None)
    wanted = said in _YES or (options != Tls() and said not in _NO)
    return (
        Tls(options.ca_file, options.certificate_file, options.key_file, read(NAME_VARIABLE) or None)
        if wanted
        else False
    )


def _mark(path: str | os.PathLike[str]) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - what a client imports without need delays each start
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
