"""All settings of a server in one value: a few of its own, and one dataclass for each table.

A new table is one line here. Names of keys, variables and flags, types, defaults and the reference page follow from the
dataclasses (`schema`). The service's settings are the table `jobs`: as `service` their variables would begin with
PINLATER_SERVICE_, and Kubernetes sets such variables in every pod beside a Service called `pinlater`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from pinlater.domain.servers import ServerRole
from pinlater.domain.trusted_proxies import USER_HEADER
from pinlater.server.access.settings import AccessSettings
from pinlater.server.cluster.settings import ClusterSettings
from pinlater.server.config.store import StoreLocation
from pinlater.server.dispatch.settings import DispatchSettings
from pinlater.server.features.audit.settings import AuditSettings
from pinlater.server.features.demand.settings import DemandSettings
from pinlater.server.features.history.settings import HistorySettings
from pinlater.server.http.settings import HttpSettings
from pinlater.server.maintenance.settings import MaintenanceSettings
from pinlater.server.operations.job_settings import JobSettings
from pinlater.server.sharding.settings import ShardingSettings
from pinlater.server.storage.database_settings import DatabaseSettings
from pinlater.server.storage.mysql.settings import MysqlSettings
from pinlater.server.storage.redis.settings import RedisSettings
from pinlater.server.storage.sqlite.settings import SqliteSettings
from pinlater.server.telemetry.settings import TelemetrySettings
from pinlater.server.thrift.settings import ThriftSettings
from pinlater.tls.settings import TlsSettings

DEFAULT_STORE = StoreLocation("sqlite", Path("pinlater.db"))


FLAGS: Mapping[str, str] = {
    "store": "--store",
    "host": "--host",
    "thrift.port": "--thrift-port",
    "http.port": "--http-port",
    "processes": "--processes",
    "role": "--role",
    "console": "--console",
    "access.tokens_file": "--tokens",
    "access.insecure": "--insecure",
    "tls.certificate_file": "--tls-certificate",
    "tls.key_file": "--tls-key",
}
"""Keys that have a flag of their own; all others are set by `--set KEY=VALUE`."""

INHERITED = {
    "thrift.host": "host",
    "http.host": "host",
}
"""A key that is not set takes the value of the key beside it here."""

SHARED: Mapping[str, str] = {
    "jobs.max_frame_bytes": "thrift.max_frame_bytes",
    "jobs.max_answer_bytes": "thrift.max_answer_bytes",
    "thrift.max_body_bytes": "jobs.max_body_bytes",
    "mysql.priority_levels": "jobs.priority_levels",
    "redis.priority_levels": "jobs.priority_levels",
}
"""A field that is no key of its own: its part of the server must know what the key beside it says."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What `serve` starts with, checked. Top-level keys first, then one table for each part of the server."""

    store: StoreLocation = DEFAULT_STORE
    """Where the jobs are kept: `sqlite:PATH`, `memory:`, `mysql:FILE` or `redis:FILE` (a file of shards), `mysql://USER@HOST:PORT/DATABASE`
    or `redis://USER@HOST:PORT/DB` (a single one)."""
    host: str = "127.0.0.1"
    """Address that Thrift and HTTP listen on. `0.0.0.0` opens both to the network, which needs access control or `access.insecure`."""
    advertised_address: str | None = None
    """Where other servers of the same shards reach this one. Not set: `advertised_host`, or `host`."""
    peer_port: int = 0
    """TCP port for the other servers of the same shards: they wake this one's waiting dequeues, and send it their calls for queues that it
    owns; 0 takes a free one."""
    advertised_thrift_address: str | None = None
    """Where clients reach this server, `host:port`, for clients that send their calls to the owner of a queue. Not set: the host at which
    other servers reach it, and `thrift.port`."""
    advertised_host: str | None = None
    """Name of this server in the claims it hands out; not set: the machine's host name."""
    admin_password_hash: str | None = field(default=None, metadata={"secret": True})
    """Hash of the password that deleteQueue asks for (`pinlater server hash-password` makes one). Not set: every password is refused."""
    queue_limits_file: Path | None = None
    """Rate limits of queues (JSON), looked at again every 10 s. Not set: only the limits kept in the store hold."""
    server_set_file: Path | None = None
    """The live servers, one `host:port` a line, looked at again every 10 s; a queue's limit is divided by their number. Not set: those
    that the store knows."""

    role: str = ServerRole.ALL.value
    """`enqueue`: owns no queues and stores enqueues by itself; `dequeue`: owns queues for the others; `all`: both. Each server takes every
    call. For servers that share shards."""
    processes: Annotated[int, Meta(le=256)] = 1
    """Server processes on the same ports, as one server. Not for memory stores. Bounds hold for each of them."""

    console: bool = True
    """Runs `pinlater console` beside the server, on loopback, if its extra is installed."""
    console_port: int = 9998
    """Where that console listens; 0 takes any free port."""
    console_names: tuple[str, ...] = ()
    """Names by which people reach that console, such as `jobs.example`: with them, it refuses all others but localhost. Without them, it
    refuses names that come without TLS."""
    console_guest_token_file: Path | None = None
    """A token with which that console shows its pages to people who have not logged in; they can change nothing."""

    console_trusted_proxies: tuple[str, ...] = ()
    """Networks of proxies before that console, `10.0.0.5` or `10.0.0.0/24`: their `X-Forwarded-` headers and `Forwarded` name its host,
    scheme and path, and the client."""
    console_user_header: str = USER_HEADER
    """The header in which these proxies name users, if `console_user_token_file` is set."""
    console_user_token_file: Path | None = None
    """A token with whose rights that console answers users of these proxies."""

    console_trace_url: str | None = None
    """With which that console links each job to its trace: `https://jaeger.example.org/trace/{trace_id}`."""
    console_source_url: str | None = None
    """With which that console links each error to its line of code: `https://git.example.org/app/blob/main/{file}#L{line}`."""

    drain_timeout_s: float = 30.0
    """How long a stopping server waits for requests in flight before it cuts them off. In seconds; `20s` or `500ms` too."""

    jobs: JobSettings = field(default_factory=JobSettings)
    thrift: ThriftSettings = field(default_factory=ThriftSettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    access: AccessSettings = field(default_factory=AccessSettings)
    tls: TlsSettings = field(default_factory=TlsSettings)
    sqlite: SqliteSettings = field(default_factory=SqliteSettings)
    mysql: MysqlSettings = field(default_factory=MysqlSettings)
    redis: RedisSettings = field(default_factory=RedisSettings)
    sharding: ShardingSettings = field(default_factory=ShardingSettings)
    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    dispatch: DispatchSettings = field(default_factory=DispatchSettings)
    maintenance: MaintenanceSettings = field(default_factory=MaintenanceSettings)
    audit: AuditSettings = field(default_factory=AuditSettings)
    history: HistorySettings = field(default_factory=HistorySettings)
    demand: DemandSettings = field(default_factory=DemandSettings)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)

    @property
    def tables(self) -> Sequence[Any]:
        """The tables, each of another class."""
        values = [getattr(self, each.name) for each in fields(self)]
        return [value for value in values if is_dataclass(value)]

    @property
    def database(self) -> DatabaseSettings:
        """The settings of the kind of database of the shards; those of MySQL for other stores, which tests treat as shared."""
        own: DatabaseSettings = getattr(self, self.store.kind) if self.store.is_sharded else self.mysql
        return own
