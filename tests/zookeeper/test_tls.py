"""Servers and an ensemble with TLS: one that may not use it says why."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pinlater.server.config.errors import SettingsError
from tests.databases.certificates import Certificates, make_certificates
from tests.databases.fixtures import make_zookeeper_or_skip
from tests.databases.servers import DatabaseServers
from tests.databases.zookeeper import ZooKeeperEnsemble
from tests.shared_shards.proxied_database import until
from tests.shared_shards.test_hand_over import share_all
from tests.zookeeper.conftest import StartHere

# kazoo leaves the socket of a refused handshake to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*SSLSocket:pytest.PytestUnraisableExceptionWarning", "ignore:unclosed:ResourceWarning"
)


@pytest.fixture
def named(tmp_path: Path) -> Certificates:
    return make_certificates(tmp_path / "named")


@pytest.fixture
def secure(database_servers: DatabaseServers) -> Iterator[Callable[..., str]]:
    """Starts an ensemble of one with TLS. Returns its address."""
    started: list[ZooKeeperEnsemble] = []

    def start(certificates: Certificates, *, asks_clients: bool = False) -> str:
        started.append(make_zookeeper_or_skip(database_servers, 1))
        [server] = started[-1].servers
        server.use_tls(certificates, asks_clients=asks_clients)
        started[-1].start()
        return server.secure_address

    yield start
    gc.collect()
    for ensemble in started:
        ensemble.remove()


async def test_servers_use_an_ensemble_with_tls_and_certificates_of_their_own(
    secure: Callable[..., str], named: Certificates, start_here: StartHere
) -> None:
    address = secure(named, asks_clients=True)
    own = {
        "cluster.zookeeper_tls": True,
        "cluster.zookeeper_ca_file": str(named.authority),
        "cluster.zookeeper_certificate_file": str(named.certificate),
        "cluster.zookeeper_key_file": str(named.key),
    }
    servers = [await start_here(address, **own) for _ in range(2)]
    await until(lambda: share_all(servers))


async def test_a_server_does_not_start_if_the_certificate_does_not_name_the_host_or_the_files_are_wrong(
    secure: Callable[..., str], tmp_path: Path, named: Certificates, start_here: StartHere
) -> None:
    other = make_certificates(tmp_path / "other", "127.0.0.2")
    address = secure(other)
    tls = {"cluster.zookeeper_tls": True}
    with pytest.raises(SettingsError, match=r"TLS: .*IP address mismatch"):
        await start_here(address, **tls, **{"cluster.zookeeper_ca_file": str(other.authority)})
    with pytest.raises(SettingsError, match=r"TLS: .*(self-signed|unable to get local issuer)"):
        await start_here(address, **tls, **{"cluster.zookeeper_ca_file": str(named.authority)})
    with pytest.raises(SettingsError, match="zookeeper_ca_file can't be used"):
        await start_here(address, **tls, **{"cluster.zookeeper_ca_file": str(tmp_path / "none")})


async def test_a_server_without_the_certificate_that_the_ensemble_asks_for_does_not_start(
    secure: Callable[..., str], named: Certificates, start_here: StartHere
) -> None:
    address = secure(named, asks_clients=True)
    with pytest.raises(SettingsError, match="TLS: "):
        await start_here(
            address,
            **{"cluster.zookeeper_tls": True, "cluster.zookeeper_ca_file": str(named.authority)},
        )
