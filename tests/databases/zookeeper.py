"""A ZooKeeper ensemble, whose jars `scripts/zookeeper-server` puts into .venv: servers killed and started again as a test pleases."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import permutations
from pathlib import Path

from kazoo.client import KazooClient

from tests.databases.certificates import Certificates
from tests.databases.ports import free_port
from tests.databases.proxy import Proxy, all_in_thread
from tests.databases.server_process import Option, ServerMissing, ServerProcess, program

_JARS = Path(__file__).resolve().parents[2] / ".venv" / "zookeeper-3.9.5"
_TICK_MS = 200
# A follower tries again to connect to an elected leader that does not listen yet. If its connection is reset, there is no leader until
# the elected one gives up (initLimit).
_LEADER_LISTENS_S = 2.0
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


class ZooKeeperServer(ServerProcess):
    """One server of an ensemble, or the only one."""

    kind = "zookeeper"

    def __init__(self, folder: Path, number: int = 1) -> None:
        super().__init__(folder, {}, None, logs=["output.log"])
        self.number = number
        self.election_ports = free_port(), free_port()
        self.ensemble: Sequence[ZooKeeperServer] = []
        self.hosts_of_others: dict[ZooKeeperServer, str] = {}  # where this one looks for them, if not at theirs
        self.secure_port = 0
        self._tls: Mapping[str, Option] = {}
        self._begin_empty()

    def lose_data(self) -> None:
        """Everything that was stored is gone; call it while no server of the ensemble runs."""
        assert not self.running
        shutil.rmtree(self.data)
        self._begin_empty()

    def use_tls(self, certificates: Certificates, *, asks_clients: bool = False) -> None:
        """Listens with TLS, too, at `secure_address`; call it before the start. `asks_clients`: for certificates of the same authority."""
        self.secure_port = free_port()
        both = self.folder / "server-and-key.pem"
        both.write_bytes(certificates.certificate.read_bytes() + certificates.key.read_bytes())
        self._tls = {
            "secureClientPort": self.secure_port,
            "secureClientPortAddress": self.host,
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.location": str(both),
            "ssl.trustStore.location": str(certificates.authority),
            "ssl.clientAuth": "need" if asks_clients else "none",
        }

    @property
    def secure_address(self) -> str:
        return f"{self.host}:{self.secure_port}"

    def says(self, word: str) -> str:
        """The answer to one of ZooKeeper's words of four letters; '' if it does not answer."""
        with suppress(OSError), socket.create_connection((self.host, self.port), timeout=1.0) as connection:
            connection.settimeout(1.0)
            connection.sendall(word.encode())
            connection.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: connection.recv(4096), b"")).decode(errors="replace")
        return ""

    @property
    def is_leader(self) -> bool:
        return "Mode: leader" in self.says("srvr")

    def _begin_empty(self) -> None:
        self.data.mkdir()
        (self.data / "myid").write_text(str(self.number))

    @classmethod
    def command(cls) -> list[str]:
        """The program with the jars. Raises `ServerMissing`."""
        if not _JARS.exists():
            raise ServerMissing("no ZooKeeper here (scripts/zookeeper-server fetches one)")
        return [program("java", "default-jre-headless"), "-cp", f"{_JARS}/*"]

    def _arguments(self) -> Sequence[str]:
        lines: dict[str, Option] = {
            "dataDir": str(self.data),
            "clientPort": self.port,
            "clientPortAddress": self.host,
            "tickTime": _TICK_MS,
            "minSessionTimeout": 1_000,
            "initLimit": 50,
            "syncLimit": 25,
            "admin.enableServer": False,
            "4lw.commands.whitelist": "srvr,mntr",
            **self._tls,
        }
        # Names, since a server that asks for a connection says where it listens: others are to go by their own hosts file then, too.
        names = {server: f"member{server.number}" for server in self.ensemble}
        for server, name in names.items():
            peer, election = server.election_ports
            lines[f"server.{server.number}"] = f"{name}:{peer}:{election}"
        hosts = self.folder / "hosts"
        hosts.write_text(
            "".join(f"{self.hosts_of_others.get(each, each.host)} {name}\n" for each, name in names.items())
        )
        config = self.folder / "zoo.cfg"
        config.write_text(
            "".join(
                f"{name}={str(value).lower() if isinstance(value, bool) else value}\n" for name, value in lines.items()
            )
        )
        options = [
            f"-Dfolder={self.folder}/",  # the guard knows its servers by their folder
            "-Xmx64m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            f"-Djdk.net.hosts.file={hosts}",
            "-Dzookeeper.fastleader.maxNotificationInterval=1000",  # one that was cut off soon asks for the leader again
        ]
        return [*self.command(), *options, _MAIN, str(config)]

    def _answers(self) -> bool:
        return "Mode:" in self.says("srvr")

    def launch(self) -> None:
        """Runs it without a wait: the servers of an ensemble wait for each other."""
        self._launch()

    def wait_until_ready(self) -> None:
        """Waits until it serves."""
        self._wait_until_ready()


class ZooKeeperEnsemble:
    """Servers that keep the same nodes. Not running until `start`."""

    def __init__(self, folder: Path, servers: int) -> None:
        self.servers = [ZooKeeperServer(folder / str(number), number) for number in range(1, servers + 1)]
        for server in self.servers:
            server.ensemble = self.servers if servers > 1 else []
        self._links: dict[tuple[ZooKeeperServer, ZooKeeperServer], Sequence[Proxy]] = {}

    @property
    def address(self) -> str:
        """`host:port` of all, divided by commas."""
        return ",".join(server.address for server in self.servers)

    @contextmanager
    def divisible(self) -> Iterator[ZooKeeperEnsemble]:
        """The servers reach each other through proxies meanwhile; none may run before."""
        for one, other in permutations(self.servers, 2):
            host = one.hosts_of_others[other] = f"127.0.{one.number}.{other.number}"
            self._links[one, other] = [
                Proxy(f"{other.host}:{port}", host, port, _LEADER_LISTENS_S) for port in other.election_ports
            ]
        with all_in_thread(proxy for proxies in self._links.values() for proxy in proxies):
            yield self

    def cut_off(self, server: ZooKeeperServer) -> None:
        """It and the others don't hear each other until `heal`; clients reach all of them. Only if the ensemble is `divisible`."""
        for ends, proxies in self._links.items():
            if server in ends:
                for proxy in proxies:
                    proxy.refuse()
                    proxy.swallow()

    def heal(self) -> None:
        """All servers hear each other."""
        for proxies in self._links.values():
            for proxy in proxies:
                proxy.heal()

    def start(self) -> ZooKeeperEnsemble:
        """Runs those that don't, and waits until all serve."""
        stopped = [server for server in self.servers if not server.running]
        for server in stopped:
            server.launch()
        for server in stopped:
            server.wait_until_ready()
        return self

    def kill(self) -> None:
        """SIGKILL for all."""
        for server in self.servers:
            server.kill()

    def lose_data(self) -> None:
        """SIGKILL for all; they are empty when they start again."""
        self.kill()
        for server in self.servers:
            server.lose_data()

    def remove(self) -> None:
        """Killed, and their folders with them."""
        for server in self.servers:
            server.remove()

    def read(self, path: str, server: ZooKeeperServer | None = None) -> bytes:
        """What a node says, at this server or at any."""
        client = KazooClient((server or self).address)
        client.start()
        try:
            return bytes(client.get(path)[0])
        finally:
            client.stop()
            client.close()

    def leader(self) -> ZooKeeperServer:
        """The server that leads now."""
        [leader] = [server for server in self.servers if server.running and server.is_leader]
        return leader
