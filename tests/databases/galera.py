"""A cluster of MariaDB nodes on Galera, from Debian's packages.

A state transfer needs scripts of another package, so the nodes begin with equal data: those of a cluster that has run once. Then the only
thing to transfer is the position, which `galera_transfer/wsrep_sst_position` does.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tests.databases.database import argument
from tests.databases.mariadb import MariaDb
from tests.databases.ports import free_port
from tests.databases.server_process import STEP_S, DatabaseServerFailed, Option, ServerMissing, program

if TYPE_CHECKING:
    from tests.databases.certificates import Certificates

LIBRARY = Path("/usr/lib/galera/libgalera_smm.so")
_SCRIPTS = Path(__file__).parent / "galera_transfer"
_NEW_CLUSTER = "gcomm://"
_DEADLINE_S = 60.0
# A node that says nothing for so long is out of the cluster.
SILENT_S = 3


class GaleraNode(MariaDb):
    """One node. `start(wsrep_cluster_address=…)` makes it found a cluster, or join one."""

    kind = "galera"

    def __init__(
        self,
        folder: Path,
        template: Path,
        options: Mapping[str, Option],
        certificates: Certificates | None = None,
        disk_mib: int | None = None,
    ) -> None:
        self.cluster_port, self._transfer_port = free_port(), free_port()
        super().__init__(folder, template, options, certificates, disk_mib)
        self.environment["PATH"] = f"{_SCRIPTS}{os.pathsep}{os.environ['PATH']}"

    @classmethod
    def command(cls) -> list[str]:
        if not LIBRARY.exists():
            raise ServerMissing(f"no {LIBRARY} here (Debian package galera-4; scripts/test-packages installs it)")
        return super().command()

    @classmethod
    def make_template(cls, folder: Path) -> None:
        """A node that has founded a cluster and has stopped: it knows its position."""
        first = folder.with_suffix(".first")
        MariaDb.make_template(first)
        node = cls(folder.with_suffix(".node"), first, {})
        try:
            node.start(wsrep_cluster_address=_NEW_CLUSTER)
            node.stop()
            shutil.copytree(node.data, folder)
        finally:
            node.remove()
            shutil.rmtree(first)

    def join(self, other: GaleraNode) -> None:
        """Starts it, and waits until it has joined the other's cluster."""
        self.start(wsrep_cluster_address=f"{_NEW_CLUSTER}{other.host}:{other.cluster_port}")
        self.wait_until_synced()

    def found(self) -> None:
        """Starts it as the first node of a cluster."""
        self.start(wsrep_cluster_address=_NEW_CLUSTER)
        self.wait_until_synced()

    def wait_until_synced(self) -> None:
        """It takes commands, as a member of a cluster with a quorum."""
        client = [program("mariadb", "mariadb-client-core"), "--no-defaults", "--batch", f"--socket={self.socket}"]
        login = ["--user=admin", f"--password={self.password}", "-e", "SHOW STATUS LIKE 'wsrep_local_state_comment'"]
        deadline = time.monotonic() + _DEADLINE_S
        while b"Synced" not in subprocess.run([*client, *login], capture_output=True, check=False).stdout:
            if time.monotonic() > deadline:
                raise DatabaseServerFailed(f"{self.kind} was not synced within {_DEADLINE_S} s\n{self.log_tail()}")
            time.sleep(STEP_S * 10)

    def _arguments(self) -> Sequence[str]:
        provider = {
            "base_host": self.host,
            "base_port": self.cluster_port,
            "gmcast.listen_addr": f"tcp://{self.host}:{self.cluster_port}",
            "ist.recv_addr": f"{self.host}:{self._transfer_port}",
            "gcache.size": "8M",
            # A node that lags makes the others wait only when it is far behind.
            "gcs.fc_limit": 500,
            "evs.suspect_timeout": f"PT{SILENT_S}S",
            "evs.inactive_timeout": f"PT{SILENT_S * 2}S",
            "evs.install_timeout": f"PT{SILENT_S}S",
        }
        options: dict[str, Option] = {
            "wsrep_on": True,
            "wsrep_provider": str(LIBRARY),
            "wsrep_provider_options": ";".join([f"{name}={value}" for name, value in provider.items()]),
            "wsrep_node_address": self.host,
            "wsrep_sst_method": "position",
            "binlog_format": "ROW",
            "innodb_autoinc_lock_mode": 2,
        }
        return [*super()._arguments(), *[argument(name, value) for name, value in options.items()]]
