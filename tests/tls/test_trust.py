"""Clients, stores and the import check certificates alike on each Python: an authority of a user need not be as the strictest wants it."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from redis.asyncio.connection import SSLConnection

from pinlater.import_original.old_server import OriginalTls, server_of
from pinlater.server.storage.mysql.settings import MysqlSettings
from pinlater.server.storage.redis.settings import RedisSettings
from pinlater.server.storage.redis.tls import tls_arguments
from pinlater.server.storage.tls import make_context
from pinlater.tls.trust import trusting_context
from tests.tls.certificates import Authority, KeyPair

HOST = "127.0.0.1"


def shakes_hands(client: ssl.SSLContext, pair: KeyPair) -> str | None:
    """The TLS version of a handshake with a server that has this certificate. Raises the client's SSLError."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pair.certificate, pair.key)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (
        client.wrap_bio(to_client, to_server, server_hostname=HOST),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    for _ in range(4):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return sides[0].version()


def original(authority: Path) -> ssl.SSLContext:
    context = OriginalTls(wanted=True, authority=authority).context_for(server_of("mysql://u@h/", ""))
    assert context is not None
    return context


def redis(authority: Path) -> ssl.SSLContext:
    return SSLConnection(**tls_arguments(RedisSettings(tls=True, tls_ca=authority))).ssl_context.get()


CONTEXTS: dict[str, Callable[[Path], ssl.SSLContext]] = {
    "client": trusting_context,
    "MySQL": lambda authority: make_context(MysqlSettings(tls=True, tls_ca=authority)),
    "Redis": redis,
    "import": original,
}


@pytest.mark.parametrize("who", CONTEXTS)
def test_an_authority_without_a_key_usage_is_trusted_on_each_python(
    who: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.13 and later make strict contexts by default; here each Python does."""
    lenient = ssl.create_default_context

    def strict(*arguments: object, **named: object) -> ssl.SSLContext:
        context: ssl.SSLContext = lenient(*arguments, **named)  # type: ignore[arg-type]
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)
    authority = Authority(tmp_path, well_formed=False)
    pair = authority.sign(HOST)
    with pytest.raises(ssl.SSLCertVerificationError):
        shakes_hands(ssl.create_default_context(cafile=str(authority.file)), pair)
    assert shakes_hands(CONTEXTS[who](authority.file), pair) is not None


@pytest.mark.parametrize("who", CONTEXTS)
def test_a_certificate_for_another_name_or_of_another_authority_is_refused(who: str, tmp_path: Path) -> None:
    authority, other = Authority(tmp_path / "a"), Authority(tmp_path / "b", "other")
    for pair in (authority.sign("other.example"), other.sign(HOST)):
        with pytest.raises(ssl.SSLCertVerificationError):
            shakes_hands(CONTEXTS[who](authority.file), pair)
