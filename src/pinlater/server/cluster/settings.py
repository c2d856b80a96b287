"""Settings of what decides among the servers of a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from pinlater.domain.servers import STORE_COORDINATOR


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """All servers of the same shards have the same ones."""

    coordinator: str = STORE_COORDINATOR
    """What decides which servers live and who owns which slices: `store` (the shards themselves), or `zookeeper`."""
    zookeeper: str = ""
    """The ensemble, and the path of the cluster in it: `zk1:2181,zk2:2181/pinlater`."""
    zookeeper_user: str = ""
    """User of ZooKeeper's digest authentication. Not set: the nodes are open to every client of the ensemble."""
    zookeeper_password_file: Path | None = None
    """Holds that user's password."""
    zookeeper_tls: bool = False
    """Encrypts the connection. The certificates must name the hosts."""
    zookeeper_ca_file: Path | None = None
    """Certificates of the authorities that may have signed those of the ensemble."""
    zookeeper_certificate_file: Path | None = None
    """This server's certificate, if the ensemble asks for one."""
    zookeeper_key_file: Path | None = None
    """The key of that certificate; not set: in the same file."""
    session_timeout_s: Annotated[float, Meta(ge=1.0, le=60.0)] = 6.0
    """A server of which ZooKeeper hears nothing for so long owns nothing any more. In seconds; `6s` or `6000ms` too."""
