"""Claims that were sent to another server in answers whose receipt it has not confirmed yet.

If the connection is lost, only that server knows which answers arrived. It reports them when it connects again, and the other claims are
given back. If it never connects again, it has stopped, and those claims time out like all others that its clients held.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from pinlater.server.storage.values import Claimed

# How long a server may take to connect again.
KEPT_S = 60.0
_CONNECTIONS_MAX = 256


class Lost(NamedTuple):
    """A connection that ended, from the view of the side that asks. `nonce`: of its hello; `taken`: how many answers arrived."""

    nonce: bytes
    taken: int


class AnsweredClaims(NamedTuple):
    """The claims of one answer."""

    shard: str
    requests: Sequence[Any]
    answers: Sequence[Any]

    def without_bodies(self) -> AnsweredClaims:
        """Returns the claims with what is needed to give them back."""
        return self._replace(answers=[_without_bodies(answer) for answer in self.answers])


def _without_bodies(answer: object) -> object:
    if not isinstance(answer, Claimed):
        return answer
    return answer._replace(jobs=[[job._replace(body=b"") for job in jobs] for jobs in answer.jobs])


class ClaimsOfLostConnections:
    """Claims over the lost connections of all servers, by the nonce of the connection. `give_back(claims)` gets those whose answer did
    not arrive.
    """

    def __init__(self, monotonic: Callable[[], float], give_back: Callable[[AnsweredClaims], None]) -> None:
        self._monotonic = monotonic
        self._give_back = give_back
        self._unconfirmed: OrderedDict[bytes, tuple[float, Sequence[tuple[int, AnsweredClaims]]]] = OrderedDict()

    def keep(self, nonce: bytes, unconfirmed: Collection[tuple[int, AnsweredClaims]]) -> None:
        """Keeps the claims of a lost connection, until the other server says which arrived. `unconfirmed`: with the numbers of the answers,
        from 1.
        """
        now_s = self._monotonic()
        for old, (until_s, _) in list(self._unconfirmed.items()):
            if until_s > now_s and len(self._unconfirmed) < _CONNECTIONS_MAX:
                break
            del self._unconfirmed[old]
        if unconfirmed:
            kept = [(number, claims.without_bodies()) for number, claims in unconfirmed]
            self._unconfirmed[nonce] = now_s + KEPT_S, kept

    def settle(self, lost: Lost) -> None:
        """Notes which answers the other server received. A repeat changes nothing."""
        until_s, unconfirmed = self._unconfirmed.pop(lost.nonce, (0.0, ()))
        if until_s > self._monotonic():
            for number, claims in unconfirmed:
                if number > lost.taken:
                    self._give_back(claims)
