"""The TLS that the settings ask for. Made anew for each connection, so that renewed certificates are taken up. Imports no driver."""

from __future__ import annotations

import ssl

from pinlater.storage.mysql.settings import Endpoint, MysqlSettings


def wants_tls(endpoint: Endpoint, settings: MysqlSettings) -> bool:
    """Whether connections to it are encrypted. Over a socket nobody listens in, so only who asks for it there gets it."""
    if endpoint.tls is not None:
        return endpoint.tls
    return settings.tls and endpoint.socket is None


def make_context(settings: MysqlSettings) -> ssl.SSLContext:
    """Raises OSError (`ssl.SSLError` is one) where a file is missing or is no certificate."""
    context = ssl.create_default_context(cafile=None if settings.tls_ca is None else str(settings.tls_ca))
    context.check_hostname = settings.tls_check_hostname
    if settings.tls_cert is not None:
        context.load_cert_chain(
            str(settings.tls_cert), None if settings.tls_key is None else str(settings.tls_key), _no_passphrase
        )
    return context


def _no_passphrase() -> str:
    """Without it the library would ask on the terminal, and wait."""
    raise ValueError("the key is locked by a passphrase; give one without")
