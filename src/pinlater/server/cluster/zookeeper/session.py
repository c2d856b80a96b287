"""One thread that talks to the ensemble, and reports its content to the event loop.

It relies on what it reads, not on events: a watch or a change of the connection only makes it read again. It never waits without a
time-out, since a call without a connection gets no answer.

A client that was cut off learns of the end of its session only when it reconnects, and a client whose ensemble has lost its data may
never be accepted again. So a client that had no answer for three session time-outs is discarded, and another one registers the server.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoAuthError, WriterNotClosedException
from kazoo.handlers.threading import KazooTimeoutError

from pinlater.domain.errors import ShardConnectionFailed
from pinlater.server.cluster.zookeeper.client_log import ClientLog
from pinlater.server.cluster.zookeeper.nodes import NOTHING_SEEN, ClusterNodes, NotOurs, SeenNodes
from pinlater.server.storage.values import Owners

logger = logging.getLogger(__name__)

# How often the thread checks whether the client is connected, and reads all nodes even if nothing reported a change.
TICK_S = 0.5
_READ_AGAIN_S = 30.0
# After this many session time-outs without an answer, a client is discarded.
_TIMEOUTS_MAX = 3
# Share of a session time-out: a client that has moved to another server of the ensemble had no answer for less.
_SILENT_SHARE = 1 / 3
_END_S = 1.0
_FAILURES = (KazooException, KazooTimeoutError)


class Assignment:
    """A change of the owners of a shard that waits for its turn. `done`: whether the known owners were the stored ones."""

    def __init__(self, shard: str, known: Owners, new: Owners) -> None:
        self.shard = shard
        self.known = known
        self.new = new
        self.done: Future[bool] = Future()


class ZooKeeperSession:
    """The session of one server. `seen`: as of the last look; `changed()` is called in the event loop when it has changed.

    `shards`: the fingerprint of each shard's secret, by name; without any, the server does not register.
    """

    def __init__(
        self,
        make_client: Callable[[ClientLog], KazooClient],
        root: str,
        address: str,
        session_timeout_s: float,
        no_rights: str,
        changed: Callable[[], None],
    ) -> None:
        """`no_rights`: the error text for an ensemble that does not let this server read or change the nodes."""
        self._make_client = make_client
        self._root = root
        self._address = address
        self._instance = secrets.token_hex(8)
        self._session_timeout_s = session_timeout_s
        self._no_rights = no_rights
        self._tell = changed
        self._loop = asyncio.get_running_loop()
        self._woken = threading.Event()
        self._ends = False
        self._changes: SimpleQueue[Assignment] = SimpleQueue()
        self._first_answer: asyncio.Future[str] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name="zookeeper", daemon=True)
        self._heard_s = math.inf  # when the client last had an answer; before the first one, when it started
        self._read_s = -math.inf
        self.seen = NOTHING_SEEN
        self.shards: Mapping[str, str] = {}

    async def begin(self) -> str:
        """Starts the thread, and waits for the ensemble for the session time-out. Returns why it refuses this server; '' if it doesn't
        refuse it, or does not answer."""
        self._start()
        with suppress(TimeoutError):
            return await asyncio.wait_for(asyncio.shield(self._first_answer), self._session_timeout_s)
        return ""

    def _start(self) -> None:
        self._thread.start()

    def look_again(self) -> None:
        """Wakes the thread."""
        self._woken.set()

    async def assign(self, shard: str, known: Owners, new: Owners) -> bool:
        """`Coordinator.assign`. Fails at once if this server is not a member: a stopping server would wait in vain."""
        if not self.seen.current:
            raise ShardConnectionFailed("this server is not registered in ZooKeeper now")
        change = Assignment(shard, known, new)
        self._changes.put(change)
        self._woken.set()
        try:
            return await asyncio.wait_for(asyncio.wrap_future(change.done), self._session_timeout_s)
        except (*_FAILURES, TimeoutError) as error:
            raise ShardConnectionFailed(f"ZooKeeper can't store the owners: {_text_of(error)}") from error

    async def close(self) -> None:
        """Ends the session, so that the others see that this server is gone. Waits only briefly for the ensemble."""
        if not self._ends:
            self._ends = True
            self._woken.set()
            if self._thread.is_alive():
                await asyncio.to_thread(self._thread.join, _END_S)

    # --- the thread -------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._ends:
            log = ClientLog()
            client = self._make_client(log)
            client.add_listener(lambda _: self._woken.set())
            client.start_async()
            try:
                self._follow(client, log)
            except Exception:  # a bug: the next client may do better
                logger.exception("what ZooKeeper says could not be read")
                time.sleep(self._session_timeout_s)
            finally:
                # In a thread of its own, since it may wait forever.
                end = threading.Thread(target=_end, args=[client], name="zookeeper-end", daemon=True)
                end.start()
                end.join(_END_S)

    def _follow(self, client: KazooClient, log: ClientLog) -> None:
        """Returns once another client is needed."""
        nodes = self._nodes_of(client)
        while not self._ends:
            told = self._woken.wait(TICK_S)
            self._woken.clear()
            if not self._turn(client, nodes, log.tls_refusal, told, time.monotonic()):
                return

    def _nodes_of(self, client: KazooClient) -> ClusterNodes:
        self._heard_s, self._read_s = math.inf, -math.inf
        return ClusterNodes(client, self._root, self._address, self._instance, lambda _: self._woken.set())

    def _turn(self, client: KazooClient, nodes: ClusterNodes, tls_refusal: str, told: bool, now_s: float) -> bool:
        """Reads the nodes if it is time, and executes waiting changes. Returns whether the client is still usable. `told`: of a change."""
        self._heard_s = min(self._heard_s, now_s)
        if client.connected and not told and self.seen.current and now_s - self._read_s < _READ_AGAIN_S:
            self._heard_s = now_s
        elif client.connected and self._look(nodes):
            self._heard_s = self._read_s = now_s
        else:
            silent_s = now_s - self._heard_s
            self._miss(silent_s, tls_refusal)
            if silent_s > _TIMEOUTS_MAX * self._session_timeout_s:
                logger.debug("ZooKeeper did not answer for long: another client tries")
                return False
        self._carry_out(nodes)
        return True

    def _miss(self, silent_s: float, tls_refusal: str) -> None:
        trouble = self.seen.trouble
        if silent_s > _SILENT_SHARE * self._session_timeout_s:
            trouble = f"ZooKeeper can't be used: {tls_refusal}" if tls_refusal else "ZooKeeper does not answer"
            if tls_refusal:
                self._answer(trouble)
        self._publish(self.seen._replace(current=False, trouble=trouble))

    def _look(self, nodes: ClusterNodes) -> bool:
        """Returns whether the ensemble has answered."""
        try:
            nodes.open_root()
            self._answer("")
            if self.shards:
                self._publish(nodes.look(self.shards))
        except NoAuthError:
            self._answer(self._no_rights)
            self._publish(self.seen._replace(current=False, trouble=self._no_rights))
        except NotOurs as error:
            self._publish(NOTHING_SEEN._replace(trouble=str(error)))
        except _FAILURES as error:
            logger.debug("ZooKeeper could not be read", extra={"reason": _text_of(error)})
            return False
        return True

    def _carry_out(self, nodes: ClusterNodes) -> None:
        while True:
            try:
                change = self._changes.get_nowait()
            except Empty:
                return
            if change.done.set_running_or_notify_cancel():
                try:
                    changed = nodes.assign(change.shard, change.known, change.new)
                except _FAILURES as error:
                    change.done.set_exception(error)
                else:
                    if changed:  # known here before the ensemble reports it
                        self.seen = self.seen._replace(owners={**self.seen.owners, change.shard: change.new})
                    change.done.set_result(changed)

    def _answer(self, refusal: str) -> None:
        def set_answer() -> None:
            if not self._first_answer.done():
                self._first_answer.set_result(refusal)

        self._on_loop(set_answer)

    def _publish(self, seen: SeenNodes) -> None:
        if seen != self.seen:
            self.seen = seen
            self._on_loop(self._tell)

    def _on_loop(self, call: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(call)


def _end(client: KazooClient) -> None:
    with suppress(WriterNotClosedException):  # it hangs in an attempt to connect, and ends after that
        client.stop()
        client.close()


def _text_of(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".removesuffix(": ")
