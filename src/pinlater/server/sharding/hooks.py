"""The events that the shards of one map report to code outside of `sharding/`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pinlater.server.sharding.joined_claims import ClaimRequest
from pinlater.server.storage.values import Claimed, InsertRequest


class Hooks:
    """The functions that the shards of one map call on events. They are set once; shards that come later call the same functions."""

    def __init__(self) -> None:
        self.undelivered: Callable[[str, ClaimRequest, Claimed], None] | None = None
        """Called with the answer of a claim whose caller had gone, or had got an error because the claim took too long."""
        self.inserting: Callable[[str, Sequence[InsertRequest], int, Callable[[str], bool]], bool] | None = None
        """Called with jobs as soon as a claim would see them; returns whether a dequeue waits for them. On a store that works in order that
        is before they are committed, so that the claim that waits for them shares their transaction."""
        self.came_first: Callable[[str, int, bool], bool] = lambda _queue, _due_ms, _past_owner: False
        """Called with a job that became ready because those before it under its ordering key have ended: its queue, when it is due, and
        whether this server bypassed the queue's owner. Returns whether a dequeue waits for it, which claims it now."""
        self.back: Callable[[], None] = lambda: None
        """Called when a shard is reachable again, or new: it may have jobs for waiting dequeues."""
        self.count: Callable[[str], None] = lambda _: None
        """Counts an event, by its name."""
        self.expired: Callable[[str, int], None] = lambda _queue, _jobs: None
        """Jobs of a queue that failed because a claim found them past their expiry."""
