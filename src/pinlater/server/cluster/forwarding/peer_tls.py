"""TLS between servers of the same shards. No authority vouches for a server here, and no name is checked: servers are known by addresses
that may be in no certificate. Instead, the proof that a server knows the secret of a shard also covers the certificate that the listening
side has shown (`handshake.py`). A third party has another certificate, or lacks the key, so it can't relay a proof from one connection to
another."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections.abc import Callable

from pinlater.tls.certificate import CertificateSource
from pinlater.tls.listening import listening_side
from pinlater.tls.protocol import ConnectingSide, TlsProtocol


def listening_factory(
    certificate: CertificateSource | None, new: Callable[[bytes], asyncio.Protocol]
) -> Callable[[], asyncio.Protocol]:
    """Makes the protocol of a connection from another server. `new` makes the one without TLS, from the value to which its proofs are
    bound."""
    if certificate is None:
        return lambda: new(b"")
    side = listening_side(certificate, "cluster")

    def new_with_tls() -> asyncio.Protocol:
        current = certificate.current
        return TlsProtocol(new(current.digest), side._replace(context=lambda: current.lenient_context))

    return new_with_tls


def connecting_side() -> ConnectingSide:
    """Returns the TLS context for connections to other servers. It trusts every certificate, so the other side must prove the
    `binding_of` the certificate that it shows.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return ConnectingSide(context, None)


def binding_of(transport: asyncio.BaseTransport) -> bytes:
    """Returns the value to which proofs over this connection, which this side has opened, are bound: the certificate of the other side;
    empty without TLS.
    """
    tls = transport.get_extra_info("ssl_object")
    return b"" if tls is None else hashlib.sha256(tls.getpeercert(binary_form=True)).digest()
