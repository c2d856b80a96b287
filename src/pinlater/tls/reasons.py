"""Why there is no TLS connection, in words for people who do not know those of the library."""

from __future__ import annotations

import ssl

from pinlater.tls.protocol import NotTls

# The wording of the library depends on its version.
_CLOSED = (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError)
_EXPIRED, _NOT_YET_VALID = 10, 9
_OTHER_NAME = frozenset({62, 64})
_UNKNOWN_AUTHORITY = frozenset({2, 18, 19, 20, 21})
_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"})
_CERTIFICATE_WANTED = frozenset({"TLSV13_ALERT_CERTIFICATE_REQUIRED", "TLSV1_ALERT_NO_CERTIFICATE"})
_REFUSED: dict[str, str] = {
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it has expired",
    "TLSV1_ALERT_UNKNOWN_CA": "its authority is unknown there",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it is not good",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "it is revoked",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it is not acceptable",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "it is for another use",
}


def is_refusal(error: BaseException | None) -> bool:
    """Returns whether the other side ended the handshake because of this side's certificate, or because there is none. TLS 1.3 tells a
    client so only after the client's part of the handshake."""
    reason = error.reason or "" if isinstance(error, ssl.SSLError) else ""
    return reason in _CERTIFICATE_WANTED or reason in _REFUSED


def why_no_tls_server(error: BaseException, name: str) -> str:
    """Returns why a client has no TLS connection to a server that it calls `name`; the subject is the server."""
    if isinstance(error, ssl.SSLCertVerificationError):
        code = error.verify_code
        if code == _EXPIRED:
            return "its certificate has expired"
        if code == _NOT_YET_VALID:
            return "its certificate is not valid yet; is the clock of this machine right?"
        if code in _OTHER_NAME:
            return f"its certificate is not for {name}"
        if code in _UNKNOWN_AUTHORITY:
            return "its certificate is from an authority that this client does not know"
        return f"its certificate is not good: {error.verify_message}"
    reason = error.reason or "" if isinstance(error, ssl.SSLError) else ""
    if reason in _NO_TLS:
        return "it does not speak TLS"
    if reason in _CERTIFICATE_WANTED:
        return "it wants a certificate of the client"
    if reason in _REFUSED:
        return f"it refuses this client's certificate: {_REFUSED[reason]}"
    if isinstance(error, _CLOSED):
        return "it closed the connection during the TLS handshake; perhaps it does not speak TLS"
    return f"the TLS handshake failed: {_library_words(error)}"


def why_no_tls_client(error: BaseException) -> str:
    """Returns why a listener has closed a connection before its handshake was done; the subject is the client."""
    if isinstance(error, NotTls):
        return "it speaks no TLS"
    if isinstance(error, TimeoutError):
        return "its TLS handshake took too long"
    if isinstance(error, _CLOSED):
        return "it left during the TLS handshake"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not good: {error.verify_message}"
    reason = error.reason or "" if isinstance(error, ssl.SSLError) else ""
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "it has sent no certificate"
    if is_refusal(error):
        return f"it refuses the certificate of this server: {_REFUSED.get(reason, reason)}"
    return f"the TLS handshake failed: {_library_words(error)}"


def _library_words(error: BaseException) -> str:
    reason = error.reason if isinstance(error, ssl.SSLError) else None
    return reason.lower().replace("_", " ") if reason else str(error) or type(error).__name__
