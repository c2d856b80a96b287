"""The TLS that the settings ask for. Built for each connection, so that renewed certificates are used. Imports no driver."""

from __future__ import annotations

from typing import Any

from pinlater.server.storage.redis.settings import RedisSettings
from pinlater.tls.trust import UNWANTED, WANTED


def tls_arguments(settings: RedisSettings) -> dict[str, Any]:
    """Returns the arguments that the driver's encrypted connections take."""
    return {
        "ssl_ca_certs": None if settings.tls_ca is None else str(settings.tls_ca),
        "ssl_certfile": None if settings.tls_cert is None else str(settings.tls_cert),
        "ssl_keyfile": str(settings.tls_key or settings.tls_cert) if settings.tls_cert is not None else None,
        "ssl_cert_reqs": "required",
        "ssl_include_verify_flags": [WANTED],
        "ssl_exclude_verify_flags": [UNWANTED],
        "ssl_check_hostname": settings.tls_check_hostname,
    }
