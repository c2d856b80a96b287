"""How the certificate of a server is checked: once for clients, stores and the import, and alike on every Python.

From 3.13 on, Python's default context is strict: it refuses authorities without a key usage, and certificates without an authority
key identifier, as many internal authorities make them, and MySQL at its start. These fields do not say who is trusted,
and a newer Python must not cut the connections of a running installation. So no context here is strict.
"""

from __future__ import annotations

import os
import ssl

WANTED = ssl.VERIFY_X509_PARTIAL_CHAIN
"""An authority between the root and the server may be trusted alone."""
UNWANTED = ssl.VERIFY_X509_STRICT


def trusting_context(ca_file: str | os.PathLike[str] | None) -> ssl.SSLContext:
    """A context for connections to servers whose certificates these authorities signed; None stands for the operating system's.

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
