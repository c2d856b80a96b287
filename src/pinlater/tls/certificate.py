"""The certificate of a listener, from its files: checked before it is used, and reread when the files change.

A check is a handshake in memory. It proves that key and certificate belong together and that a client which trusts the certificate
accepts it, and returns the names and the dates in it.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pinlater.tls.settings import TlsSettings
from pinlater.tls.trust import CertificateBroken, naming, no_passphrase, trusting_context

logger = logging.getLogger(__name__)

_FILE_BYTES_MAX = 2**20
_NO_CHECK_TIME = 0x200000  # OpenSSL's X509_V_FLAG_NO_CHECK_TIME: the dates are compared here, to name them in the error
_WARN_BEFORE_S = 14 * 86_400.0
_WARN_EVERY_S = 86_400.0


class Certificate(NamedTuple):
    """A certificate that is valid. `context` requests a client's certificate according to the settings, `lenient_context` also
    accepts a client without one. `digest`: SHA-256 of the certificate. `names`: the names by which clients may call the server."""

    context: ssl.SSLContext
    lenient_context: ssl.SSLContext
    digest: bytes
    names: tuple[str, ...]
    expires_at_s: float


def load_certificate(settings: TlsSettings, now_s: float) -> Certificate:
    """The certificate in its files now. Raises CertificateBroken."""
    certificate = settings.certificate_file
    if certificate is None:
        raise CertificateBroken("tls.certificate_file is not set")
    key = settings.key_file or certificate
    for path, word in ((certificate, b"CERTIFICATE"), (key, b"PRIVATE KEY"), (settings.client_ca_file, b"CERTIFICATE")):
        if path is not None and word + b"-----" not in _content(path):
            missing = word == b"PRIVATE KEY" and key == certificate
            where = "; tls.key_file (--tls-key) names the file of the key" if missing else ""
            raise CertificateBroken(f"{path} holds no {word.decode().lower()} in the form PEM{where}")
    plain = _listening(certificate, key)
    digest, found = _tried(plain, certificate)
    expires_at_s = ssl.cert_time_to_seconds(found["notAfter"])
    if now_s >= expires_at_s:
        raise CertificateBroken(f"{certificate}: the certificate expired on {found['notAfter']}")
    if now_s < ssl.cert_time_to_seconds(found["notBefore"]):
        raise CertificateBroken(f"{certificate}: the certificate is not valid before {found['notBefore']}")
    names = tuple(name for kind, name in found.get("subjectAltName", ()) if kind in {"DNS", "IP Address"})
    if settings.client_ca_file is None:
        return Certificate(plain, plain, digest, names, expires_at_s)
    contexts = []
    for required in (settings.require_client_certificate, False):
        context = _listening(certificate, key)
        with naming(settings.client_ca_file):
            context.load_verify_locations(str(settings.client_ca_file))
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
        contexts.append(context)
    return Certificate(contexts[0], contexts[1], digest, names, expires_at_s)


def _listening(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Each connection makes a whole handshake, so that a change of the files holds for all new connections.
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0
    with naming(certificate, key):
        context.load_cert_chain(str(certificate), str(key), no_passphrase)
    return context


def _tried(context: ssl.SSLContext, certificate: Path) -> tuple[bytes, Mapping[str, Any]]:
    """The digest and the fields of the certificate, as a client sees them. Raises CertificateBroken if no client could accept it."""
    with naming(certificate):
        trusting = trusting_context(certificate)
    trusting.check_hostname = False
    trusting.verify_flags |= ssl.VerifyFlags(_NO_CHECK_TIME)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context.wrap_bio(to_server, to_client, server_side=True)
    client = trusting.wrap_bio(to_client, to_server)
    try:
        for _ in range(4):
            for side in (client, server):
                with contextlib.suppress(ssl.SSLWantReadError):
                    side.do_handshake()
    except ssl.SSLCertVerificationError as error:
        raise CertificateBroken(
            f"{certificate}: clients can't accept the certificate: {error.verify_message}"
        ) from error
    except ssl.SSLError as error:
        raise CertificateBroken(f"{certificate}: no handshake is possible: {error.reason or error}") from error
    return hashlib.sha256(client.getpeercert(binary_form=True) or b"").digest(), client.getpeercert() or {}


class CertificateSource:
    """The certificate in force. `now_s`: the time since the epoch. Raises CertificateBroken if the files are invalid at the start; later
    the last valid certificate stays."""

    def __init__(self, settings: TlsSettings, now_s: Callable[[], float]) -> None:
        self.settings = settings
        self._now_s = now_s
        self._seen = _contents(settings)
        self.current = load_certificate(settings, now_s())
        self.last_error: str | None = None
        self._warn_at_s = -math.inf

    def refresh(self) -> bool:
        """Rereads the files. Returns whether the certificate has changed. Never raises."""
        try:
            seen = _contents(self.settings)
            if seen == self._seen and self.last_error is None:
                return False
            found = load_certificate(self.settings, self._now_s())
        except CertificateBroken as error:
            if str(error) != self.last_error:
                logger.error("%s; the last good certificate stays", error)  # noqa: TRY400 - the text says it all
            self.last_error = str(error)
            return False
        changed = seen != self._seen
        self._seen, self.current, self.last_error = seen, found, None
        if changed:
            self._warn_at_s = -math.inf
            logger.info("the certificate was read again", extra={"names": ", ".join(found.names)})
        return changed

    def warn_of_expiry(self) -> None:
        """Logs, at most once a day, that the certificate has expired or expires soon."""
        now_s = self._now_s()
        left_s = self.current.expires_at_s - now_s
        if left_s > _WARN_BEFORE_S or now_s < self._warn_at_s:
            return
        self._warn_at_s = now_s + _WARN_EVERY_S
        if left_s <= 0:
            logger.error("the certificate has expired: clients refuse it")
        else:
            logger.warning("the certificate expires soon", extra={"days_left": int(left_s // 86_400)})


def _contents(settings: TlsSettings) -> list[bytes]:
    """Returns the contents of the files as digests: no key stays in memory for this. Raises CertificateBroken."""
    files = (settings.certificate_file, settings.key_file, settings.client_ca_file)
    return [hashlib.sha256(_content(path)).digest() for path in files if path is not None]


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise CertificateBroken(f"{path} can't be read: {error.strerror or error}") from error
    if len(content) > _FILE_BYTES_MAX:
        raise CertificateBroken(f"{path} is longer than {_FILE_BYTES_MAX:,} bytes")
    return content
