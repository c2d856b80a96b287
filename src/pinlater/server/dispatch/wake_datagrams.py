"""Servers of the same shards wake each other's waiting dequeues: one takes an enqueue, a dequeue waits at another.

A wake says which queues got how many jobs, nothing of the jobs themselves. It is one datagram, signed with a secret that the servers
find in their store, sent after the commit and never waited for. A lost one costs the wait for the next look (`change_poller`),
about a second. A replayed datagram can only make a server look in vain.

Enqueues that come within a few milliseconds share a datagram, so that a busy server sends a few hundred a second and not one a job. A
server gets wakes only for queues that its dequeues wait for, as far as it has said which these are (`interest.py`).
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pinlater.server.dispatch.interest import EVERY_QUEUE, bit_of

logger = logging.getLogger(__name__)

GAP_S = 0.002
_SIGNATURE_BYTES = 16
# What fits into one packet of any network.
_PAYLOAD_BYTES_MAX = 1_100
# A longer datagram is no wake, and is dropped before its signature is computed.
_DATAGRAM_BYTES_MAX = 1_500
# A server's message about its dequeues arrives within this time. Jobs that came meanwhile are told after it.
_NEW_S = 1.0
_QUEUES_MAX = 20_000

Address = tuple[str, int]


class Wakes(asyncio.DatagramProtocol):
    """Sends and receives one server's wakes. `wake(queue, jobs)` is called for each queue that another server named."""

    def __init__(self, wake: Callable[[str, int], None]) -> None:
        self._wake = wake
        self._secrets: Sequence[bytes] = ()
        self._peers: Mapping[Address, bytes] = {}
        self._waits: dict[Address, int] = {}  # by peer: what its dequeues wait for; all queues if it has not said
        self._waited_for = 0  # anywhere
        self._waiting: dict[str, int] = {}
        # By queue: until when its last jobs count as new, and how many came.
        self._lately: dict[str, tuple[float, int]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.DatagramTransport | None = None
        self.sent = 0
        self.received = 0
        self.refused = 0

    async def open(self, host: str, port: int = 0) -> int:
        """Listens; returns the port. Raises OSError."""
        loop = asyncio.get_running_loop()
        refusal = await refusal_of(host, port) if port else None
        if refusal is not None:
            raise refusal
        transport, _ = await loop.create_datagram_endpoint(lambda: self, local_addr=(host, port))
        self._transport = transport
        return int(transport.get_extra_info("sockname")[1])

    @property
    def family(self) -> int:
        """IPv4's or IPv6's number: peers need addresses of the same kind."""
        return socket.AF_INET if self._transport is None else int(self._transport.get_extra_info("socket").family)

    def close(self) -> None:
        """Closes the socket."""
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    def know(self, secrets: Sequence[bytes], peers: Mapping[Address, bytes]) -> None:
        """Sets the secrets that may have signed a datagram, and the peers (without this server) with the secret that signs for each."""
        self._secrets = secrets
        self._peers = peers
        self._count_waits()

    def know_waits(self, peer: Address, bits: int | None) -> None:
        """Sets what the dequeues of a server wait for (None: unknown). Sends it the wakes that it missed meanwhile."""
        begun = (EVERY_QUEUE if bits is None else bits) & ~self._waits.get(peer, EVERY_QUEUE)
        if bits is None:
            self._waits.pop(peer, None)
        else:
            self._waits[peer] = bits
        self._count_waits()
        if begun:
            now_s = asyncio.get_running_loop().time()
            for queue, (until_s, jobs) in self._lately.items():
                if now_s < until_s and begun & bit_of(queue):
                    self._tell(queue, jobs)

    def _count_waits(self) -> None:
        self._waited_for = 0
        for peer in self._peers:
            self._waited_for |= self._waits.get(peer, EVERY_QUEUE)

    def tell(self, queue: str, jobs: int) -> None:
        """Tells peers that `jobs` jobs of this queue can be claimed: at once, or within `GAP_S` together with other queues."""
        if not self._peers:
            return
        now_s = asyncio.get_running_loop().time()
        until_s, before = self._lately.get(queue, (0.0, 0))
        if len(self._lately) >= _QUEUES_MAX:
            self._lately.clear()
        self._lately[queue] = (now_s + _NEW_S, jobs + before if now_s < until_s else jobs)
        if self._waited_for & bit_of(queue):
            self._tell(queue, jobs)

    def _tell(self, queue: str, jobs: int) -> None:
        self._waiting[queue] = self._waiting.get(queue, 0) + jobs
        if self._timer is None:
            self._send()

    def _send(self) -> None:
        self._timer = None
        if not self._waiting:
            return
        told, self._waiting = self._waiting, {}
        self._timer = asyncio.get_running_loop().call_later(GAP_S, self._send)
        if self._transport is None:
            return
        for peer, secret in self._peers.items():
            waits = self._waits.get(peer, EVERY_QUEUE)
            for datagram in _datagrams({queue: jobs for queue, jobs in told.items() if waits & bit_of(queue)}, secret):
                try:
                    self._transport.sendto(datagram, peer)
                except (OSError, ValueError) as error:  # an address that can't be: no reason for an enqueue to fail
                    self.error_received(error)
                else:
                    self.sent += 1

    # --- what the loop calls ------------------------------------------------------------------------------------------------

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        told = _told(data, self._secrets)
        if told is None:
            self.refused += 1
            return
        self.received += 1
        for queue, jobs in told.items():
            self._wake(queue, jobs)

    def error_received(self, exc: Exception) -> None:
        """Called for a peer that is gone or unreachable. Nothing to do: the change poller finds the jobs."""
        logger.debug("a wake could not be sent: %s", exc)


def _datagrams(told: dict[str, int], secret: bytes) -> list[bytes]:
    """The signed datagrams for these jobs, as few as they fit into."""
    if not told:
        return []
    parts: list[bytes] = []
    part: dict[str, int] = {}
    size = 0
    for queue, jobs in told.items():
        if part and size + len(queue) + 16 > _PAYLOAD_BYTES_MAX:
            parts.append(_signed(part, secret))
            part, size = {}, 0
        part[queue] = jobs
        size += len(queue) + 16
    parts.append(_signed(part, secret))
    return parts


def _signed(told: dict[str, int], secret: bytes) -> bytes:
    payload = json.dumps(told, separators=(",", ":")).encode()
    return _signature(payload, secret) + payload


def _signature(payload: bytes, secret: bytes) -> bytes:
    return hmac.digest(secret, payload, "sha256")[:_SIGNATURE_BYTES]


def _told(data: bytes, secrets: Sequence[bytes]) -> dict[str, int] | None:
    """What a datagram says; None if it isn't one of ours."""
    if len(data) > _DATAGRAM_BYTES_MAX:
        return None
    signature, payload = data[:_SIGNATURE_BYTES], data[_SIGNATURE_BYTES:]
    if not any(hmac.compare_digest(signature, _signature(payload, secret)) for secret in secrets):
        return None
    told = json.loads(payload)
    return told if isinstance(told, dict) else None


async def refusal_of(host: str, port: int) -> OSError | None:
    """Why no socket for datagrams can be bound there; None if one can. uvloop would tell no error number, and leave a socket open."""
    loop = asyncio.get_running_loop()
    refused: OSError | None = None
    for family, kind, protocol, _, address in await loop.getaddrinfo(
        host or None, port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE
    ):
        try:
            with socket.socket(family, kind, protocol) as tried:
                tried.bind(address)
        except OSError as error:
            refused = error
        else:
            return None
    return refused
