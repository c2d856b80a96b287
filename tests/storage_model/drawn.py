"""What Hypothesis draws: small worlds, so that operations meet each other often. Few keys, few times, few queues."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

from pinlater.domain.job import UniqueKey, UniqueScope
from pinlater.domain.queue import QueueConfig

QUEUES = ("alpha", "beta")
TIMEOUT_MS = 1_000

queues = st.sampled_from(["alpha", "alpha", "alpha", "beta"])
priorities = st.sampled_from([1, 1, 2, 3])
seldom = st.sampled_from([False, False, False, True])
texts = st.sampled_from(["", "x", "é", "nul\x00", "s" * 4_990, "☂" * 600])
bodies = st.one_of(st.binary(max_size=8), st.sampled_from([b"", b"b" * 300]))
delays_ms = st.sampled_from([0, 0, 0, 0, -5, 1, 400, 1_500])
steps_ms = st.sampled_from([1, 2, 399, 400, 1_000, 1_001, 5_000, 120_001])
other_clocks_ms = st.sampled_from([0, 0, -1, 1, -400, 400, 60_000, 90_000_000])  # beside the caller's
limits = st.sampled_from([100, 3, 2, 1, 0])
picks = st.lists(st.sampled_from([0, 0, 1, 1, 2, 3, 4, 6, 9, 99]), min_size=1, max_size=4)
unique_keys = st.builds(
    UniqueKey, st.sampled_from(["k", "l"]), st.sampled_from(list(UniqueScope)), st.sampled_from([0, 500, 3_000])
)


# Of jobs with ordering keys.
settings = st.tuples(
    st.sampled_from([None, None, 2, 3]), st.sampled_from([None, "to_back"]), st.sampled_from([None, "stop"])
).map(
    lambda drawn: QueueConfig(max_in_hand_per_key=drawn[0], retry_place=drawn[1], after_failure=drawn[2])
)  # `builds` would draw the other settings, too


class JobAbout(NamedTuple):
    """A job to be stored, without what the clock and the id maker add."""

    body: bytes
    priority: int
    delay_ms: int
    attempts: int
    status: str
    headers: dict[str, str] | None
    unique: UniqueKey | None
    claim_timeout_ms: int | None
    expires_in_ms: int | None
    ordering_key: str | None = None


plain_jobs = st.builds(
    JobAbout,
    body=bodies,
    priority=priorities,
    delay_ms=delays_ms,
    attempts=st.integers(1, 3),
    status=st.just(""),
    headers=st.none(),
    unique=st.none(),
    claim_timeout_ms=st.none(),
    expires_in_ms=st.none(),
    ordering_key=st.none(),
)
rich_jobs = st.builds(
    JobAbout,
    body=bodies,
    priority=priorities,
    delay_ms=delays_ms,
    attempts=st.integers(1, 3),
    status=texts,
    headers=st.sampled_from([None, {"a": "b"}]),
    unique=st.one_of(st.none(), unique_keys, unique_keys),
    claim_timeout_ms=st.sampled_from([None, 1, 1_000]),
    expires_in_ms=st.sampled_from([None, None, None, None, -1, 0, 450]),
    ordering_key=st.none(),
)
ordered_jobs = st.builds(
    JobAbout,
    body=bodies,
    priority=priorities,
    delay_ms=delays_ms,
    attempts=st.integers(1, 3),
    status=st.just(""),
    headers=st.none(),
    unique=st.one_of(st.none(), st.none(), unique_keys),
    claim_timeout_ms=st.none(),
    # The next job of a key may go while the claim that meets an expired one is under way, or after it, as a store likes.
    expires_in_ms=st.none(),
    ordering_key=st.sampled_from(["o", "o", "p"]),
)
jobs = st.lists(st.one_of(plain_jobs, rich_jobs, rich_jobs, ordered_jobs), min_size=1, max_size=5)


class Token(NamedTuple):
    """Which token an operation brings: the newest known one of the job, none, or another's."""

    kind: str

    def of(self, known: str) -> str | None:
        return {"right": known, "none": None, "wrong": "wrong"}[self.kind]


tokens = st.builds(Token, st.sampled_from(["right", "right", "none", "wrong"]))
