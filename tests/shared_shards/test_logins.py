"""The ways in which a server gets to its shards: TLS, a socket, and where the password comes from."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from pinlater.testing.real_server import RealServer, ServerDidNotStart
from tests.databases.certificates import Certificates, make_certificates
from tests.databases.mariadb import MariaDb
from tests.databases.ports import free_port
from tests.databases.redis_users import WITH_USERS, url_of
from tests.shared_shards.serving import one_job_through, place_of


@dataclass(frozen=True)
class Secured:
    """A database server with TLS. `anonymous`: the error for a client without a certificate, where one is asked for."""

    kind: str
    url: str
    certificates: Certificates
    anonymous: str
    without_tls: str = ""  # the address without TLS, if the server listens there

    def options(self, **settings: object) -> tuple[str, ...]:
        return tuple(word for name, value in settings.items() for word in ("--set", f"{self.kind}.{name}={value}"))


def _secured(kind: str, request: pytest.FixtureRequest, asking: Certificates | None = None) -> Secured:
    """`asking`: the server's own certificates instead of the session's, with which it asks for its clients' too."""
    start = request.getfixturevalue(f"start_{kind}")
    return _secured_redis(start, asking) if kind == "redis" else _secured_mysql(start, asking)


def _secured_mysql(start: Callable[..., MariaDb], asking: Certificates | None) -> Secured:
    if asking is None:
        database = start(tls=True, require_secure_transport=True)
    else:
        database = start(ssl_ca=str(asking.authority), ssl_cert=str(asking.certificate), ssl_key=str(asking.key))
        asyncio.run(database.execute("ALTER USER 'pinlater'@'%' REQUIRE X509"))
    certificates = asking or database.certificates
    assert certificates is not None
    url = f"mysql://{database.user}:{quote(database.password, safe='')}@{database.address}/pinlater_1"
    return Secured("mysql", f"{url}?tls=true", certificates, "refuses our login", without_tls=url)


def _secured_redis(start: Callable[..., Any], asking: Certificates | None) -> Secured:
    port = free_port()
    options: dict[str, Any] = {"tls_port": port}
    if asking is not None:
        files = {"ca_cert": asking.authority, "cert": asking.certificate, "key": asking.key}
        options |= {f"tls_{name}_file": str(path) for name, path in files.items()} | {"tls_auth_clients": True}
    redis = start(tls=True, **WITH_USERS, **options)
    certificates = asking or redis.certificates
    assert certificates is not None
    url = url_of(redis, f"{redis.host}:{port}/0", scheme="rediss")
    return Secured("redis", url, certificates, r"(?i)certificate required|connection|closed")


@pytest.fixture(params=["mariadb", "mysql8", "redis"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_tls(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Refused without TLS and with an authority that we don't know, served with the right one."""
    database = _secured(kind, request)
    if database.without_tls:
        with pytest.raises(ServerDidNotStart, match=r"insecure transport|refuses our login"):
            RealServer(tmp_path, store=database.without_tls).start()
    with pytest.raises(ServerDidNotStart, match=r"(?i)certificate"):
        RealServer(tmp_path, store=database.url).start()
    authority = database.options(tls_ca=database.certificates.authority)
    with RealServer(tmp_path, *authority, store=database.url) as server:
        one_job_through(server.address)


def test_tls_where_the_database_asks_for_our_certificate_and_its_own_names_another_host(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The host is checked unless that is switched off. MySQL asks by `REQUIRE X509`, Redis by `tls-auth-clients yes`, its default."""
    certificates = make_certificates(tmp_path / "certificates", "192.0.2.1")
    database = _secured(kind, request, certificates)
    checked = database.options(tls_ca=certificates.authority)
    unchecked = database.options(tls_ca=certificates.authority, tls_check_hostname="false")
    ours = database.options(tls_cert=certificates.certificate, tls_key=certificates.key)
    with pytest.raises(ServerDidNotStart, match=r"certificate is not valid for '127\.0\.0\.1'"):
        RealServer(tmp_path, *checked, *ours, store=database.url).start()
    with pytest.raises(ServerDidNotStart, match=database.anonymous):
        RealServer(tmp_path, *unchecked, store=database.url).start()
    with RealServer(tmp_path, *unchecked, *ours, store=database.url) as server:
        one_job_through(server.address)


@pytest.mark.parametrize("kind", ["mariadb", "redis"])
def test_a_socket_in_the_place_of_host_and_port(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if kind == "redis":
        socket = tmp_path / "redis.sock"
        redis = request.getfixturevalue("start_redis")(**WITH_USERS, unixsocket=str(socket))
        store = url_of(redis, f"/3?socket={socket}")
    else:
        database: MariaDb = request.getfixturevalue("mariadb")
        login = f"{database.user}:{quote(database.password, safe='')}"
        store = f"mysql://{login}@/{request.getfixturevalue('mariadb_prefix')}one?socket={database.socket}"
    with RealServer(tmp_path, store=store) as server:
        one_job_through(server.address)


@pytest.mark.parametrize("where", ["file", "environment"])
@pytest.mark.parametrize("kind", ["mysql", "redis"])
def test_the_password_may_come_from_a_file_or_the_environment(
    kind: str, where: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the URL has none."""
    place = place_of(kind, tmp_path, request)
    options = place.options
    if where == "file":
        (tmp_path / "password").write_text(place.password + "\n")
        options += ("--set", f"{kind}.password_file={tmp_path / 'password'}")
    else:
        monkeypatch.setenv(f"PINLATER_{kind.upper()}_PASSWORD", place.password)
    with RealServer(tmp_path, *options, store=place.url("")) as server:
        one_job_through(server.address)
