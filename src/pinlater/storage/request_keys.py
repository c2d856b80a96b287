"""What a keyed enqueue request was answered, as the relational stores keep it for those who ask again."""

from __future__ import annotations

import json
from array import array
from typing import NamedTuple

from pinlater.domain.errors import PinLaterError, RequestKeyConflict
from pinlater.storage.interface import Inserted

REQUEST_KEY_KEPT_MS = 120_000


class KeyedAnswer(NamedTuple):
    """What a keyed request was answered; `ids` packed, `existing` as JSON."""

    seen_at_ms: int
    fingerprint: bytes
    ids: bytes
    existing: str | None

    def to(self, key: str, fingerprint: bytes, now_ms: int) -> Inserted | PinLaterError | None:
        """The answer for a request of that key and content; None where the key's time is over."""
        if self.seen_at_ms + REQUEST_KEY_KEPT_MS < now_ms:
            return None
        if self.fingerprint != fingerprint:
            return RequestKeyConflict(key)
        ids = array("q", self.ids)
        found = json.loads(self.existing) if self.existing else {}
        existing = {int(index): (job[0], job[1]) for index, job in found.items()}
        return Inserted(ids.tolist(), existing, repeated=True)

    @classmethod
    def of(cls, answer: Inserted, fingerprint: bytes, now_ms: int) -> KeyedAnswer:
        """What to keep of an answer that is given now."""
        existing = json.dumps(answer.existing) if answer.existing else None
        return cls(now_ms, fingerprint, array("q", answer.ids).tobytes(), existing)
