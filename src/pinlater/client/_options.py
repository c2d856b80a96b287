"""The options of a client, async or sync: what they are checked for, and what is made of them."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from functools import partial
from os import PathLike
from typing import TypeVar

from pinlater.client import _job_calls, values
from pinlater.client._bodies import check_jobs
from pinlater.client._client_call import ClientCall
from pinlater.client._connection import Connect
from pinlater.client._connection import connect as connect_over_tcp
from pinlater.client._direct import Dial
from pinlater.client._engine import Engine, EngineOptions
from pinlater.client._servers import (
    EnqueueServers,
    ServerAddress,
    ServerSource,
    enqueue_servers_by_default,
    server_source,
    servers_by_default,
)
from pinlater.client._tls import Tls, tls_source
from pinlater.client._token import token_source
from pinlater.client._waiting_calls import SayWaiting, log_waiting
from pinlater.domain.clock import Clock, SystemClock
from pinlater.domain.setting_types import check_integer, check_yes_or_no

T = TypeVar("T")
_MAX_FRAME_BYTES = 64 * 1024 * 1024


def default_source() -> str:
    """The caller's name unless one is given: `<host>-<process id>`."""
    return f"{socket.gethostname()}-{os.getpid()}"


class ClientBase:
    """The options of a client, as `AsyncClient` and `Client` describe them."""

    def __init__(
        self,
        servers: str | PathLike[str] | Sequence[str] | None = None,
        *,
        enqueue_servers: str | PathLike[str] | Sequence[str] | None = None,
        source: str | None = None,
        timeout_ms: int = 10_000,
        connect_timeout_ms: int = 3_000,
        connections: int = 2,
        retries: int = 3,
        wait_for_servers: bool = True,
        request_keys: bool = True,
        token: str | PathLike[str] | None = None,
        tls: Tls | bool | None = None,
        follow_owners: bool | None = None,
        clock: Clock | None = None,
        connect: Connect | None = None,
    ) -> None:
        check_integer("timeout_ms", timeout_ms, 1)
        check_integer("connect_timeout_ms", connect_timeout_ms, 1)
        check_integer("connections", connections, 1)
        check_integer("retries", retries, 0)
        check_yes_or_no("wait_for_servers", wait_for_servers)
        check_yes_or_no("request_keys", request_keys)
        if follow_owners is not None:
            check_yes_or_no("follow_owners", follow_owners)
        if not isinstance(source, str | None):
            raise TypeError(f"source must be a text, not {type(source).__name__}")
        self._clock = clock or SystemClock()
        # A connection of its own kind ends in this process, which asks for no token.
        self._token = token_source("" if connect is not None and token is None else token, self._clock.monotonic)
        made_with_tls = tls_source(False if connect is not None else tls, self._clock.monotonic)
        given = servers_by_default() if servers is None else servers
        self._servers: ServerSource = server_source(given, self._clock.monotonic)
        self._enqueue_servers: ServerSource | None = None
        if enqueue_servers is None:
            enqueue_servers = enqueue_servers_by_default(servers)
        if enqueue_servers is not None:
            first = server_source(enqueue_servers, self._clock.monotonic)
            self._enqueue_servers = EnqueueServers(first, self._servers)
        self._source = source
        # How the sync client connects without a loop; where connections are made in a way of their own it has to use that.
        self._dial = None if connect else Dial(connect_timeout_ms / 1000, _MAX_FRAME_BYTES, made_with_tls)
        connect = connect or partial(
            connect_over_tcp,
            max_frame_bytes=_MAX_FRAME_BYTES,
            timeout_s=connect_timeout_ms / 1000,
            tls=made_with_tls,
        )
        self._engine_options = EngineOptions(timeout_ms / 1000, connect, connections, retries, self._clock.monotonic)
        self._wait_for_servers = wait_for_servers
        self._request_keys = request_keys
        self._follow_owners = follow_owners
        self._say_waiting: SayWaiting = log_waiting
        self._prepare()

    @property
    def call_timeout_s(self) -> float:
        """The bound on a call with all its tries, without a long poll's wait."""
        return self._engine_options.timeout_s

    def _prepare(self) -> None:
        """What the client needs beside its options."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {', '.join(map(str, self.servers))}>"

    @property
    def servers(self) -> tuple[ServerAddress, ...]:
        """The servers that it may talk to as of now, but for those of enqueues alone."""
        return self._servers.addresses()

    @property
    def source(self) -> str:
        """What it calls itself; unless said otherwise the host and the process, a forked one's own."""
        return default_source() if self._source is None else self._source

    def enqueue_call(
        self,
        queue: str,
        jobs: Sequence[values.Job | bytes],
        request_key: str | None = None,
        repeat: bool = False,
    ) -> ClientCall[values.Enqueued]:
        """An enqueue, for `submit`: with a key of its own if none is given, as this client was told."""
        check_jobs(jobs, "enqueue(queue, [job])")
        if request_key is None and self._request_keys:
            request_key = _job_calls.new_request_key()
        return _job_calls.enqueue(queue, jobs, request_key, repeat)

    def with_new_key(self, call: ClientCall[T]) -> ClientCall[T]:
        """The same enqueue as a new request, with a key that no other one has. From any thread."""
        return _job_calls.with_request_key(call, _job_calls.new_request_key())

    def _new_engine(self, enqueue_servers: ServerSource | None = None) -> Engine:
        """For calls to `servers`, or to the servers for enqueues, which own no queues."""
        options = self._engine_options._replace(
            token=self._token,
            wait_for_servers=self._wait_for_servers,
            follow_owners=self._follow_owners if enqueue_servers is None else False,
            say_waiting=self._say_waiting,
        )
        return Engine(enqueue_servers or self._servers, self.source, options)
