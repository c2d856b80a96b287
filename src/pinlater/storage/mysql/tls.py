"""The TLS that the settings ask for. Made anew for each connection, so that renewed certificates are taken up. Imports no driver."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from pathlib import Path

from pinlater.storage.mysql.settings import Endpoint, MysqlSettings


def wants_tls(endpoint: Endpoint, settings: MysqlSettings) -> bool:
    """Whether connections to it are encrypted. Over a socket nobody listens in, so only who asks for it there gets it."""
    if endpoint.tls is not None:
        return endpoint.tls
    return settings.tls and endpoint.socket is None


def make_context(settings: MysqlSettings) -> ssl.SSLContext:
    """Raises OSError with the file's name where one is missing or is not what it should be."""
    with _naming(settings.tls_ca):
        context = ssl.create_default_context(cafile=None if settings.tls_ca is None else str(settings.tls_ca))
    context.check_hostname = settings.tls_check_hostname
    if settings.tls_cert is not None:
        key = settings.tls_key or settings.tls_cert
        with _naming(settings.tls_cert, key):
            context.load_cert_chain(str(settings.tls_cert), str(key), _no_passphrase)
    return context


@contextlib.contextmanager
def _naming(*files: Path | None) -> Iterator[None]:
    """The library's errors don't say which file they speak of."""
    try:
        yield
    except OSError as error:
        names = " and ".join(dict.fromkeys(str(file) for file in files if file is not None))
        raise OSError(f"{names}: {error.strerror or error}") from error


def _no_passphrase() -> str:
    """Without it the library would ask on the terminal, and wait."""
    raise OSError("the key is locked by a passphrase; give one without")
