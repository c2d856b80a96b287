"""The effect of a job's options on its claim."""

from __future__ import annotations

from pinlater.domain.job import UniqueScope
from pinlater.server.storage.options import Options
from pinlater.server.storage.record import HAS_KEY, HAS_ORDER, HAS_PROGRESS


def claim_timeout_ms(options: Options, default_ms: int) -> int:
    """The job's own claim timeout, or the one that the operation passed (the queue's or the server's)."""
    return default_ms if options.timeout_ms is None else options.timeout_ms


def claim_flags(options: Options, *, has_progress: bool) -> int:
    """The claim's flags: 0 if a plain ack need not read the job."""
    unfinished = options.unique is not None and options.unique.scope is UniqueScope.UNFINISHED
    ordered = HAS_ORDER if options.ordering_key is not None else 0
    return (HAS_PROGRESS if has_progress else 0) | (HAS_KEY if unfinished else 0) | ordered


def freed_by_claim(options: Options) -> str | None:
    """The unique key that the claim frees: one of scope PENDING."""
    unique = options.unique
    return unique.key if unique is not None and unique.scope is UniqueScope.PENDING else None
