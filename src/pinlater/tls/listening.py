"""TLS on a port of ours: which certificate it shows, and what is logged and counted for handshakes that fail."""

from __future__ import annotations

import logging
from collections.abc import Callable

from pinlater.tls.certificate import CertificateSource
from pinlater.tls.protocol import ListeningSide, NotTls
from pinlater.tls.reasons import why_no_tls_client

logger = logging.getLogger(__name__)

# The answer for a client that speaks HTTP to a port with HTTPS.
HTTPS_WANTED = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
    b"This port speaks HTTPS only\n"
)


def listening_side(
    source: CertificateSource,
    port: str,
    count: Callable[[str], None] = lambda _: None,
    *,
    lenient: bool = False,
    plain_answer: Callable[[bytes], bytes | None] = lambda _: None,
    plain_is_cut_short: Callable[[bytes], bool] = lambda _: False,
) -> ListeningSide:
    """Makes the side of a listener. `port`: which one, for the log; `count` is called with a name for each handshake that failed.
    `lenient`: clients without a certificate are accepted, whatever the settings are. `plain_answer`, `plain_is_cut_short`: see
    `ListeningSide`."""

    def failed(error: Exception, peer: object) -> None:
        host = peer[0] if isinstance(peer, tuple) else peer
        if isinstance(error, NotTls):
            count("tls_plain_connections")
            logger.warning(
                "a client without TLS has connected to the %s port, which has TLS", port, extra={"peer": host}
            )
        else:
            count("tls_handshakes_failed")
            extra = {"peer": host, "reason": why_no_tls_client(error)}
            logger.info("a connection to the %s port was closed", port, extra=extra)

    return ListeningSide(
        lambda: source.current.lenient_context if lenient else source.current.context,
        failed,
        plain_answer,
        source.settings.handshake_timeout_s,
        plain_is_cut_short,
    )
