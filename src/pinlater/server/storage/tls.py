"""The TLS that a store's settings ask for. Built for each connection, so that renewed certificates are used."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Protocol

from pinlater.tls.trust import naming, no_passphrase, trusting_context


class TlsFiles(Protocol):
    """The settings of a store that speak of TLS."""

    @property
    def tls(self) -> bool:
        """Whether connections are encrypted, where the address of the shard does not say."""

    @property
    def tls_ca(self) -> Path | None:
        """Authorities that may have signed the database's certificate."""

    @property
    def tls_cert(self) -> Path | None:
        """The path of the client certificate."""

    @property
    def tls_key(self) -> Path | None:
        """Its key, where it is not in the same file."""

    @property
    def tls_check_hostname(self) -> bool:
        """Whether the certificate must be for the name or address that the connection goes to."""


class TlsEndpoint(Protocol):
    """The address of a shard, as far as it speaks of TLS."""

    @property
    def tls(self) -> bool | None:
        """Whether connections are encrypted; None leaves it to the settings."""

    @property
    def socket(self) -> str | None:
        """The path of a Unix socket in the place of a host."""


def wants_tls(endpoint: TlsEndpoint, settings: TlsFiles) -> bool:
    """Returns whether connections to it are encrypted. A Unix socket can't be overheard: TLS is used there only if the address asks for
    it.
    """
    if endpoint.tls is not None:
        return endpoint.tls
    return settings.tls and endpoint.socket is None


def make_context(settings: TlsFiles) -> ssl.SSLContext:
    """Raises OSError with the file's name if one is missing or is not what it should be."""
    with naming(settings.tls_ca):
        context = trusting_context(settings.tls_ca)
    context.check_hostname = settings.tls_check_hostname
    if settings.tls_cert is not None:
        key = settings.tls_key or settings.tls_cert
        with naming(settings.tls_cert, key):
            context.load_cert_chain(str(settings.tls_cert), str(key), no_passphrase)
    return context
