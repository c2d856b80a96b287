"""How the certificate of a server is checked: in the same way for clients, stores and the import, and on every Python.

From 3.13 on, Python's default context is strict: it refuses authorities without a key usage, and certificates without an authority
key identifier, as many internal authorities make them, and MySQL at its start. These fields do not determine who is trusted, and a newer
Python must not break the connections of a running installation. So no context here is strict.
"""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

WANTED = ssl.VERIFY_X509_PARTIAL_CHAIN
"""An authority between the root and the server may be trusted alone."""
UNWANTED = ssl.VERIFY_X509_STRICT


class CertificateBroken(OSError):
    """Files that can't be used; the text names the file and the reason."""


def trusting_context(ca_file: str | os.PathLike[str] | None) -> ssl.SSLContext:
    """Returns a context for connections to servers whose certificates these authorities signed; None stands for the operating system's.

    Raises OSError for a file that is missing or holds no certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags = (context.verify_flags | WANTED) & ~UNWANTED
    if ca_file is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(os.fspath(ca_file))
    return context


@contextlib.contextmanager
def naming(*files: Path | None) -> Iterator[None]:
    """Raises CertificateBroken for an OSError: the library's errors don't name the file."""
    try:
        yield
    except OSError as error:
        names = " and ".join(dict.fromkeys(str(file) for file in files if file is not None))
        mismatch = getattr(error, "reason", None) == "KEY_VALUES_MISMATCH"
        reason = "the key does not belong to the certificate" if mismatch else error.strerror or str(error)
        raise CertificateBroken(f"{names}: {reason}") from error


def no_passphrase() -> str:
    """Refuses a passphrase: without this, the library would ask on the terminal, and wait."""
    raise OSError("the key is locked by a passphrase; give one without")
