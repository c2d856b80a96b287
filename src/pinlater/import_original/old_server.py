"""Where an old MySQL server is, and its errors. Knows no driver."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pinlater.tls.trust import trusting_context

PASSWORD_VARIABLE = "PINLATER_ORIGINAL_PASSWORD"  # noqa: S105 - a name
_PORT = 3306
_FORM = "write mysql://USER@HOST:PORT/"


class SourceFailed(Exception):
    """The old server refused or did not answer. `passing`: a later attempt may succeed. The text names the server and never a password."""

    def __init__(self, message: str, *, passing: bool) -> None:
        super().__init__(message)
        self.message = message
        self.passing = passing


@dataclass(frozen=True, slots=True)
class OldServer:
    """A MySQL server and the user to log in as. `tls` None: according to `OriginalTls`. Never shown with its password."""

    host: str
    port: int
    user: str
    password: str = field(default="", repr=False)
    socket: str | None = None
    tls: bool | None = None

    @property
    def address(self) -> str:
        """`olddb:3306`."""
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class OriginalTls:
    """Whether connections are encrypted, by which authority certificates are signed (None: one of the machine's own), and whether they
    must be for the host."""

    wanted: bool = False
    authority: Path | None = None
    check_hostname: bool = True

    def context_for(self, server: OldServer) -> ssl.SSLContext | None:
        """Returns the TLS context, or None for an unencrypted connection; a Unix socket needs none. Raises OSError that names the file."""
        if not (self.wanted and server.socket is None if server.tls is None else server.tls):
            return None
        try:
            context = trusting_context(self.authority)
        except OSError as error:
            raise OSError(f"{self.authority}: {error.strerror or error}") from error
        context.check_hostname = self.check_hostname
        return context


def server_of(url: str, password: str) -> OldServer:
    """The server that `mysql://user@host:port/` names. Raises `ValueError` with a text that refers to the URL, which may contain a
    password, as `it`."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORT
    except ValueError:
        raise ValueError(f"it is not an address: {_FORM}") from None
    if parts.password is not None:
        raise ValueError(
            f"it holds a password, which every user of this machine can see: use --password-file or {PASSWORD_VARIABLE}"
        )
    if parts.scheme != "mysql" or not parts.hostname or not parts.username:
        raise ValueError(f"it is not an address: {_FORM}")
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError(f"it names more than a server: {_FORM}, and --queue for single queues")
    return OldServer(parts.hostname, port, unquote(parts.username), password)
