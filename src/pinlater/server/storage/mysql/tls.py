"""Which connections are encrypted. Imports no driver."""

from __future__ import annotations

from pinlater.server.storage.mysql.settings import MysqlEndpoint, MysqlSettings


def wants_tls(endpoint: MysqlEndpoint, settings: MysqlSettings) -> bool:
    """Whether connections to it are encrypted. A Unix socket can't be overheard: TLS is used there only if the settings ask for it."""
    if endpoint.tls is not None:
        return endpoint.tls
    return settings.tls and endpoint.socket is None
