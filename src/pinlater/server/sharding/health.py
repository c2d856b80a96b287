"""Whether a shard is in use, decided from the outcomes of the calls to it.

In use → out of use: too many failures among the newest calls, or a failed probe. A first failure doesn't put a shard out of use, but
causes an immediate probe, so that a server that is gone is known after one error, and a single lost connection harms nothing. Out of use
→ in use: one good probe; but on probation, until a call has succeeded. A shard that fails on probation waits longer for its next probe
than before, so that a shard that answers only pings is not tried every second.

Decides only; `shard_lanes.py` and `shard_monitor.py` act. Weakness: each server decides for itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from pinlater.domain.errors import (
    Draining,
    NoHealthyShards,
    PinLaterError,
    RequestTooOld,
    ShardRefused,
    StoreFull,
    Unavailable,
)
from pinlater.server.sharding.failure_kind import CONNECTION
from pinlater.server.sharding.settings import ShardingSettings

TIMEOUT_WEIGHT = 3
_SUCCESS = float("-inf")  # among the times of failures: older than any window


def speaks_of_shard(error: PinLaterError | None) -> bool:
    """Returns whether an error means that the shard failed, rather than that a request is impossible, the store is full or we are
    stopping."""
    return isinstance(error, Unavailable) and not isinstance(
        error, StoreFull | ShardRefused | Draining | NoHealthyShards | RequestTooOld
    )


class ShardHealth:
    """The health of one shard. `spread` gives numbers in [0, 1) that keep servers from probing at the same time."""

    def __init__(
        self, settings: ShardingSettings, monotonic: Callable[[], float], spread: Callable[[], float] = lambda: 0.5
    ) -> None:
        self.healthy = True
        self.reason = ""  # the reason why it is out of use, or last was
        self.since = monotonic()  # seconds; when it went out of use or came back
        self.failure = ""  # the last call or probe that failed, at `failed_at` (seconds)
        self.failure_kind = ""  # its kind; a word of `failure_kind.py`
        self.failed_at: float | None = None
        self._settings = settings
        self._monotonic = monotonic
        self._spread = spread
        self._newest: deque[float] = deque(maxlen=settings.window_calls)
        self._probe_at: float | None = None
        self._pause_ms = settings.probe_interval_ms
        self._probation = False

    def begin(self) -> None:
        """Puts the shard to use, and forgets its failures."""
        self.healthy = True
        self.since = self._monotonic()
        self._newest.clear()
        self._probe_at = None
        self._pause_ms = self._settings.probe_interval_ms
        self._probation = False

    # --- calls ----------------------------------------------------------------------------------------------------------

    def succeeded(self) -> None:
        """Notes a call that was answered."""
        self._newest.append(_SUCCESS)
        if self._probation:
            self._probation = False
            self._pause_ms = self._settings.probe_interval_ms

    def failed(self, reason: str, kind: str = CONNECTION, *, timed_out: bool = False) -> None:
        """Notes a call that failed because of the shard."""
        now = self._monotonic()
        self._note(reason, kind)
        self._newest.extend([now] * (TIMEOUT_WEIGHT if timed_out else 1))
        if not self.healthy:
            return
        past = now - self._settings.window_ms / 1000
        if self._probation or sum(at >= past for at in self._newest) >= self._settings.failures_to_open:
            self._put_out_of_use(reason)
        else:
            self.suspect()

    # --- probes ---------------------------------------------------------------------------------------------------------

    def suspect(self) -> None:
        """Makes a probe due now, since something may be wrong."""
        if self._probe_at is None:
            self._probe_at = self._monotonic()

    def probe_due(self) -> bool:
        """Returns whether to probe now. Returns True once for each probe."""
        if self._probe_at is None or self._monotonic() < self._probe_at:
            return False
        self._probe_at = None
        return True

    def probe_succeeded(self) -> None:
        """Notes a successful probe: the shard could serve a write now."""
        self._probe_at = None
        if not self.healthy:
            self.healthy = True
            self.since = self._monotonic()
            self._probation = True
            self._newest.clear()

    def probe_failed(self, reason: str, kind: str = CONNECTION) -> None:
        self._note(reason, kind)
        if self.healthy:
            self._put_out_of_use(reason)
            return
        self.reason = reason
        self._pause_ms = min(self._pause_ms * 2, self._settings.probe_interval_max_ms)
        self._plan_probe()

    def _note(self, failure: str, kind: str) -> None:
        self.failure, self.failure_kind, self.failed_at = failure, kind, self._monotonic()

    def _put_out_of_use(self, reason: str) -> None:
        if self._probation:
            self._pause_ms = min(self._pause_ms * 2, self._settings.probe_interval_max_ms)
        self.healthy = False
        self.reason = reason
        self.since = self._monotonic()
        self._probation = False
        self._plan_probe()

    def _plan_probe(self) -> None:
        self._probe_at = self._monotonic() + self._pause_ms / 1000 * (0.75 + self._spread() / 2)
