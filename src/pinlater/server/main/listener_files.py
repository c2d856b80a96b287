"""The files that the listeners of a process follow: the tokens of callers, and the certificate. Both are checked every second."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from pinlater.domain.clock import Clock, WallClock
from pinlater.server.access.control import AccessControl
from pinlater.server.access.last_use import note_last_uses
from pinlater.server.access.tokens import Token
from pinlater.server.config.files import tokens_in
from pinlater.server.config.settings import Settings
from pinlater.server.maintenance.runner import Periodic
from pinlater.server.telemetry.metrics import Metrics
from pinlater.tls.certificate import CertificateSource

logger = logging.getLogger(__name__)

TOKENS, CERTIFICATE = "access.tokens_file", "tls.certificate_file"
_LOOK_MS = 1_000
_NOTE_EVERY_S = 60.0


class ListenerFiles:
    """Raises `FileBroken` or `CertificateBroken` if a file can't be used at the start. `changed(before, after)`: is called after a change
    of the tokens."""

    access: AccessControl | None = None
    """Decides about calls; None without a file of tokens."""
    certificate: CertificateSource | None = None
    """The certificate in force; None without TLS."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._monotonic = clock.monotonic
        self._path, access = settings.access.tokens_file, settings.access
        self._tokens = None if self._path is None else tokens_in(self._path)
        if self._tokens is not None:
            self.access = AccessControl(
                self._tokens.value,
                access.roles_without_token,
                clock.now_ms,
                clock.monotonic,
                access.masks,
                each_token=access.each_token,
                without_token=access.without_token,
            )
        if settings.tls.certificate_file is not None:
            wall_clock = WallClock()  # the time by which clients check the dates
            self.certificate = CertificateSource(settings.tls, lambda: wall_clock.now_ms() / 1000)
        self.changed: Callable[[Sequence[Token], Sequence[Token]], Awaitable[None]] | None = None
        self._looking = asyncio.Lock()
        self._next_note_s = clock.monotonic() + _NOTE_EVERY_S
        self._can_note = True

    def periodic(self) -> Sequence[Periodic]:
        """The periodic checks of those files that there are."""
        work = [] if self._tokens is None else [Periodic("tokens", _LOOK_MS, self.look_at_tokens)]
        return (
            work if self.certificate is None else [*work, Periodic("certificate", _LOOK_MS, self._look_at_certificate)]
        )

    async def look(self) -> None:
        """Rereads both if they have changed."""
        await self.look_at_tokens()
        await self._look_at_certificate()

    async def look_at_tokens(self) -> None:
        """Rereads the tokens if they have changed, and once a minute stores their last uses."""
        if self._tokens is None or self.access is None:
            return
        async with self._looking:
            before = self._tokens.value
            if await asyncio.to_thread(self._tokens.refresh):
                after = self._tokens.value
                self.access.replace(after)
                logger.info("tokens reloaded", extra={"tokens": len(after)})
                if self.changed is not None:
                    await self.changed(before, after)
        if self._monotonic() >= self._next_note_s:
            self._next_note_s = self._monotonic() + _NOTE_EVERY_S
            await self.note_uses()

    async def note_uses(self) -> None:
        """Writes when tokens were last used. A folder that can't be written is logged once; then the times are not stored."""
        used = {} if self.access is None else self.access.take_used()
        if not used or self._path is None or self.access is None:
            return
        try:
            await asyncio.to_thread(note_last_uses, self._path, used, self.access.digests)
        except OSError as error:
            if self._can_note:
                logger.warning(
                    "the last use of tokens can't be noted beside their file, so nothing tells which are in use: %s",
                    error,
                )
            self._can_note = False

    async def _look_at_certificate(self) -> None:
        if self.certificate is not None:
            await asyncio.to_thread(self.certificate.refresh)
            self.certificate.warn_of_expiry()

    @property
    def broken(self) -> Mapping[str, float]:
        """Returns 1 for each file that can't be used as it is now, by the key of the settings that names it."""
        named = {TOKENS: self._tokens, CERTIFICATE: self.certificate}
        return {key: file.last_error is not None for key, file in named.items() if file is not None}

    def show(self, metrics: Metrics) -> None:
        """Adds the gauge of the certificate."""
        certificate = self.certificate
        if certificate is not None:
            metrics.gauge(
                "tls-certificate-expires-at",
                lambda: certificate.current.expires_at_s,
                prometheus="pinlater_tls_certificate_expires_at_seconds",
                help="When the certificate of the server expires, in seconds since the epoch",
                join="max",
            )
