"""Settings of TLS on the ports of a server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from pinlater.domain.invalid_settings import InvalidSettings


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Encrypts the Thrift port, the HTTP port, and the calls between servers. [TLS](../how-to/tls.md) explains it."""

    certificate_file: Path | None = None
    """The server's certificate as PEM, and behind it those of intermediate authorities. Looked at again every second. Not set: no TLS."""
    key_file: Path | None = None
    """Its private key as PEM, without a passphrase. Not set: it is in `certificate_file`."""
    client_ca_file: Path | None = None
    """Authorities that sign the certificates of clients. Not set: clients are not asked for a certificate."""
    require_client_certificate: bool = False
    """Refuses Thrift clients without such a certificate; over HTTP, they get health checks only."""
    between_servers: bool = True
    """Whether calls between servers are encrypted, too. All servers of the same shards should say the same."""
    handshake_timeout_s: Annotated[float, Meta(ge=0.1)] = 10.0
    """How long a client may take for its part of the handshake."""

    def __post_init__(self) -> None:
        if self.certificate_file is None:
            for name in ("key_file", "client_ca_file"):
                if getattr(self, name) is not None:
                    raise InvalidSettings("needs certificate_file too: without it there is no TLS", name)
        if self.require_client_certificate and self.client_ca_file is None:
            raise InvalidSettings(
                "needs client_ca_file, which says whose certificates count", "require_client_certificate"
            )
