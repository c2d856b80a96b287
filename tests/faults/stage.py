"""Three databases with a proxy before each, server processes of ours on a shard file, and a steady load: what a fault happens on.

Everything that the product reads is real: the shard file, a settings file, its command line. Databases and proxies listen where
they are; only the shard file says where a shard is, so a fault may move one.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

from bench.servers import PinLaterServer
from pinlater.client import AsyncClient
from pinlater.domain.slices import SLICES
from tests.databases.ports import free_port
from tests.databases.proxy import Proxy
from tests.databases.servers import DatabaseServers
from tests.faults.builds import environment_of
from tests.faults.load import Pace, SteadyLoad, client_of, settings_by_queue
from tests.faults.recovery import DEADLINE_S, CoreWaits, HandOver, Recovery, hand_over_of, served_after
from tests.faults.rollback import Rollback
from tests.faults.stores import AnyServer, DatabaseKind, ShardLocation

# May delete queues.
ADMIN_PASSWORD = "open sesame"
# In the original's form, which is quick to check.
_ADMIN_HASH = hashlib.sha256(f"{ADMIN_PASSWORD}VHzMjY2Kb9BYlyrbtpyFvnHVPZAvB5Rm".encode()).hexdigest()


class Stage:
    """Use as `async with Stage(...) as stage`. `databases` become shards `1`, `2`, `3`; a fault may put another one in place of one."""

    def __init__(
        self,
        folder: Path,
        database_servers: DatabaseServers,
        store: DatabaseKind,
        databases: Sequence[AnyServer],
        *,
        seed: int,
        servers: int = 2,
        length: float = 1.0,
        pace: Pace | None = None,
        prefix: str = "pinlater",
        older: Path | None = None,
    ) -> None:
        """`older`: a checkout of an older build, for servers of another version."""
        self.folder = folder
        self.database_servers = database_servers
        self.store = store
        self.dice = Random(seed)
        self.prefix = prefix
        self.places: dict[str, ShardLocation] = {}
        self.servers: list[PinLaterServer] = []
        self.rollbacks: list[Rollback] = []  # what shards have forgotten, and were allowed to
        self.lost: set[str] = set()  # jobs that went with it
        self.deleted: set[tuple[str, int]] = set()  # shard and id of jobs whose data a fault has deleted
        self.recoveries: list[Recovery] = []  # after the loss of a server or a database
        self.hand_overs: list[HandOver] = []  # of servers that were stopped
        self.forgetful: set[str] = set()  # shards whose totals, and jobs' pasts, a fault has deleted
        self._older = older
        self._databases = list(databases)
        self._server_count = servers
        self.length = length
        self._seed = seed
        self._pace = pace or Pace()
        self._undo = AsyncExitStack()
        self._numbers = iter(range(1, 100))

    async def __aenter__(self) -> Stage:
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            for number, database in enumerate(self._databases, start=1):
                self.places[str(number)] = ShardLocation(database, await self.proxy_of(database), {})
            self.write_map()
            self.settings.write_text(self.store.settings.format(prefix=self.prefix, password_hash=_ADMIN_HASH))
            for _ in range(self._server_count):
                await self.add_server()
            settings = settings_by_queue(self._seed, len(self.places))
            async with client_of(self.server_set) as client:
                for queue, config in settings.items():
                    await client.create_queue(queue)
                    await client.configure_queue(queue, config)
            await self.until(self._all_in_use, "all shards are in use")
            self.load = await self._undo.enter_async_context(
                SteadyLoad(self.server_set, self._seed, self._pace, list(self.places), settings)
            )
        except BaseException:
            await self._undo.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._undo.aclose()

    # --- databases and the shard file -----------------------------------------------------------------------------------------

    @property
    def settings(self) -> Path:
        return self.folder / "pinlater.toml"

    @property
    def shard_file(self) -> Path:
        return self.folder / "shards.json"

    async def proxy_of(self, database: AnyServer) -> Proxy:
        """One more, that ends with the stage."""
        return await self._undo.enter_async_context(Proxy(database.address))

    def others(self, shard: str) -> list[str]:
        return [name for name in self.places if name != shard]

    def add_place(self, shard: str, place: ShardLocation) -> None:
        """One more shard in the file; servers may read it from now on."""
        self.places[shard] = place
        self.load.shards = list(self.places)
        self.write_map()

    def write_map(self) -> None:
        """The shard file as `places` has it; servers find it within a second."""
        new = self.shard_file.with_suffix(".new")
        new.write_text(json.dumps(self.store.document(self.places), indent=2))
        new.chmod(0o600)
        new.replace(self.shard_file)

    async def command(self, *arguments: str) -> str:
        """`pinlater ...`, which must end well; what it said."""

        def run() -> str:
            done = subprocess.run(
                [sys.executable, "-m", "pinlater", *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=DEADLINE_S,
                check=False,
            )
            assert done.returncode == 0, f"pinlater {arguments}: {done.returncode}\n{done.stdout}"
            return done.stdout

        return await asyncio.to_thread(run)

    # --- servers of ours ------------------------------------------------------------------------------------------------------

    @property
    def server_set(self) -> Path:
        """Where clients read which servers there are."""
        return self.folder / "servers"

    async def add_server(
        self, *more: str, module: str = "pinlater", env: Mapping[str, str] | None = None
    ) -> PinLaterServer:
        """One more, on ports that it keeps, with `more` options. `module` runs the command in another's way."""
        ports = "--thrift-port", str(free_port()), "--http-port", str(free_port())
        command = [sys.executable, "-m", module, "serve", "--config", str(self.settings), *ports, *more]
        server = PinLaterServer(command, log=self.folder / f"server-{next(self._numbers)}.log", env=env)
        self._undo.callback(server.kill)
        await asyncio.to_thread(server.start)
        self.servers.append(server)
        self._write_servers()
        return server

    async def add_older_server(self) -> PinLaterServer:
        """One more, of the older build; without one, of today's as it would be if queues had no owners."""
        if self._older is None:
            return await self.add_server(module="tests.faults.older_server")
        return await self.add_server(env=environment_of(self._older))

    async def add_reached_by_proxy(self) -> tuple[PinLaterServer, Proxy]:
        """One more that the other servers reach through a proxy, on another loopback address."""
        port = free_port()
        proxy = await self._undo.enter_async_context(Proxy(f"127.0.0.1:{port}", host="127.0.0.2", port=port))
        settings = (f"peer_port={port}", "advertised_address=127.0.0.2")
        return await self.add_server(*(word for each in settings for word in ("--set", each))), proxy

    async def take_out(self, server: PinLaterServer) -> int:
        """Stops it in an orderly way, clients having been told; its exit code."""
        self.servers.remove(server)
        self._write_servers()
        code = await asyncio.to_thread(server.stop)
        if (hand_over := hand_over_of(server.output())) is not None:
            self.hand_overs.append(hand_over)
        return code

    def suspend(self, server: PinLaterServer) -> None:
        """SIGSTOP, until `resume`, or the end of the stage."""
        server.signal(signal.SIGSTOP)
        self._undo.callback(self.resume, server)

    def resume(self, server: PinLaterServer) -> None:
        """SIGCONT; nothing for a server that has ended."""
        if server.exit_code is None:
            server.signal(signal.SIGCONT)

    async def answers(self, server: PinLaterServer) -> bool:
        """Whether it answers and uses all shards."""
        healthy = await self.metric(server, "pinlater_shard_healthy")
        return set(healthy) >= set(self.places) and all(value == 1 for value in healthy.values())

    async def address_among_servers(self, server: PinLaterServer) -> str:
        """Where the other servers reach it."""
        async with AsyncClient(f"127.0.0.1:{server.port}") as client:
            return (await client.cluster()).address

    def _write_servers(self) -> None:
        new = self.server_set.with_suffix(".new")
        new.write_text("".join(f"127.0.0.1:{server.port}\n" for server in self.servers))
        new.replace(self.server_set)

    async def metric(self, server: PinLaterServer, name: str) -> dict[str, float]:
        """A metric of a server by its one label; nothing while it doesn't answer."""
        try:
            text = await asyncio.to_thread(server.get, "/metrics")
        except OSError:
            return {}
        found = re.findall(rf'^{name}{{\w+="([^"]*)"}} (\S+)$', text, re.MULTILINE)
        return {label: float(value) for label, value in found}

    async def total(self, name: str, shard: str) -> float:
        """A metric of a shard, over all servers."""
        return sum([(await self.metric(server, name)).get(shard, 0.0) for server in self.servers])

    async def stalls(self) -> int:
        """How often a server found a shard slow, whatever made it so; then a caller may see an error that it may repeat."""
        counters = [(await asyncio.to_thread(server.stats))["counters"] for server in self.servers]
        return sum(int(count) for each in counters for name, count in each.items() if name.startswith("shard_stalled_"))

    async def in_use(self, shard: str) -> bool:
        """Whether every server has it in use."""
        return all([(await self.metric(server, "pinlater_shard_healthy")).get(shard) == 1 for server in self.servers])

    async def known(self, shard: str) -> bool:
        """Whether any server has it in its map."""
        return any([shard in await self.metric(server, "pinlater_shard_healthy") for server in self.servers])

    async def inconsistencies(self, shard: str) -> list[str]:
        """What doesn't agree within the shard, in words, but for what is lost for good with a key. Nothing is under way."""
        found = await self.store.inconsistencies(self.places[shard], self.prefix, shard)
        return [each for each in found if shard not in self.forgetful or not each.endswith("and a past: False")]

    async def _all_in_use(self) -> bool:
        return all([await self.in_use(shard) for shard in self.places])

    # --- waiting ----------------------------------------------------------------------------------------------------------------

    async def until(self, condition: Callable[[], Awaitable[bool]], what: str) -> None:
        """Looks until it is so. Raises `AssertionError` naming it."""
        ends_at = time.monotonic() + DEADLINE_S
        while not await condition():
            assert time.monotonic() < ends_at, f"not within {DEADLINE_S:g} s: {what}"
            await asyncio.sleep(0.05)

    async def back(self, shard: str) -> None:
        """Until every server uses the shard again and jobs go there and are done."""
        await self.until(lambda: self.in_use(shard), f"shard {shard} is in use again")
        await self.flows([shard], jobs=10)

    async def owns_slices(self, server: PinLaterServer) -> None:
        """Waits until it owns some; a server that owns none is no loss."""

        async def owns() -> bool:
            return any((await self.metric(server, "pinlater_slices_owned")).values())

        await self.until(owns, "the server owns slices")

    async def recovers(self, *lost: PinLaterServer, without: str | None = None) -> None:
        """Call it as soon as servers or the shard `without` are lost, and not back.

        Waits until the servers that are left serve each queue on each shard that is left, and own all slices; notes after how long.
        """
        left = [server for server in self.servers if server not in lost]
        shards = [name for name in self.places if name != without]
        databases = [self.places[name].database.pid for name in shards]
        began, waits = time.monotonic(), CoreWaits([os.getpid(), *[server.pid for server in left], *databases])

        async def owned_after() -> float:
            await self.until(lambda: self._own_all(left), "the servers that are left own all slices")
            return time.monotonic() - began

        served = served_after(self.load, [f"127.0.0.1:{server.port}" for server in left], shards)
        if not lost:
            served_s, owned_s = await served, None
        else:
            served_s, owned_s = await asyncio.gather(served, owned_after())
        self.recoveries.append(Recovery(served_s, owned_s, waits.longest_s()))

    async def _own_all(self, servers: Sequence[PinLaterServer]) -> bool:
        """Whether these servers own every slice of every shard, as they say."""
        owned = Counter[str]()
        for server in servers:
            owned.update({name: int(n) for name, n in (await self.metric(server, "pinlater_slices_owned")).items()})
        return all(owned[shard] == SLICES for shard in self.places)

    async def flows(self, shards: Sequence[str], *, jobs: int) -> None:
        """Waits until each of these shards has taken this number of further jobs, and as many are done."""
        load = self.load
        goals = [
            (counts, shard, counts[shard] + jobs) for counts in (load.enqueued, load.succeeded) for shard in shards
        ]

        async def reached() -> bool:
            return all(counts[shard] >= goal for counts, shard, goal in goals)

        await self.until(reached, f"{jobs} jobs more through each of the shards {', '.join(shards)}")

    def times(self, number: int) -> int:
        """How often, as the run's `length` says."""
        return max(1, round(number * self.length))

    async def lasts(self, seconds: float, *, without: str | None = None) -> None:
        """So long (or shorter, as the run's `length` says) work goes on; the shards but `without` take and do jobs all the while."""
        ends_at = time.monotonic() + seconds * self.length
        shards = [name for name, place in self.places.items() if name != without and not place.entry.get("dequeueOnly")]
        await self.flows(shards, jobs=10)
        while time.monotonic() < ends_at:
            await self.flows(shards, jobs=3)
