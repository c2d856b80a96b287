"""What a client knows of the servers that own queues: who they are, which of them it can reach, and when to ask again. No I/O.

A server is named by an id that only this start of it has. A client sends a call to an address only after the server there has said the
owner's id, so neither a wrong address nor another cluster behind it gets a call. May be asked and told from any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from random import Random
from typing import Any, TypeVar

from pinlater.client._client_call import ClientCall
from pinlater.client._owner_table import NO_SERVER, OwnerTable, aim_of
from pinlater.client._servers import ServerAddress, ServerSource, parse_address

T = TypeVar("T")
# A client that makes fewer calls asks nothing.
_CALLS_FIRST = 5
_ASK_AGAIN_S = 20.0
# After an owner was lost: the servers need some seconds to agree on the next one.
_ASK_AFTER_LOSS_S = 1.5
# Of a server that can't say, or servers that share no shards.
_ASK_LATER_S = 300.0
_RETRY_FIRST_S = 1.0
_LOOK_S = 0.1
_AWAY_FIRST_S, _AWAY_MAX_S = 1.0, 60.0
_FORGIVEN_AFTER_S = 120.0
SERVERS_MAX = 16
# Of the dequeues that carry acks, one in this number does not go to the owner of the acked jobs, but where others go.
_TURN = 8
# A large request is not worth staying for: its call is full by itself.
AFFINITY_JOBS = 128
# A slow server or shard gets no more calls of a client than it answers in this time.
_AFFINITY_S = 1.0


class Affinity(threading.local):
    """Chooses for each thread of a client with which of several servers its calls stay for a while: at random in the long run.

    A server stores or claims with one call of its store what has arrived together: mostly the next calls of those whose last calls it has
    answered together. Threads use several servers at a time, and each needs one connection. The calls of one event loop share one.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._number = 0
        self._jobs_left = 0
        self._ends_s = 0.0

    def choose(self, choices: Sequence[T], jobs: int, now_s: float) -> T:
        """The place of a call about this number of jobs: among the same choices that of the call before, until it is time for another."""
        if self._jobs_left <= 0 or now_s >= self._ends_s:
            self._number = self._random.getrandbits(32)
            self._jobs_left, self._ends_s = AFFINITY_JOBS, now_s + _AFFINITY_S
        self._jobs_left -= jobs
        return choices[self._number % len(choices)]


class _Failures:
    """Counts the failures of one address."""

    __slots__ = ("at_s", "count", "until_s")

    def __init__(self) -> None:
        self.count, self.at_s, self.until_s = 0, 0.0, 0.0


class KnownOwners:
    """`only_listed`: whether calls go to the servers of `source` only, and not to others of which these tell."""

    def __init__(
        self, source: ServerSource, *, only_listed: bool, monotonic: Callable[[], float], random: Random
    ) -> None:
        self._source = source
        self._only_listed = only_listed
        self._monotonic = monotonic
        self._random = random
        self._lock = threading.RLock()  # a signal's handler may make calls of its own
        self._listed = source.addresses()
        self._table = OwnerTable()
        self._reached: dict[str, ServerAddress] = {}  # by id
        self._wanted: set[str] = set()  # ids of owners to which there is no connection
        self._ids: dict[ServerAddress, str] = {}  # what servers said when they were last asked
        self._failures: dict[ServerAddress, _Failures] = {}
        self._lacking: dict[ServerAddress, float] = {}  # servers that can't say who owns what; until when
        self._calls = 0
        self._affinity = Affinity(random)
        self._ask_at_s = monotonic()
        self._failed_asks = 0
        self._look_at_s = self._ask_at_s

    # --- calls --------------------------------------------------------------------------------------------------------------

    def ask_with_the_next_call(self) -> None:
        """Does not wait for a number of calls that makes asking worth it."""
        self._calls = _CALLS_FIRST

    def route(self, call: ClientCall[Any]) -> ServerAddress | None:
        """Where the first try of a call goes: to an owner that was reached before; None for any server."""
        aim = aim_of(call)
        if aim is None:
            return None
        with self._lock:
            self._calls += 1
            if self._only_listed and self._source.addresses() is not self._listed:
                self._list_changed()
            if aim.shard and call.method == "dequeueJobs" and self._calls % _TURN == 0:
                aim = aim._replace(shard="")
            candidates = self._table.candidates(aim)
            if not candidates:
                return None
            owner = candidates[0]
            if len(candidates) > 1:
                owner = self._affinity.choose(candidates, aim.jobs, self._monotonic())
            if owner == NO_SERVER:
                return None
            address = self._reached.get(owner)
            if address is None:
                self._wanted.add(owner)
            return address

    def _list_changed(self) -> None:
        self._listed = self._source.addresses()
        for address in [at for at in self._reached.values() if at not in self._listed]:
            self.lost(address)

    def has_reached(self, address: ServerAddress) -> bool:
        """Whether an owner was reached there, and has not failed since."""
        with self._lock:
            return address in self._reached.values()

    @property
    def has_reached_any(self) -> bool:
        return bool(self._reached)

    # --- what to do -----------------------------------------------------------------------------------------------------------

    def has_work(self) -> bool:
        """Whether it is time to ask, or to connect to an owner."""
        if self._calls < _CALLS_FIRST or (self._only_listed and len(self._source.addresses()) < 2):
            return False
        if self.is_ask_due():
            return True
        now_s = self._monotonic()
        if not self._wanted or now_s < self._look_at_s:
            return False
        if self.to_reach():
            return True
        self._look_at_s = now_s + _LOOK_S
        return False

    def work_begins(self) -> None:
        """What `has_work` was true for."""
        self._look_at_s = self._monotonic() + _LOOK_S

    def is_ask_due(self) -> bool:
        """Whether it is time to ask which servers own what."""
        return self._monotonic() >= self._ask_at_s

    def can_say(self, address: ServerAddress) -> bool:
        """Whether that server is worth asking. If it isn't, another one may be, later."""
        if self._lacking.get(address, 0.0) <= self._monotonic():
            return True
        self._ask_in(_ASK_AGAIN_S)
        return False

    def to_reach(self) -> Collection[ServerAddress]:
        """Where to look for the owners that are wanted and not reached, a few at a time."""
        with self._lock:
            listed, now_s = self._source.addresses(), self._monotonic()
            found = dict[ServerAddress, None]()
            for owner in self._wanted:
                at = self._address_of(owner, listed)
                if at is not None and not self._is_away(at, now_s):
                    found[at] = None
                else:
                    found.update(dict.fromkeys([address for address in listed if address not in self._ids]))
            taken = set(self._reached.values())
            able = [address for address in found if address not in taken and not self._is_away(address, now_s)]
            return able[: max(0, SERVERS_MAX - len(taken))]

    def _address_of(self, owner: str, listed: Collection[ServerAddress]) -> ServerAddress | None:
        for address, said in self._ids.items():
            if said == owner:
                return address
        try:
            advertised = parse_address(self._table.addresses[owner])
        except ValueError:
            return None
        return advertised if advertised in listed or not self._only_listed else None

    def _is_away(self, address: ServerAddress, now_s: float) -> bool:
        failures = self._failures.get(address)
        return failures is not None and failures.until_s > now_s

    # --- what came of it ------------------------------------------------------------------------------------------------------

    def learned(self, table: OwnerTable) -> None:
        """A server has said who owns what."""
        with self._lock:
            self._failed_asks = 0
            self._table = table
            self._ask_in(_ASK_AGAIN_S if table.owners else _ASK_LATER_S)
            self._reached = {owner: at for owner, at in self._reached.items() if owner in table.addresses}
            self._wanted &= table.addresses.keys()
            self._ids = {at: said for at, said in self._ids.items() if said in table.addresses}
            now_s = self._monotonic()
            self._failures = {at: one for at, one in self._failures.items() if now_s - one.at_s < _FORGIVEN_AFTER_S}

    def cannot_say(self, address: ServerAddress) -> None:
        """Notes that the server does not know the method, or that this caller may not call it."""
        with self._lock:
            now_s = self._monotonic()
            self._lacking = {at: until_s for at, until_s in self._lacking.items() if until_s > now_s}
            self._lacking[address] = now_s + _ASK_LATER_S
            self._ask_in(_ASK_AGAIN_S)

    def ask_failed(self) -> None:
        """No server answered."""
        with self._lock:
            self._failed_asks += 1
            self._ask_in(min(_ASK_AGAIN_S, _RETRY_FIRST_S * 2.0 ** min(self._failed_asks - 1, 10)))

    def reached(self, address: ServerAddress, said: str) -> bool:
        """The server there has said its id. Whether it is an owner, so that calls may go there from now on."""
        with self._lock:
            self._ids[address] = said
            if said not in self._table.addresses or said in self._reached:
                # Not asked again before the owners have changed, or some time has passed.
                self._note_failure(address)
                return False
            self._wanted.discard(said)
            self._reached[said] = address
            return True

    def failed(self, address: ServerAddress) -> None:
        """It can't be reached, broke off, did not answer in time, or stops. No call goes there for a time, which grows."""
        with self._lock:
            was_used = self.lost(address)
            self._note_failure(address)
            if was_used:
                soon_s = self._monotonic() + _ASK_AFTER_LOSS_S * (0.3 + self._random.random())
                self._ask_at_s = min(self._ask_at_s, soon_s)

    def _note_failure(self, address: ServerAddress) -> None:
        now_s = self._monotonic()
        failures = self._failures.setdefault(address, _Failures())
        if now_s - failures.at_s > _FORGIVEN_AFTER_S:
            failures.count = 0
        elif failures.until_s > now_s:
            return
        failures.count += 1
        failures.at_s = now_s
        failures.until_s = now_s + min(_AWAY_MAX_S, _AWAY_FIRST_S * 2.0 ** min(failures.count - 1, 10))

    def lost(self, address: ServerAddress) -> bool:
        """There is no connection to it any more. Whether it was in use."""
        with self._lock:
            ids = [owner for owner, at in self._reached.items() if at == address]
            for owner in ids:
                del self._reached[owner]
            self._ids.pop(address, None)
            return bool(ids)

    def _ask_in(self, seconds: float) -> None:
        """Spread, so that clients that began together do not stay together."""
        self._ask_at_s = self._monotonic() + seconds * (0.75 + self._random.random() / 2)
