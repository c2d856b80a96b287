"""Servers of the same shards know each other, send their calls to the owner of a queue, and wake each other's waiting dequeues.

The shards know which servers there are (`cluster.members`), their addresses (`cluster.peers`) and the owner of each slice
(`ownership`); calls and wakes (`dispatch.peer_wakes`) go over connections from server to server (`cluster.forwarding`). This module
connects these parts.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence, Set
from functools import partial
from heapq import nlargest
from itertools import chain
from typing import TypeAlias

from pinlater.domain.errors import PinLaterError
from pinlater.domain.servers import ServerFacts, ServerRole
from pinlater.domain.slices import slice_of
from pinlater.server.cluster.forwarding.carry_out import CarryOut
from pinlater.server.cluster.forwarding.forwarding import Forwarding
from pinlater.server.cluster.forwarding.messages import PARTITIONS_SINCE_VERSION, Told
from pinlater.server.cluster.forwarding.peer_connection import PeerConnection
from pinlater.server.cluster.forwarding.peer_listener import PeerListener
from pinlater.server.cluster.forwarding.unconfirmed_claims import AnsweredClaims
from pinlater.server.cluster.forwarding.workers_elsewhere import WorkersElsewhere
from pinlater.server.cluster.gauges import show_calls_for_others, show_forwarding, show_owners
from pinlater.server.cluster.members import ClusterMembers
from pinlater.server.cluster.ownership.coordinator import Coordinator
from pinlater.server.cluster.ownership.ownership import Ownership
from pinlater.server.cluster.ownership.store_coordinator import UNHEARD_S_MAX, StoreCoordinator
from pinlater.server.cluster.ownership.work import SliceWork, Work
from pinlater.server.cluster.peers import Peers
from pinlater.server.dispatch.dispatcher import Dispatcher
from pinlater.server.dispatch.interest import Interest, bit_of
from pinlater.server.dispatch.peer_wakes import PeerWakes
from pinlater.server.features.partitions.growth import OwnerLoad
from pinlater.server.features.status.cluster_status import status_of
from pinlater.server.features.status.queue_owners import KnownServer, queue_owners
from pinlater.server.operations.standstill import Standstill
from pinlater.server.sharding.lane_load import LaneLoads
from pinlater.server.sharding.shards import Shards
from pinlater.server.storage.values import NO_OWNER, Claimed
from pinlater.server.telemetry.loop_load import LoopLoad
from pinlater.server.telemetry.metrics import Metrics
from pinlater.tls.certificate import CertificateSource
from pinlater.wire.generated.structs import ClusterStatus, OwningServer, QueueOwners

logger = logging.getLogger(__name__)

FindCoordinator: TypeAlias = Callable[[str, Callable[[], None]], Awaitable[Coordinator]]
"""Makes a coordinator, from the address that this server announces and the function that it calls when there is news."""

# How often the other servers are told of queues for which no dequeue waits any longer.
_INTEREST_S = 1.0
# How often servers and owners are read while all other servers report their changes.
_TOLD_LOOK_S = 60.0
# How often the shards are asked which servers there are while the coordinator tells of them: it knows none that is cut off from it.
_ASK_AGAIN_S = 3_600.0
# Queues for which a server tells the others how many dequeues wait: those with the most.
WAITED_FOR_MAX = 1_000
# How long unique keys are still placed as the previous version places them after its last server was seen: a server that stood still, or
# was cut off, loses its place in the shards, and would not look for keys that were placed differently meanwhile.
_AFTER_OLDER_S = 60.0
# Share of a core above which clients are sent to other servers than the owner.
_BUSY_SHARE = 0.7


class Cluster:
    """The other servers of the shards, as one server knows them, and its connections to them. `cpu`: the seconds of CPU time that the
    calling thread has used."""

    def __init__(
        self,
        shards: Shards,
        dispatcher: Dispatcher,
        standstill: Standstill,
        catch_up: Callable[[int], None],
        certificate: CertificateSource | None = None,
        cpu: Callable[[], float] = lambda: 0.0,
        find_coordinator: FindCoordinator | None = None,
        role: ServerRole = ServerRole.ALL,
    ) -> None:
        """`catch_up`: that of the shards' clock. `certificate`: None leaves calls between servers unencrypted. `find_coordinator`: None
        makes the shards the coordinator."""
        self._shards = shards
        self._dispatcher = dispatcher
        self.members = ClusterMembers(shards)
        self.members_changed: Callable[[], None] = lambda: None
        self.wakes = PeerWakes(dispatcher.wakeups.wake_from_peer)
        self._find_coordinator = find_coordinator
        self._role = role
        self._coordinator: Coordinator | None = None
        self.ownership: Ownership | None = None
        self.forwarding: Forwarding | None = None
        self._clock = shards.clock
        self._load = LoopLoad(shards.clock.monotonic, cpu)
        self._work = SliceWork(shards, shards.clock.monotonic)
        self._lanes = LaneLoads(shards, shards.clock.monotonic)
        self.for_clients = OwningServer("")  # how clients know this server, and where they reach it
        self.facts: Callable[[], ServerFacts] = ServerFacts
        self.listener = PeerListener(
            CarryOut(shards, catch_up),
            self._undelivered,
            lambda: self._secrets,
            standstill.still_runs,
            self._look_soon,
            self._told,
            shards.clock.monotonic,
            shards.settings.call_timeout_ms / 1000,
            certificate,
        )
        self.listener.take_wakes = self.wakes.take
        self.workers_elsewhere = WorkersElsewhere(self._connections)
        self._tls = certificate is not None
        self._interest = Interest(self._dequeued, self._tell_waits)
        self.queues_changed: Callable[[], None] = lambda: None
        self._queue_changes = 0
        self._interest_looked_s = -math.inf
        self._looked_s = -math.inf
        self._asked_s = -math.inf
        self._looking: asyncio.Task[None] | None = None  # looks that another server, or the coordinator, asked for
        self._look_wanted = False
        self._ends = False
        standstill.listeners.append(lambda _: self.listener.abort_connections())
        self._peers: Peers | None = None
        self._has_older = False  # whether a shard names a server that places each unique key by itself
        self._had_older_s = -math.inf  # when one did last
        self._secrets: list[bytes] = []

    async def listen(
        self, host: str, port: int, reached_at: str, local_path: Callable[[str], str] | None = None
    ) -> str:
        """Accepts connections of the other servers from now on, and connects to them. `reached_at`: the address at which they reach `host`.
        Returns that address with the port.

        `local_path(address)`: where servers of the same supervisor listen, or None if there is none. Raises OSError.
        """
        address = f"{reached_at}:{await self.listener.open(host, port)}"
        if local_path is not None:
            await self.listener.open_local(local_path(address))
        self._peers = Peers(address)
        if self._find_coordinator is None:
            self._coordinator = StoreCoordinator(self._shards, address, self._hears, self._serves)
        else:
            self._coordinator = await self._find_coordinator(address, lambda: self._look_soon(address))
        self._shards.register_as(address)
        self.ownership = Ownership(
            self._shards,
            address,
            self._coordinator,
            self._hears,
            self._serves,
            self._tell_to_look,
            self._work_of_all,
        )
        self.forwarding = Forwarding(
            self._shards,
            address,
            self.ownership.owners,
            self._look_soon,
            self._waits_changed,
            lambda: self.queues_changed(),
            local_path,
            family=self.listener.family,
            tls=self._tls,
            stores_here=self._role is ServerRole.ENQUEUE,
        )
        self._dispatcher.wakeups.join_others(self.wakes.tell, self._interest.begins)
        self._dispatcher.limits.join_others(self._interest.begins)
        await self._meet()
        return address

    @property
    def address(self) -> str | None:
        """The address at which the other servers reach this one, or None if no others share the shards."""
        return None if self.ownership is None else self.ownership.address

    async def look(self) -> None:
        """Reads from the shards which servers there are, and which of them owns each slice."""
        self._looked_s = self._asked_s = self._clock.monotonic()
        if await self.members.look():
            self.members_changed()
        await self._meet()

    @property
    def trouble(self) -> str:
        """Returns why the owners of queues can't be decided now; '' if they can."""
        return "" if self._coordinator is None else self._coordinator.trouble

    @property
    def is_calm(self) -> bool:
        """Whether all other servers answer over their connections, the shards named each one that is heard, and each slice has its
        planned owner. Then this server reads the shards and renews its lease less often."""
        if self.ownership is None:
            return True
        known = {member.address for found in self.members.by_shard.values() for member in found}
        return self.ownership.is_calm(self.members.by_shard) and self.listener.heard(UNHEARD_S_MAX) <= known

    @property
    def is_told(self) -> bool:
        """Whether there are other servers, and all of them report their changes over their connections."""
        return bool(self._links())

    def tell_queues_changed(self) -> None:
        """Tells the other servers that this one has made, changed or deleted a queue."""
        self._queue_changes += 1
        self.listener.tell()

    def _told(self) -> Told:
        """Returns the facts that this server reports about itself."""
        unreachable = [shard.name for shard in self._shards if not shard.healthy]
        changes = {shard.name: shard.shared.changes for shard in self._shards if shard.shared is not None}
        return Told(
            unreachable,
            changes,
            self._queue_changes,
            self.for_clients.id,
            self.for_clients.address or "",
            self._is_busy,
            self.facts(),
            self._work.last_minute,
            most_waited_for(self._dispatcher.waiting_by_queue()),
            round(self._load.share, 2),
            self._lanes.of,
        )

    def own_loads(self) -> Mapping[str, float]:
        """Returns the load of this server, by shard: of the busiest of its lanes there, or of its event loop."""
        return {shard: max(lanes, self._load.share) for shard, lanes in self._lanes.of.items()}

    def load_of(self, shard: str, queue: str) -> OwnerLoad | None:
        """Returns how busy the owner of a queue on a shard is, by its latest report, or None if that is not known."""
        if self.ownership is None or self.forwarding is None:
            return None
        owner = self.ownership.owners(shard)[slice_of(queue)]
        if owner == self.ownership.address:
            return OwnerLoad(owner, self._lanes.of.get(shard, 0.0), self._load.share)
        link = self.forwarding.connections.get(owner)
        if link is None or link.told is None or not link.says_what_it_changes(UNHEARD_S_MAX):
            return None
        if link.version < PARTITIONS_SINCE_VERSION:
            return None
        return OwnerLoad(owner, link.told.lanes.get(shard, 0.0), link.told.loop)

    def waiting_elsewhere(self, queue: str) -> int:
        """Returns how many dequeues wait for the queue at other servers, by their latest reports. A server that is not heard counts as
        having none.
        """
        links = [link for link in self._connections() if link.says_what_it_changes(UNHEARD_S_MAX)]
        return sum(link.told.waiting.get(queue, 0) for link in links if link.told is not None)

    @property
    def _is_busy(self) -> bool:
        return self._load.share >= _BUSY_SHARE

    def _links(self) -> Sequence[PeerConnection]:
        """Returns the connections to all other servers if all of them have recently reported their changes, otherwise none."""
        if self.forwarding is None or not self.is_calm:
            return ()
        others = {member.address for found in self.members.by_shard.values() for member in found} - {self.address}
        links = [self.forwarding.connections.get(address) for address in sorted(others)]
        told = [link for link in links if link is not None and link.says_what_it_changes(UNHEARD_S_MAX)]
        return told if len(told) == len(links) else ()

    def _work_of_all(self) -> Sequence[Work] | None:
        """Returns the work of the last minute by server, or None unless all others have recently reported theirs."""
        told = [link.told.work for link in self._links() if link.told is not None]
        return [self._work.last_minute, *told] if told else None

    def _changes_of_others(self, shard: str) -> Hashable | None:
        """Returns a value that changes when other servers change the shard (`OfSeveralServers.follow`)."""
        told = [(link.nonce, link.told.changes.get(shard)) for link in self._links() if link.told is not None]
        return tuple(told) or None

    def swept_by_others(self) -> Set[str]:
        """The shards whose periodic work another server does: the owner of the first slice. None while servers come and go."""
        if self.ownership is None or not self.is_calm:
            return frozenset()
        first_owners = {shard.name: self.ownership.owners(shard.name)[0] for shard in self._shards}
        return {shard for shard, owner in first_owners.items() if owner not in {self.ownership.address, NO_OWNER}}

    async def look_if_due(self, interval_s: float) -> None:
        """Does what `look` does, but nothing if the cluster is calm, all shards of the map were asked at the last look, and that was less
        than `interval_s` ago: less than a minute ago, while all other servers tell what they change (`is_told`). Asks the shards only once
        an hour while the coordinator tells of servers."""
        if self.is_told:
            interval_s = max(interval_s, _TOLD_LOOK_S)
        now_s = self._clock.monotonic()
        is_due = now_s - self._looked_s >= interval_s
        asks = is_due and (now_s - self._asked_s >= _ASK_AGAIN_S or not self._is_told_of_servers())
        if asks or not self.is_calm or self._has_other_shards():
            await self.look()
        elif is_due:
            self._looked_s = now_s
            await self._meet()

    def _is_told_of_servers(self) -> bool:
        """Returns whether this server learns of each registered one that comes or goes, and nothing about servers is still to be found
        out, so that the shards need not be asked each time."""
        told = self.is_told and self._coordinator is not None and self._coordinator.tells_of_servers
        return told and not self.members.differ

    def _has_other_shards(self) -> bool:
        """Returns whether a shard is new in the map, or reachable again, or no longer in the map, since the last look."""
        asked = self.members.by_shard.keys()
        in_reach = {shard for shard in self._shards.in_reach() if shard.shared is not None}
        return not in_reach <= asked <= set(self._shards)

    def _look_soon(self, address: str) -> None:
        """Notes that another server has come or gone, can work on other shards than before, or has changed owners."""
        self._look_wanted = True
        if not self._ends and (self._looking is None or self._looking.done()):
            self._looking = asyncio.ensure_future(self._look_while_wanted())

    def _look_no_more(self) -> None:
        """Ignores the ends of connections from now on."""
        self._ends = True
        if self._looking is not None:
            self._looking.cancel()

    async def _look_while_wanted(self) -> None:
        """Repeats the look until no further one is requested, since the data may have changed meanwhile."""
        while self._look_wanted:
            self._look_wanted = False
            try:
                await self.look()
            except PinLaterError as error:
                logger.info("the servers of the shards can't be looked up", extra={"reason": error.message})

    def _heard_s(self, address: str) -> float:
        outgoing = -math.inf if self.forwarding is None else self.forwarding.heard_s(address)
        return max(outgoing, self.listener.heard_s(address))

    def _hears(self, address: str) -> bool:
        """Returns whether that server recently sent something over a connection."""
        return self._clock.monotonic() - self._heard_s(address) <= UNHEARD_S_MAX

    def _was_heard_s(self, address: str) -> float:
        return max(self._heard_s(address), self.listener.was_heard_s(address))

    def _serves(self, address: str, shard: str) -> bool:
        return self.forwarding is None or self.forwarding.serves(address, shard)

    def _tell_to_look(self) -> None:
        if self.forwarding is not None:
            self.forwarding.tell_to_look()

    async def _meet(self) -> None:
        found = chain.from_iterable(self.members.by_shard.values())
        self._has_older = any(member.peer_version < PARTITIONS_SINCE_VERSION for member in found)
        self._place_unique_keys()
        for shard in self.members.by_shard:
            if shard.shared is not None:
                shard.shared.follow(partial(self._changes_of_others, shard.name))
        if self._peers is not None:
            await self._peers.look(self.members.by_shard)
            self._secrets = self._peers.secrets
            self.wakes.has_peers = bool(self._peers.secret_of)
            if self._coordinator is not None:
                self._coordinator.know_shards(self._peers.secrets_by_shard)
        if self.ownership is not None:
            await self.ownership.look(self.members.by_shard)
        if self.forwarding is not None and self._peers is not None:
            self.forwarding.know(self._peers.secret_of)

    def show(self, metrics: Metrics) -> None:
        """Adds the cluster's metrics. Adds none before `listen`."""
        if self.ownership is not None and self.forwarding is not None:
            show_owners(self.ownership, metrics)
            if self._role is not ServerRole.ALL:
                show_calls_for_others(self._role, metrics)
            show_forwarding(self.forwarding, self.listener.taken, metrics)

    def status(self) -> ClusterStatus:
        """The servers of the shards, and what each owns. Call it after `listen`."""
        if self.ownership is None or self.forwarding is None:
            raise RuntimeError("this server does not listen to others")
        status = status_of(
            self._shards, self.members.by_shard, self.ownership, self.forwarding, self.listener.taken, self._was_heard_s
        )
        status.coordinator_trouble = self.trouble or None
        return status

    def owners(self) -> QueueOwners:
        """The servers that own queues, as clients know them: those to which this server can send calls, and itself."""
        if self.ownership is None or self.forwarding is None or self._role is ServerRole.ENQUEUE:
            return QueueOwners((), ())  # clients of a server with the role `enqueue` stay there
        known = {self.ownership.address: KnownServer(self.for_clients, self._is_busy)}
        for address, link in self.forwarding.connections.items():
            if link.usable and link.told is not None:
                known[address] = KnownServer(
                    OwningServer(link.told.server_id, link.told.clients_at or None), link.told.busy
                )
        can_be_told_apart = {address: server for address, server in known.items() if server.named.id}
        partitions = {
            queue.name: number
            for queue in self._shards.known_queues()
            if (number := queue.config.partitions or queue.auto_partitions) > 1
        }
        return queue_owners(self._shards, self.ownership.owners, can_be_told_apart, partitions)

    async def leave(self, grace_s: float) -> None:
        """Hands over what this server owns, before it stops. If a shard takes longer than `grace_s`, the lease lapses there instead."""
        try:
            if self.ownership is not None:
                async with asyncio.timeout(grace_s):
                    await self.ownership.leave(self.members.by_shard)
        except TimeoutError:
            logger.info("what this server owns could not be handed over in time")
        except Exception:  # a bug, or owners in a shard that can't be read: the server must stop all the same
            logger.exception("what this server owns could not be handed over")
        finally:
            self.listener.say_goodbye()

    def _place_unique_keys(self) -> None:
        """Places unique keys as all servers of the shards can, and for `_AFTER_OLDER_S` after the last sight of a server of the previous
        version as that one does: it may only have stood still."""
        now_s = self._clock.monotonic()
        if self._has_older:
            self._had_older_s = now_s
        self._shards.unique.go_by(queue=now_s - self._had_older_s > _AFTER_OLDER_S)

    def look_at_calls(self) -> None:
        """Stops forwarding calls to servers that don't answer. Call it several times a second."""
        self._place_unique_keys()
        self._load.look()
        self._work.look()
        self._lanes.look()
        if self.forwarding is not None:
            self.forwarding.look_at_calls()
        now_s = self._clock.monotonic()
        if now_s - self._interest_looked_s >= _INTEREST_S:
            self._interest_looked_s = now_s
            self._interest.look()

    def _dequeued(self) -> Iterable[str]:
        """The queues that other servers must know of: those for whose jobs dequeues wait here, and those whose limits this server
        shares."""
        return chain(self._dispatcher.wakeups.count_by_queue(), self._dispatcher.limits.dequeued_lately())

    def _waits_changed(self, connection: PeerConnection) -> None:
        self.wakes.know_waits(connection, connection.waits)
        self._dispatcher.limits.share_again()

    def idle_for(self, queue: str) -> int:
        """Returns how many other servers report that no dequeue there asks for jobs of this queue. Servers that report nothing are not
        counted."""
        return sum(link.waits is not None and not link.waits & bit_of(queue) for link in self._connections())

    def _connections(self) -> Collection[PeerConnection]:
        return () if self.forwarding is None else self.forwarding.connections.values()

    def _tell_waits(self) -> None:
        self.listener.tell_waits(self._interest.bits)

    def _undelivered(self, claims: AnsweredClaims) -> None:
        """Releases the jobs that another server claimed, since it is gone and did not get the answer."""
        undelivered = self._shards.hooks.undelivered
        if undelivered is not None:
            for request, claimed in zip(claims.requests, claims.answers, strict=True):
                if isinstance(claimed, Claimed):
                    undelivered(claims.shard, request, claimed)

    async def end_calls(self, grace_s: float) -> None:
        """Stops sending calls to other servers and accepting theirs. Answers the calls that they have sent, for at most `grace_s`."""
        self._look_no_more()
        if self.forwarding is not None:
            await self.forwarding.close()
        if self._coordinator is not None:
            await self._coordinator.close()
        await self.listener.drain(grace_s)
        self.listener.close()

    def close(self) -> None:
        """Closes the sockets to other servers."""
        self._look_no_more()
        self.workers_elsewhere.close()
        self.listener.close()
        self.wakes.close()


def most_waited_for(waiting: Mapping[str, int]) -> Mapping[str, int]:
    """Returns the numbers of waiting dequeues, by queue, that are reported to the other servers."""
    if len(waiting) <= WAITED_FOR_MAX:
        return waiting
    return dict(nlargest(WAITED_FOR_MAX, waiting.items(), key=lambda item: item[1]))
