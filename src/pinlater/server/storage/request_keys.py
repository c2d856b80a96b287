"""The answer to a keyed enqueue request, as the relational stores keep it for a repeat."""

from __future__ import annotations

import json
import time
from array import array
from collections.abc import Sequence
from typing import NamedTuple

from pinlater.domain.errors import PinLaterError, RequestKeyConflict, RequestTooOld
from pinlater.domain.request_keys import BEGUN_WITHIN_MS
from pinlater.domain.request_keys import REQUEST_KEY_KEPT_MS as REQUEST_KEY_KEPT_MS
from pinlater.server.storage.values import Inserted, InsertRequest, KeyHolder


class KeyedAnswer(NamedTuple):
    """The answer to a keyed request; `ids` packed, `existing` as JSON."""

    seen_at_ms: int
    fingerprint: bytes
    ids: bytes
    existing: str | None

    def to(self, key: str, fingerprint: bytes, now_ms: int) -> Inserted | PinLaterError | None:
        """The answer for a request of that key and content, or None if the key's time is over."""
        if self.seen_at_ms + REQUEST_KEY_KEPT_MS < now_ms:
            return None
        if self.fingerprint != fingerprint:
            return RequestKeyConflict.of(key)
        ids = array("q", self.ids)
        found = json.loads(self.existing) if self.existing else {}
        existing = {int(index): KeyHolder(job_id, priority) for index, (job_id, priority) in found.items()}
        return Inserted(ids.tolist(), existing, repeated=True)

    @classmethod
    def of(cls, answer: Inserted, fingerprint: bytes, now_ms: int) -> KeyedAnswer:
        """Returns the stored form of an answer that is given now."""
        existing = json.dumps(answer.existing) if answer.existing else None
        return cls(now_ms, fingerprint, array("q", answer.ids).tobytes(), existing)


class InsertAge:
    """Measures the time from the call of a store's insert to its query; made at the call."""

    def __init__(self) -> None:
        self._asked_at_s = time.perf_counter()

    def check(self, requests: Sequence[InsertRequest]) -> None:
        """Checks the age of requests before the database gets them. Raises `RequestTooOld` if that is long after (this process stood
        still, or waited for its connection), and one of the requests has a key, which may be forgotten.
        """
        late = time.perf_counter() - self._asked_at_s > BEGUN_WITHIN_MS / 1000
        if late and any(request.request_key is not None for request in requests):
            raise RequestTooOld
