"""Finds out why kazoo's client does not connect, which it reports only in its log."""

from __future__ import annotations

import logging
import ssl


class ClientLog(logging.Handler):
    """Reads what a client logs, and keeps the last refusal of a TLS connection. `tls_refusal`: '' if there was none."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.tls_refusal = ""
        self.logger = logging.Logger("kazoo", logging.WARNING)  # noqa: LOG001 - nothing of it is to reach the server's log
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        told = [*(record.args if isinstance(record.args, tuple) else ()), *(record.exc_info or ())]
        for error in told:
            cause = error.__context__ if isinstance(error, Exception) and error.__context__ else error
            # The end of a connection is not a refusal: servers that stop also end connections.
            if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError | ssl.SSLZeroReturnError):
                self.tls_refusal = f"TLS: {getattr(cause, 'verify_message', '') or cause.reason or cause}"
