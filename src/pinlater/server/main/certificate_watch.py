"""Keeps the certificate of a server's ports up to date, and warns before it expires."""

from __future__ import annotations

import asyncio

from pinlater.domain.clock import WallClock
from pinlater.server.config.settings import Settings
from pinlater.server.telemetry.metrics import Metrics
from pinlater.tls.certificate import CertificateSource

CERTIFICATE_LOOK_MS = 1_000
CERTIFICATE = "tls.certificate_file"


class CertificateWatch:
    """Of a server with TLS. `source` has the certificate in force."""

    def __init__(self, source: CertificateSource) -> None:
        self.source = source

    async def look(self) -> None:
        """Reads the files if they have changed."""
        await asyncio.to_thread(self.source.refresh)
        self.source.warn_of_expiry()

    @property
    def broken(self) -> bool:
        """Whether the files can't be used as they are now."""
        return self.source.last_error is not None

    def show(self, metrics: Metrics) -> None:
        """Adds the gauge of the certificate."""
        metrics.gauge(
            "tls-certificate-expires-at",
            lambda: self.source.current.expires_at_s,
            prometheus="pinlater_tls_certificate_expires_at_seconds",
            help="When the certificate of the server expires, in seconds since the epoch",
            join="max",
        )


def certificate_watch(settings: Settings) -> CertificateWatch | None:
    """None without TLS. Raises `CertificateBroken`."""
    if settings.tls.certificate_file is None:
        return None
    clock = WallClock()  # by which clients look at the dates
    return CertificateWatch(CertificateSource(settings.tls, lambda: clock.now_ms() / 1000))
