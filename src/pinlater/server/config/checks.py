"""Checks that need more than one key, or read a file: they still run before anything starts.

A rate-limit, server-set or shard file that is named but missing or broken is a problem here, although later a broken file only keeps the
old values: at the start there are no old values, and a start without limits would release the very traffic that the operator limits.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pinlater.domain.clock import WallClock
from pinlater.domain.host_names import checked_name, is_loopback
from pinlater.domain.link_urls import SOURCE_PLACES, TRACE_PLACES, check_url
from pinlater.domain.passwords import check_hash_form
from pinlater.domain.servers import STORE_COORDINATOR, ServerRole
from pinlater.domain.trusted_proxies import checked_header, network_of
from pinlater.extras import install_line
from pinlater.server.config.files import FileBroken, WatchedFile, rate_limits_in, server_count_in, tokens_in
from pinlater.server.config.kinds import EMBEDDED, SHARDED
from pinlater.server.config.schema import tables
from pinlater.server.config.settings import Settings
from pinlater.server.config.shard_entry import ConfiguredShard
from pinlater.server.config.shard_file import ShardSource, find_shards, parse_password
from pinlater.server.config.sources import Origin
from pinlater.server.storage.tls import make_context, wants_tls
from pinlater.tls.certificate import load_certificate
from pinlater.tls.trust import CertificateBroken

_FRAME_OVERHEAD_BYTES = 64 * 1024


def check_together(
    settings: Settings, origins: Mapping[str, Origin], *, driver_needed: bool = True, tokens_needed: bool = True
) -> list[str]:
    """Returns all problems beyond single values, each with its place.

    `driver_needed`: a store without its driver is a problem, too. `tokens_needed`: a tokens file or a certificate that is missing or broken
    is a problem, too.
    """
    problems = list(_problems(settings))
    if tokens_needed:
        problems += _listener_problems(settings)
    driver = _missing_driver(settings) if driver_needed else None
    if driver is not None:
        problems.insert(0, ("store", driver))
    return [f"{origins[path].place or path}: {problem}" for path, problem in problems]


def _missing_driver(settings: Settings) -> str | None:
    """Returns what to install before a shard can be asked, or None for nothing."""
    kind = SHARDED.get(settings.store.kind)
    if kind is None or find_spec(kind.driver[0]) is not None:
        return None
    return f"{kind.driver_title} is not installed: {install_line(kind.name)}"


def _problems(settings: Settings) -> Iterator[tuple[str, str]]:
    yield from _form_problems(settings)
    if settings.store.is_sharded:
        yield from _shard_problems(settings)
    elif settings.processes > 1 and not EMBEDDED[settings.store.kind].in_file:
        possible = " or ".join(["SQLite", *(kind.title for kind in SHARDED.values())])
        yield (
            "processes",
            f"{settings.processes} processes can't use the store {settings.store}, which ends with its process: use {possible}",
        )
    least = settings.jobs.max_body_bytes + _FRAME_OVERHEAD_BYTES
    frame = settings.thrift.max_frame_bytes
    if frame < least:
        yield (
            "thrift.max_frame_bytes",
            f"{frame:,} bytes hold no body of jobs.max_body_bytes and its envelope: at least {least:,} are needed",
        )
    if settings.thrift.max_buffered_bytes < 2 * frame:
        yield (
            "thrift.max_buffered_bytes",
            f"{settings.thrift.max_buffered_bytes:,} bytes hold no request and answer of thrift.max_frame_bytes: "
            f"at least {2 * frame:,} are needed",
        )
    if settings.thrift.port == settings.http.port != 0 and settings.thrift.host == settings.http.host:
        yield "http.port", f"Thrift and HTTP can't both listen on port {settings.http.port}"
    if not settings.host.strip():
        yield "host", "is empty"
    if settings.role not in list(ServerRole):
        yield "role", f"{settings.role!r} is none of {', '.join(ServerRole)}"
    elif settings.role != ServerRole.ALL and not settings.store.is_sharded:
        yield (
            "role",
            f"the store {settings.store} is used by one server, which does all; more processes share its connections (processes)",
        )
    yield from _coordinator_problems(settings)
    if settings.console_user_token_file is not None and not settings.console_trusted_proxies:
        yield "console_user_token_file", "needs console_trusted_proxies, which name the users"


def _coordinator_problems(settings: Settings) -> Iterator[tuple[str, str]]:
    cluster = settings.cluster
    if cluster.coordinator == STORE_COORDINATOR:
        return
    if cluster.coordinator != "zookeeper":
        yield "cluster.coordinator", f"{cluster.coordinator!r} is neither store nor zookeeper"
        return
    if not settings.store.is_sharded:
        yield (
            "cluster.coordinator",
            f"zookeeper is for servers that share shards, and the store {settings.store} has one server",
        )
    elif find_spec("kazoo") is None:
        yield "cluster.coordinator", f"zookeeper needs an extra: {install_line('zookeeper')}"
    hosts, _, path = cluster.zookeeper.partition("/")
    try:
        for host in hosts.split(","):
            _check_address(host)
    except ValueError as error:
        yield "cluster.zookeeper", f"{error}; the hosts are divided by commas"
    if not all(path.split("/")):
        yield "cluster.zookeeper", f"{cluster.zookeeper!r} names no path; write zk1:2181,zk2:2181/pinlater"
    if bool(cluster.zookeeper_user) != (cluster.zookeeper_password_file is not None):
        yield "cluster.zookeeper_user", "needs zookeeper_password_file, and that needs a user"
    try:
        if cluster.zookeeper_password_file is not None:
            WatchedFile(cluster.zookeeper_password_file, parse_password)
    except FileBroken as error:
        yield "cluster.zookeeper_password_file", str(error)


def _form_problems(settings: Settings) -> Iterator[tuple[str, str]]:
    """Values that have a format of their own, and files that must be valid at the start."""
    checks: Mapping[str, Callable[[Any], object]] = {
        "admin_password_hash": check_hash_form,
        "queue_limits_file": rate_limits_in,
        "server_set_file": server_count_in,
        "console_trace_url": partial(_check_url, places=TRACE_PLACES),
        "console_source_url": partial(_check_url, places=SOURCE_PLACES),
        "console_names": checked_name,
        "console_trusted_proxies": network_of,
        "console_user_header": checked_header,
        "advertised_thrift_address": _check_address,
    }
    for key, check in checks.items():
        value = getattr(settings, key)
        try:
            for one in value if isinstance(value, tuple) else (value,):
                if one is not None:
                    check(one)
        except (ValueError, FileBroken) as error:
            yield key, str(error)


def _check_url(url: str, places: tuple[str, ...]) -> None:
    try:
        check_url(url, places)
    except ValueError as error:
        raise ValueError(f"{url!r} {error}") from None


def _check_address(text: str) -> None:
    host, _, port = text.rpartition(":")
    is_port = port.isascii() and port.isdigit() and 0 < int(port) < 65_536
    if not host or not is_port or any(c.isspace() for c in text):
        raise ValueError(f"{text!r} is not an address; write host:port")


def _listener_problems(settings: Settings) -> Iterator[tuple[str, str]]:
    """The files of the listeners that are missing or broken."""
    try:
        if settings.access.tokens_file is not None:
            tokens_in(settings.access.tokens_file)
    except FileBroken as error:
        is_missing = isinstance(error.__cause__, FileNotFoundError)
        yield "access.tokens_file", f"{error}{'; `pinlater token create` makes it' if is_missing else ''}"
    try:
        if settings.tls.certificate_file is not None:
            load_certificate(settings.tls, WallClock().now_ms() / 1000)
    except CertificateBroken as error:
        yield "tls.certificate_file", str(error)


def _shard_problems(settings: Settings) -> Iterator[tuple[str, str]]:
    kind, database = SHARDED[settings.store.kind], settings.database
    if problems := list(kind.problems(settings)):
        yield from problems
        return
    key = f"{kind.name}.password_file"
    try:
        if database.password_file is not None:
            WatchedFile(database.password_file, parse_password)
        key = "store"
        places = find_shards(settings)
        key = f"{kind.name}.tls"
        if _any_tls(places, settings):
            make_context(database)
    except (FileBroken, OSError) as error:
        yield key, str(error)


def _any_tls(places: Sequence[ConfiguredShard], settings: Settings) -> bool:
    """Returns whether connections to any of the shards are encrypted."""
    return any(wants_tls(place.endpoint, settings.database) for place in places)


def warnings_about(settings: Settings) -> list[str]:
    """Returns warnings about settings that are allowed."""
    found = [
        f"listening on {host} without access control: every host that reaches the ports can run and delete jobs"
        for host in hosts_without_access_control(settings)
    ]
    path = settings.access.tokens_file
    if path is not None and _others_may_read(path):
        found.append(
            f"{path} can be read by every user of this machine: it tells the names and rights of tokens (chmod o-r)"
        )
    found += _tls_warnings(settings)
    if settings.store.is_sharded:
        found += _shard_warnings(settings)
    elif warning := EMBEDDED[settings.store.kind].warning:
        found.append(f"store: {warning}")
    return found


def _tls_warnings(settings: Settings) -> Iterator[str]:
    tls = settings.tls
    if tls.certificate_file is None:
        beyond = [host for host in sorted(_hosts(settings)) if not is_loopback(host)]
        if beyond and settings.access.tokens_file is not None:
            yield (
                f"listening on {beyond[0]} without TLS: tokens and jobs cross the network in plain text (tls.certificate_file)"
            )
        return
    key = tls.key_file or tls.certificate_file
    if _others_may_read(key):
        yield f"{key} can be read by every user of this machine, and holds the key of the certificate (chmod o-r)"
    try:
        names = load_certificate(tls, WallClock().now_ms() / 1000).names
    except CertificateBroken:
        return  # where it matters, it is a problem
    if not names:
        yield f"{tls.certificate_file} has no subject alternative name: no client can verify the name of this server"


def _shard_warnings(settings: Settings) -> Iterator[str]:
    kind = settings.store.kind
    database = settings.database
    if (driver := _missing_driver(settings)) is not None:
        yield driver
    source = ShardSource(settings)
    has_password = any(entry.address.password is not None for entry in source.entries)
    for path in (settings.store.shard_file if has_password else None, database.password_file):
        if path is not None and _others_may_read(path):
            yield f"{path} can be read by every user of this machine, and holds a password (chmod o-r)"
    has_files = database.tls_ca is not None or database.tls_cert is not None
    if has_files and not _any_tls(source.places, settings):
        yield f"{kind}.tls is false: connections to the shards are not encrypted, though its files are named"


def _others_may_read(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & stat.S_IROTH)
    except OSError:
        return False


def _hosts(settings: Settings) -> set[str]:
    """Returns every address on which a part of the server listens."""
    return {getattr(getattr(settings, table), "host", settings.host) for table in tables()}


def hosts_without_access_control(settings: Settings) -> list[str]:
    """The addresses beyond loopback on which every caller may do anything."""
    if settings.access.tokens_file is not None:
        return []
    return [host for host in sorted(_hosts(settings)) if not is_loopback(host)]


def access_of(settings: Settings) -> str:
    """Returns the `ServerInfo.access` of a server with these settings."""
    if settings.access.tokens_file is not None:
        return "tokens"
    return "insecure" if hosts_without_access_control(settings) else "loopback"


def refusal_to_start(settings: Settings) -> str | None:
    """Returns why a server must not start with these settings, or None if it may."""
    hosts = hosts_without_access_control(settings)
    if not hosts or settings.access.insecure:
        return None
    return (
        f"{hosts[0]} is not a loopback address, and there is no access control: every host that reaches the ports could run and delete "
        "jobs. Make tokens (`pinlater token create`) and give their file by --tokens or access.tokens_file; --insecure or "
        "access.insecure allows it without"
    )
