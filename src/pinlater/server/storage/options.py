"""What few jobs have, in the one JSON column `jobs.options`: a status at enqueue, headers, a unique key, an own claim timeout, an expiry.

A job without any of them has NULL there, and costs nothing for what it doesn't use.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from pinlater.domain.job import NewJob, UniqueKey, UniqueScope
from pinlater.domain.transitions import MYSQL_STATUS, StatusRule


class Options(NamedTuple):
    """The column, read. Its fields are the last ones of a `NewJob`, in their order."""

    status: str = ""
    headers: Mapping[str, str] | None = None
    unique: UniqueKey | None = None
    timeout_ms: int | None = None
    expires_ms: int | None = None


NONE = Options()
# A tenth of what the standard library takes, which is a fifth of an enqueue of many jobs with headers.
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def has_expired(options: Options, now_ms: int) -> bool:
    """Whether a claim fails the job instead of handing it out, and a retry leaves it FAILED."""
    return options.expires_ms is not None and options.expires_ms < now_ms


def options_text(job: NewJob, rule: StatusRule = MYSQL_STATUS) -> str | None:
    """What to store; None if the job has nothing of it."""
    status = rule.at_enqueue(job.custom_status) if job.custom_status else ""
    return text_of(Options(status, job.headers, job.unique, job.claim_timeout_ms, job.expires_at_ms))


def text_of(options: Options) -> str | None:
    """The column that `options_of` reads so."""
    found: dict[str, object] = {}
    if options.status:
        found["status"] = options.status
    if options.headers:
        found["headers"] = dict(options.headers)
    if options.unique is not None:
        found["unique"] = [options.unique.key, int(options.unique.scope), options.unique.for_ms]
    if options.timeout_ms is not None:
        found["timeout_ms"] = options.timeout_ms
    if options.expires_ms is not None:
        found["expires_ms"] = options.expires_ms
    return _encode(found).decode() if found else None


def options_of(text: str | None) -> Options:
    """The stored column's meaning."""
    if text is None:
        return NONE
    found = _decode(text)
    unique = found.get("unique")
    return Options(
        status=found.get("status", ""),
        headers=found.get("headers"),
        unique=None if unique is None else UniqueKey(unique[0], UniqueScope(unique[1]), unique[2]),
        timeout_ms=found.get("timeout_ms"),
        expires_ms=found.get("expires_ms"),
    )
