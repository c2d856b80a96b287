"""Connections to the servers that own queues. Asks who they are and connects to them in the background: no call waits for either.

Belongs to one event loop. A server gets no call before it has said the id of an owner over this connection, and no token before that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from pinlater.client import _service_calls
from pinlater.client._connection import Link
from pinlater.client._owner_table import owner_table
from pinlater.client._owners import KnownOwners
from pinlater.client._servers import ServerAddress
from pinlater.client._token import TokenSource
from pinlater.client.errors import AccessDenied, PinLaterError, UnknownMethod

_log = logging.getLogger("pinlater.client")
_PROBE_S = 3.0


class OwnerConnections:
    """Of one client, called `name`. `any_server()`: a connection to one of its servers; `connect(address)`: a new one there."""

    def __init__(
        self,
        owners: KnownOwners,
        name: str,
        token: TokenSource,
        any_server: Callable[[], Awaitable[Link]],
        connect: Callable[[ServerAddress], Awaitable[Link]],
    ) -> None:
        self._owners = owners
        self._name = name
        self._token = token
        self._any_server = any_server
        self._connect = connect
        self._links: dict[ServerAddress, Link] = {}
        self._working: asyncio.Task[None] | None = None

    def to(self, address: ServerAddress) -> Link | None:
        """The connection to an owner that was reached there; None if it has ended."""
        link = self._links.get(address)
        if link is not None and link.usable:
            return link
        if link is not None:
            self._drop(address)
        self._owners.lost(address)
        return None

    def work_if_due(self) -> None:
        """Asks and connects if it is time, without delaying a call."""
        if (self._working is None or self._working.done()) and self._owners.has_work():
            self._working = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        self._owners.work_begins()
        try:
            for address in list(self._links):
                if not self._owners.has_reached(address):
                    self._drop(address)
            if self._owners.is_ask_due():
                await self._ask()
            await asyncio.gather(*(self._reach(address) for address in self._owners.to_reach()))
        except PinLaterError as error:
            _log.debug("the owners of queues are not known: %s", error)

    async def _ask(self) -> None:
        call = _service_calls.queue_owners()
        link: Link | None = None
        try:
            async with asyncio.timeout(_PROBE_S):
                link = await self._any_server()
                if not self._owners.can_say(link.address):
                    return
                answer = await link.call(call.method, self._name, call.args, self._token())
        except (UnknownMethod, AccessDenied) as error:
            if link is not None:
                _log.debug("%s does not say who owns queues: %s", link.address, error)
                self._owners.cannot_say(link.address)
        except TimeoutError:
            if link is not None:
                link.retire()
            self._owners.ask_failed()
        except PinLaterError:
            self._owners.ask_failed()
            raise
        except asyncio.CancelledError:
            if link is not None:
                link.retire()
            raise
        else:
            self._owners.learned(owner_table(answer))

    async def _reach(self, address: ServerAddress) -> None:
        call = _service_calls.server_info()
        link: Link | None = None
        kept = False
        try:
            async with asyncio.timeout(_PROBE_S):
                link = await self._connect(address)
                answer = await link.call(call.method, self._name, call.args)
            kept = self._owners.reached(address, answer.server_id or "")
            if kept:
                self._links[address] = link
        except Exception as error:  # noqa: BLE001 - a test run refuses servers with an error of its own, and calls go on without them
            _log.debug("the owner of a queue was not reached at %s: %s", address, error)
            self._owners.failed(address)
        finally:
            if link is not None and not kept:
                link.abort()

    def _drop(self, address: ServerAddress) -> None:
        self._links.pop(address).retire()

    def renew(self) -> None:
        """Makes no new call over connections that are open now."""
        for address in list(self._links):
            self._drop(address)
            self._owners.lost(address)

    async def close(self) -> None:
        """Ends what is under way. The connections belong to the pool, which closes them."""
        if self._working is not None:
            self._working.cancel()
            await asyncio.wait({self._working})
