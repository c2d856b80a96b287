"""The composition root: makes a server's parts, starts them in order, and stops them in the opposite one.

Nothing else in the package makes clocks, random numbers, stores or listeners. Start: store, service, maintenance, listeners. Stop: no
more connections, finish the calls under way, then close the store, so that no answer reports what is not stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Protocol

from pinlater.domain.clock import Clock, SystemClock, thread_cpu_s
from pinlater.domain.queue import QueueCounts
from pinlater.domain.servers import ServerFacts, ServerRole
from pinlater.server.access.control import AccessControl
from pinlater.server.access.tokens import Token
from pinlater.server.config.checks import access_of
from pinlater.server.config.file_authors import authors_of
from pinlater.server.config.schema import keys
from pinlater.server.config.settings import Settings
from pinlater.server.features.all import METHODS, OPERATIONS
from pinlater.server.features.partitions.auto_partitions import AutoPartitions
from pinlater.server.features.status.status import Status
from pinlater.server.features.workers.workers import Workers
from pinlater.server.front.front_listener import FrontListener
from pinlater.server.front.messages import StoreState
from pinlater.server.http.server import PLACES_FOR_CHECKS, HttpServer
from pinlater.server.http.status import OneServer, Readiness
from pinlater.server.main.clock_watch import ClockWatch
from pinlater.server.main.cluster import Cluster, FindCoordinator
from pinlater.server.main.coordinator import find_coordinator
from pinlater.server.main.core import Core
from pinlater.server.main.file_changes import (
    changed_ms,
    limit_changes,
    server_set_changes,
    shard_changes,
    token_changes,
)
from pinlater.server.main.file_watch import FileWatch, SharedLimits
from pinlater.server.main.listener_files import ListenerFiles
from pinlater.server.main.periodic_work import PeriodicWork
from pinlater.server.main.readiness import ReadinessWatch
from pinlater.server.main.socket_folder import SocketFolder
from pinlater.server.main.until_event import ends_before
from pinlater.server.maintenance.runner import MaintenanceRunner
from pinlater.server.operations.service import Service
from pinlater.server.operations.standstill import Standstill
from pinlater.server.sharding.map_reader import MapReader
from pinlater.server.sharding.reload import DesiredShard
from pinlater.server.telemetry.loop_lag import LoopLag
from pinlater.server.telemetry.metrics import Metrics
from pinlater.server.telemetry.tracing import find_tracing
from pinlater.server.thrift.guard import Guard
from pinlater.server.thrift.open_files import TooFewOpenFiles
from pinlater.server.thrift.server import ThriftServer
from pinlater.tls.certificate import CertificateSource
from pinlater.version import __version__
from pinlater.wire.generated.structs import OwningServer

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def listening(what: str, host: str, port: int, setting: str) -> Iterator[None]:
    """Adds to an error which listener could not listen on which address, and which setting changes it: the system's text for an unknown
    host names neither. `setting`: that of the port."""
    try:
        yield
    except TooFewOpenFiles:
        raise
    except OSError as error:
        text = error.strerror or str(error)
        reason = text.rpartition("): ")[2]  # the event loop puts the address before the reason
        reason = reason[:1].lower() + reason[1:]
        hint = ""
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            hint = f" ({_another(setting, 'port')})"
        elif error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
            hint = f" ({_another('host', 'address')})"
        raise OSError(f"{what} can't listen on {host} port {port}: {reason}{hint}") from error


def _another(setting: str, what: str) -> str:
    """Returns how to choose another port or address."""
    flag = keys()[setting].flag
    if flag.startswith("--set "):
        return f"the setting {setting} chooses another {what}, as does {flag}={what.upper()}"
    return f"{flag} chooses another {what}, as does {setting} in the settings"


class Served(Protocol):
    """What a Thrift listener needs: a `Core`, or a front process, which uses the service of another process."""

    service: Service
    settings: Settings
    metrics: Metrics
    standstill: Standstill

    @property
    def clock(self) -> Clock: ...


def thrift_server(
    served: Served,
    *,
    shared_port: bool = False,
    access: AccessControl | None = None,
    certificate: CertificateSource | None = None,
) -> ThriftServer:
    """The Thrift listener of these parts, not started. `shared_port`: other processes listen on the same one. `access`: None lets all
    callers in.
    `certificate`: None serves without TLS."""
    tracing = find_tracing()
    return ThriftServer(
        served.service,
        served.settings.thrift,
        served.metrics,
        served.clock,
        {name: method.traced(tracing) for name, method in METHODS.items()},
        shared_port=shared_port,
        standstill=served.standstill,
        other_connections=served.settings.http.max_connections + PLACES_FOR_CHECKS,
        guard=None if access is None else Guard(access),
        certificate=certificate,
    )


class App:
    """One server. `start`, then `stop`; not to be started again.

    `one_of_many`: other processes listen on the same Thrift port, and another process has the HTTP port. `fronts_path`: where to listen
    for the front processes of this process's store, if there are any. `sockets`: where the servers of the same supervisor listen for each
    other.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        clock: SystemClock | None = None,
        random: Random | None = None,
        one_of_many: bool = False,
        fronts_path: str | None = None,
        sockets: SocketFolder | None = None,
    ) -> None:
        self.settings = settings
        self.clock = clock or SystemClock()
        self._started_at_ms = self.clock.now_ms()
        self._started_s = self.clock.monotonic()
        self.metrics = Metrics(queues_max=settings.telemetry.queue_metrics_max)
        self._random = random or Random()  # noqa: S311 - spreads load, guards nothing
        self._one_of_many = one_of_many
        self._fronts_path = fronts_path
        self._sockets = sockets
        self.fronts: FrontListener | None = None
        self._told_apart = not one_of_many  # by clients, which can't choose between processes on one port
        self._thread_cpu_s = thread_cpu_s
        self._readiness = ReadinessWatch()
        self._files = FileWatch(settings)
        self.listener_files = ListenerFiles(settings, self.clock)
        self.certificate = self.listener_files.certificate
        self._clock_watch = ClockWatch(self.clock, self.metrics)
        self._cut_off = asyncio.Event()
        self._reloading: asyncio.Future[None] | None = None
        self.http = HttpServer(
            settings.http,
            self.metrics,
            OneServer(self.metrics, self.readiness, self.server_info, self.queue_counts),
            queue_series_max=settings.telemetry.queue_series_max,
            access=self.listener_files.access,
            certificate=self.certificate,
        )

    # --- life -------------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Opens the store and listens. Raises `Unavailable` or OSError with a clear text, after it has stopped what it started."""
        async with contextlib.AsyncExitStack() as begun:
            if not self._one_of_many:
                with listening("HTTP", self.settings.http.host, self.settings.http.port, "http.port"):
                    await self.http.start()  # first, so that /readyz tells why the start takes long
                begun.push_async_callback(self.http.stop)
            self.core = await self._open_core()
            begun.push_async_callback(self.core.close)
            self._assemble()
            begun.callback(self.cluster.close)
            begun.push_async_callback(self.cluster.end_calls, 0.0)
            await self.cluster.look()
            await self.core.catch_up()
            await self._hear_others()
            with listening("Thrift", self.settings.thrift.host, self.settings.thrift.port, "thrift.port"):
                await self.thrift.start()
            await self._hear_fronts()
            begun.pop_all()
        self.core.service.identity.port = self.thrift.port
        self._tell_clients()
        self.core.service.of(Status).access = access_of(self.settings)
        self.runner.start()
        self.loop_lag.start()
        self._readiness.state = "ready"
        self._files.begin(self._limits_reloaded, self._shards_reloaded)
        if self.settings.store.shard_file is not None:
            self.core.shards.reader = MapReader(self._files.look, self.clock.monotonic)
        self.listener_files.changed = self._tokens_changed
        logger.info(
            "ready",
            extra={
                "version": __version__,
                "store": str(self.settings.store),
                "host": self.settings.host,
                "thrift_port": self.thrift.port,
                "http_port": self.http.port,
            },
        )

    async def _open_core(self) -> Core:
        return await Core.open(
            self._desired(),
            self.settings,
            self.metrics,
            self.clock,
            self._random,
            agree=self._clock_watch.agree,
            started_at_ms=self._started_at_ms,
            file_limits=lambda: self._files.shared_limits.limits,
            servers=self._servers_that_share,
        )

    def _assemble(self) -> None:
        """Assembles the parts that work on the core."""
        metrics = self.metrics
        self.cluster = Cluster(
            self.core.shards,
            self.core.dispatcher,
            self.core.standstill,
            self.clock.catch_up,
            self.certificate if self.settings.tls.between_servers else None,
            self._thread_cpu_s,
            self._find_coordinator(),
            ServerRole(self.settings.role),
        )
        self.listener_files.show(metrics)
        metrics.labelled_gauge(
            "file-broken-",
            lambda: {**self._files.broken, **self.listener_files.broken},
            prometheus="pinlater_file_broken",
            label="file",
            help="1 while a file that is read again can't be, and its old values hold",
            join="max",
        )
        self.thrift = thrift_server(
            self.core, shared_port=self._one_of_many, access=self.listener_files.access, certificate=self.certificate
        )
        self.periodic_work = PeriodicWork(
            self.core,
            self.cluster,
            self._clock_watch,
            self._files,
            self._readiness,
            self.listener_files,
            self._tell_fronts,
        )
        self.loop_lag = LoopLag(self.settings.telemetry.loop_lag_interval_ms, self.clock.monotonic, thread_cpu_s)
        self.loop_lag.show(metrics)
        status, workers = self.core.service.of(Status), self.core.service.of(Workers)
        status.facts = self.cluster.facts = self._facts
        self.core.service.queues.waiting_elsewhere = self.cluster.waiting_elsewhere
        workers.elsewhere = self.cluster.workers_elsewhere.ask
        self.cluster.listener.workers = workers.workers_here
        self.runner = MaintenanceRunner(self.periodic_work.table(), metrics, self._random)

    def _facts(self) -> ServerFacts:
        lag_ms = round(self.loop_lag.lag.longest_s() * 1000)
        return ServerFacts(__version__, self._started_at_ms, self.thrift.connections, lag_ms)

    async def _hear_others(self) -> None:
        """Starts to accept connections of the other servers of the shards, if servers can share them."""
        if not any(shard.unguarded.capabilities.shared for shard in self.core.shards):
            return
        host, port = self.settings.host, self.settings.peer_port
        bound = None if host in {"0.0.0.0", "::", ""} else host  # noqa: S104 a comparison
        reached_at = self.settings.advertised_address or self.settings.advertised_host or bound or socket.gethostname()
        local_path = None if self._sockets is None else self._sockets.of_server
        with listening("The listener for other servers", host, port, "peer_port"):
            address = await self.cluster.listen(host, 0 if self._one_of_many else port, reached_at, local_path)
        logger.info("other servers reach this one", extra={"address": address})
        self.cluster.show(self.metrics)
        self.core.service.of(Status).cluster_status = self.cluster.status
        self.core.service.of(AutoPartitions).join(self.cluster.own_loads, self.cluster.load_of)

    async def _hear_fronts(self) -> None:
        """Starts to accept front processes of this process's store."""
        path = self._fronts_path
        if path is None:
            return
        core = self.core
        fronts = self.fronts = FrontListener(
            core.service,
            OPERATIONS,
            core.dispatcher.stop_waiting,
            core.standstill.still_runs,
            self.settings.thrift.max_buffered_bytes,
            core.standstill.too_old,
        )
        core.standstill.listeners.append(lambda _: fronts.abort_connections())
        core.service.of(Status).front_processes = fronts.processes
        self.metrics.gauge(
            "front-connections",
            lambda: len(fronts.connections),
            prometheus="pinlater_front_connections",
            help="Front processes that are connected to the process that has the store",
        )
        await fronts.open_local(path)

    def _tell_clients(self) -> None:
        """Lets clients that know the owners of queues find this server."""
        if not self._told_apart or self.cluster.address is None:
            return
        status, settings = self.core.service.of(Status), self.settings
        status.server_id = self.core.service.identity.life
        reached_at = self.cluster.address.rpartition(":")[0]
        address = settings.advertised_thrift_address or f"{reached_at}:{self.thrift.port}"
        self.cluster.for_clients = OwningServer(status.server_id, address)
        status.queue_owners = self.cluster.owners

    async def stop(self, grace_s: float) -> None:
        """Stops accepting, finishes the calls under way for at most `grace_s` seconds, closes the store."""
        self._readiness.state = "draining"
        self._files.end()
        if self.core.shards.reader is not None:
            await self.core.shards.reader.close()
        logger.info("draining", extra={"grace_seconds": grace_s})
        self.core.dispatcher.drain()
        await self._drain_until_cut_off(grace_s)
        if self.fronts is not None:
            self.fronts.close()
        await self.cluster.end_calls(0.0)
        self.loop_lag.stop()
        await self.runner.stop()
        await self.listener_files.note_uses()
        self.cluster.close()
        await self.core.close()
        await self.http.stop()
        self._readiness.state = "stopped"
        logger.info("stopped")

    def cut_off(self) -> None:
        """Closes the connections for which `stop` still waits."""
        self._cut_off.set()

    def reload(self) -> None:
        """Rereads the files of limits and shards now instead of within ten seconds."""
        self._reloading = asyncio.ensure_future(self._files.look())

    async def _drain_until_cut_off(self, grace_s: float) -> None:
        draining = asyncio.create_task(self._drain(grace_s))
        if await ends_before(draining, self._cut_off):
            draining.result()
            return
        draining.cancel()
        await asyncio.wait([draining])
        if self.fronts is not None:
            self.fronts.close()
        await self.thrift.drain(0)

    async def _drain(self, grace_s: float) -> None:
        """Finishes the requests of this server's own clients, which may need other servers, and then those of other servers."""
        began_s = self.clock.monotonic()
        async with asyncio.TaskGroup() as both:
            both.create_task(self.cluster.leave(grace_s))
            both.create_task(self.thrift.drain(grace_s))
            if self.fronts is not None:
                both.create_task(self.fronts.drain(grace_s))
        await self.cluster.end_calls(max(0.0, grace_s - (self.clock.monotonic() - began_s)))

    # --- for pages and probes ---------------------------------------------------------------------------------------------

    def readiness(self) -> Readiness:
        """Returns whether the server is ready for requests, and why not."""
        if not self._readiness.ready:
            return self._readiness.readiness(None)
        return self._readiness.readiness(self.core.shards, self.cluster.trouble)

    def _tell_fronts(self) -> None:
        if self.fronts is not None:
            readiness = self.readiness()
            self.fronts.tell(StoreState(readiness.ok, readiness.reasons))

    def server_info(self) -> Mapping[str, object]:
        return {
            "name": "pinlater",
            "version": __version__,
            "state": self._readiness.state,
            "store": self.settings.store.kind,
            "access": access_of(self.settings),
            "thrift_port": self.thrift.port if self._readiness.ready else None,
            "server": self.core.service.identity.address if self._readiness.ready else None,
            "cluster_address": self.cluster.address if self._readiness.ready else None,
            "started_at_ms": self._started_at_ms,
            "uptime_ms": round((self.clock.monotonic() - self._started_s) * 1000),
            "members": [member._asdict() for member in self.cluster.members.known] if self._readiness.ready else [],
        }

    def queue_counts(self) -> Sequence[QueueCounts]:
        """The jobs in the store by queue, as of the last sample."""
        return self.core.rates.counts if self._readiness.ready else ()

    def _servers(self) -> int:
        """Returns how many servers share the limits: those that the store knows, or those of the file, each counted with as many
        processes as this one."""
        return self._files.servers(self.cluster.members.servers)

    def _servers_that_share(self, queue: str) -> int:
        """Returns how many servers share the limit of the queue: all except those that report that no dequeue asks them for its jobs."""
        return max(1, self._servers() - self.cluster.idle_for(queue))

    # --- changes of files -------------------------------------------------------------------------------------------------

    async def _limits_reloaded(self, before: SharedLimits, after: SharedLimits) -> None:
        self.core.limits_changed()
        logger.info("limits reloaded", extra={"servers": self._servers(), "queues": len(after.limits)})
        limits_ms = await self._changed_ms(self.settings.queue_limits_file)
        servers_ms = await self._changed_ms(self.settings.server_set_file)
        self.core.service.changed(
            *limit_changes(before.limits, after.limits, limits_ms),
            *server_set_changes(before.servers, after.servers, servers_ms),
        )

    async def _shards_reloaded(self) -> None:
        change = await self.core.change_shards(self._desired())
        path = self.settings.store.shard_file
        authors = await asyncio.to_thread(authors_of, path)
        self.core.service.changed(*shard_changes(change, await self._changed_ms(path), authors))

    async def _tokens_changed(self, before: Sequence[Token], after: Sequence[Token]) -> None:
        path = self.settings.access.tokens_file
        authors = await asyncio.to_thread(authors_of, path)
        self.core.service.changed(*token_changes(before, after, await self._changed_ms(path), authors))

    async def _changed_ms(self, path: Path | None) -> int:
        return await asyncio.to_thread(changed_ms, path, self.clock.now_ms())

    def _desired(self) -> Sequence[DesiredShard]:
        return self._files.desired()

    def _find_coordinator(self) -> FindCoordinator | None:
        return find_coordinator(self.settings.cluster, self.clock)
