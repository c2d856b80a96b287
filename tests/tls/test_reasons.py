"""Words for errors of the library, which differ from one of its versions to the next."""

from __future__ import annotations

import ssl

import pytest

from pinlater.tls.reasons import why_no_tls_client, why_no_tls_server


@pytest.mark.parametrize("kind", [ConnectionResetError, ssl.SSLEOFError, ssl.SSLZeroReturnError])
def test_an_end_of_the_connection_during_the_handshake_is_named(kind: type[OSError]) -> None:
    error = kind()
    if isinstance(error, ssl.SSLError):
        error.reason = ""  # the library sets it
    assert why_no_tls_server(error, "a").endswith("during the TLS handshake; perhaps it does not speak TLS")
    assert why_no_tls_client(error) == "it left during the TLS handshake"
