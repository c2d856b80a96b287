"""Quotas of tokens: how much of one server the callers with a token may use at the same time, and what they use now.

Each server counts for itself. The use is counted by the digest of a token, so a change of the tokens file, or of a token's name, loses no
count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from pinlater.domain.byte_budget import SMALL_FRAME_BYTES

# With less, a server would refuse most requests.
BYTES_LEAST = 64 * 1024
# A worker that waits for jobs over the last connection of its token needs another one to report on its jobs; and a console uses a
# connection that is open for one caller for another one, too.
BEYOND_LEAST = 64
_RESERVED_SHARE = 4


class Quota(NamedTuple):
    """Bounds on what may be used of one server at the same time. 0: no bound."""

    connections: int = 0
    polls: int = 0
    bytes_in_flight: int = 0


NO_QUOTA = Quota()


class OwnQuota(NamedTuple):
    """What the file of tokens says about one token. None: the default of the server applies. 0: no bound."""

    connections: int | None = None
    polls: int | None = None
    bytes_in_flight: int | None = None

    def over(self, default: Quota) -> Quota:
        """The quota that applies."""
        return Quota(*[general if own is None else own for own, general in zip(self, default, strict=True)])


def check_bytes(bound: int) -> int:
    """Returns the bound. Raises ValueError for one that no server could work with."""
    if 0 < bound < BYTES_LEAST:
        raise ValueError(f"{bound} bytes in flight are too few: at least {BYTES_LEAST}, or 0 for no bound")
    return bound


@dataclass(slots=True, eq=False)
class TokenUse:
    """What the callers with one token use of this server now, and their quota. `name` is '' for all callers without a token.

    `connections_beyond`: connections beyond the quota, which carry reports of workers or were open for another token. `bytes_held`: bytes
    of requests from their arrival until they are answered, and of answers that the kernel has not accepted. `refusals` never decreases.
    """

    name: str
    quota: Quota = NO_QUOTA
    connections: int = 0
    connections_beyond: int = 0
    polls: int = 0
    bytes_held: int = 0
    refusals: int = 0
    unlogged: int = 0  # refusals since the last line in the log
    logged_s: float | None = None

    @property
    def is_in_use(self) -> bool:
        """Whether it has connections, waiting dequeues or bytes at the moment."""
        return bool(self.connections or self.connections_beyond or self.polls or self.bytes_held)

    @property
    def is_shown(self) -> bool:
        """Whether metrics show it: it has a quota, or callers, or callers were refused."""
        return self.quota != NO_QUOTA or self.is_in_use or bool(self.refusals)

    def takes_connection(self) -> bool:
        """Returns whether one more connection is within the quota."""
        return not self.quota.connections or self.connections < self.quota.connections

    def takes_connection_beyond(self) -> bool:
        """Returns whether one more connection may count beyond the quota: up to as many again, with a minimum."""
        return self.connections_beyond < max(self.quota.connections, BEYOND_LEAST)

    def takes_poll(self) -> bool:
        """Returns whether one more dequeue may wait."""
        return not self.quota.polls or self.polls < self.quota.polls

    def takes_bytes(self, held_bytes: int, request_bytes: int, *, is_report: bool) -> bool:
        """Returns whether a request fits that is already counted in `held_bytes`.

        A quarter beyond the quota is for reports of workers, and small ones always fit.
        """
        bound, needed = self.quota.bytes_in_flight, max(held_bytes, request_bytes)
        if not bound or needed <= bound:
            return True
        return is_report and (request_bytes <= SMALL_FRAME_BYTES or needed <= bound + bound // _RESERVED_SHARE)


def any_quota(uses: Iterable[TokenUse]) -> bool:
    """Returns whether any of them has a bound."""
    return any(use.quota != NO_QUOTA for use in uses)
