"""Settings of TLS on the ports of a server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pinlater.domain.invalid_settings import InvalidSettings


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Encrypts the Thrift port, the HTTP port, and the calls between servers. [TLS](../how-to/tls.md) explains it."""

    # The server's certificate as PEM, and behind it those of intermediate authorities. Looked at again every second. Not set: no TLS.
    certificate_file: Path | None = None
    # Its private key as PEM, without a passphrase. Not set: it is in `certificate_file`.
    key_file: Path | None = None
    # Authorities that sign the certificates of clients. Not set: clients are not asked for a certificate.
    client_ca_file: Path | None = None
    # Refuses Thrift clients without such a certificate; over HTTP, they get health checks only.
    require_client_certificate: bool = False
    # Whether calls between servers are encrypted, too. All servers of the same shards should say the same.
    between_servers: bool = True
    # How long a client may take for its part of the handshake.
    handshake_timeout_s: float = 10.0

    def __post_init__(self) -> None:
        if self.certificate_file is None:
            for name in ("key_file", "client_ca_file"):
                if getattr(self, name) is not None:
                    raise InvalidSettings("needs certificate_file too: without it there is no TLS", name)
        if self.require_client_certificate and self.client_ca_file is None:
            raise InvalidSettings(
                "needs client_ca_file, which says whose certificates count", "require_client_certificate"
            )
