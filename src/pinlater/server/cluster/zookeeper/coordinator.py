"""ZooKeeper as coordinator: it knows which servers are alive and who owns what, and one server, the leader, plans.

While the ensemble has no quorum, or this server is cut off from it, owners stay as they are, and calls for an owner that is gone go
directly to the shard. A server that was cut off for longer than its session may still consider itself an owner after another one has
taken over: that costs speed, and breaks nothing.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.security import make_digest_acl

from pinlater.domain.clock import Clock
from pinlater.domain.errors import Unavailable
from pinlater.server.cluster.ownership.coordinator import Coordinator
from pinlater.server.cluster.settings import ClusterSettings
from pinlater.server.cluster.zookeeper.client_log import ClientLog
from pinlater.server.cluster.zookeeper.session import ZooKeeperSession
from pinlater.server.sharding.shard_lanes import ShardLanes
from pinlater.server.storage.values import NO_OWNERS, Member, Owners

logger = logging.getLogger(__name__)


class ZooKeeperCoordinator(Coordinator):
    """Coordinates by ZooKeeper. Answers as of the last look. `password`: of `zookeeper_user`. `address`: the address that this server
    announced to the shards. `changed()` is called when the content of the ensemble has changed.
    """

    name = "zookeeper"

    def __init__(
        self,
        settings: ClusterSettings,
        password: str,
        address: str,
        changed: Callable[[], None],
        clock: Clock,
        make_session: Callable[..., ZooKeeperSession] = ZooKeeperSession,
    ) -> None:
        hosts, _, path = settings.zookeeper.partition("/")
        user = settings.zookeeper_user
        self._settings = settings
        self._address = address
        self._changed = changed
        self._clock = clock
        self._trouble = ""
        self._trouble_since_ms = 0
        self._session = make_session(
            partial(_make_client, settings, hosts, password),
            f"/{path}",
            address,
            settings.session_timeout_s,
            f"ZooKeeper does not let {f'the user {user}' if user else 'a client without user'} read and change {settings.zookeeper}: "
            "cluster.zookeeper_user and cluster.zookeeper_password_file must be those that made its nodes",
            self._hear,
        )

    async def begin(self) -> None:
        """Waits for the first answer of the ensemble, for the session time-out at most. Raises `Unavailable` if it refuses this server,
        or if it can't be used with these TLS files."""
        if self._settings.zookeeper_tls:
            _check_files(self._settings)
        refusal = await self._session.begin()
        if refusal:
            await self.close()
            raise Unavailable(refusal)

    @property
    def trouble(self) -> str:
        if not self._trouble:
            return ""
        since = datetime.fromtimestamp(self._trouble_since_ms // 1000, UTC)
        return f"{self._trouble} (since {since:%Y-%m-%dT%H:%M:%SZ}; the owners of queues stay as they are)"

    @property
    def tells_of_servers(self) -> bool:
        return self._session.seen.current

    async def close(self) -> None:
        await self._session.close()

    def know_shards(self, secrets: Mapping[str, bytes]) -> None:
        fingerprints = {shard: sha256(secret).hexdigest()[:16] for shard, secret in secrets.items()}
        if fingerprints != self._session.shards:
            self._session.shards = fingerprints
            self._session.look_again()

    async def owners(self, members: Mapping[ShardLanes, Sequence[Member]]) -> Mapping[ShardLanes, Owners]:
        seen = self._session.seen
        if not seen.members:  # nothing is known yet
            return {}
        return {shard: seen.owners.get(shard.name, NO_OWNERS) for shard in members if shard.shared is not None}

    def lives(self, member: Member) -> bool:
        return member.address in self._session.seen.members

    def leads(self, shard: ShardLanes, able: Sequence[Member], wrong_s: float) -> bool:
        """It is the leader's turn, or that of the first able server if the leader is not able: it has the role `enqueue`, or can't reach
        the shard."""
        seen = self._session.seen
        addresses = [member.address for member in able]
        return seen.current and self._address == (seen.leader if seen.leader in addresses else addresses[0])

    def sees_all(self, missing: Collection[str], members: Mapping[ShardLanes, Sequence[Member]]) -> bool:
        return not missing

    async def assign(self, shard: ShardLanes, known: Owners, new: Owners) -> bool:
        return await self._session.assign(shard.name, known, new)

    def _hear(self) -> None:
        seen = self._session.seen
        if seen.trouble and not self._trouble:
            self._trouble_since_ms = self._clock.now_ms()
        if seen.trouble != self._trouble:
            if seen.trouble:
                logger.warning(
                    f"{seen.trouble}: this server changes no owners of queues",
                    extra={"zookeeper": self._settings.zookeeper},
                )
            else:
                logger.info("this server is registered in ZooKeeper again")
        self._trouble = seen.trouble
        self._changed()


def _check_files(settings: ClusterSettings) -> None:
    """Raises `Unavailable` if a TLS file can't be used: the client would only keep trying."""
    context = ssl.create_default_context()
    key = settings.zookeeper_key_file
    for name, path in (("ca", settings.zookeeper_ca_file), ("certificate", settings.zookeeper_certificate_file)):
        try:
            if path is not None and name == "ca":
                context.load_verify_locations(path)
            elif path is not None:
                context.load_cert_chain(path, key)
        except OSError as error:
            raise Unavailable(f"cluster.zookeeper_{name}_file can't be used: {error}") from error


def _make_client(settings: ClusterSettings, hosts: str, password: str, log: ClientLog) -> KazooClient:
    certificate, key = settings.zookeeper_certificate_file, settings.zookeeper_key_file
    user = settings.zookeeper_user
    return KazooClient(
        hosts=hosts,
        timeout=settings.session_timeout_s,
        auth_data=[("digest", f"{user}:{password}")] if user else None,
        default_acl=[make_digest_acl(user, password, all=True)] if user else None,
        use_ssl=settings.zookeeper_tls,
        check_hostname=settings.zookeeper_tls,
        ca=_text(settings.zookeeper_ca_file),
        certfile=_text(certificate),
        keyfile=_text(key or certificate),
        connection_retry={"max_tries": -1, "delay": 0.1, "max_delay": 1.0},
        logger=log.logger,
    )


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
