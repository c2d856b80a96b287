"""Which shard may have stored a request of unknown outcome."""

from __future__ import annotations

from weakref import WeakSet

import pytest

from pinlater.domain.request_keys import REPEATED_WITHIN_MS
from pinlater.server.operations import unsettled_requests
from pinlater.server.operations.unsettled_requests import UnsettledRequests


def test_a_request_of_unknown_outcome_belongs_to_its_shard_for_as_long_as_clients_repeat_it() -> None:
    now_s = [100.0]
    requests = UnsettledRequests(lambda: now_s[0])
    requests.note("mail", "key", "2")
    assert requests.shard_of("mail", "key") == "2"
    assert (requests.shard_of("mail", "another"), requests.shard_of("sms", "key")) == (None, None)
    now_s[0] += REPEATED_WITHIN_MS / 1000 - 1
    requests.note("mail", "key", "2")  # the repeat's outcome is unknown, too
    now_s[0] += 2
    assert requests.shard_of("mail", "key") == "2"
    now_s[0] += REPEATED_WITHIN_MS / 1000
    assert requests.shard_of("mail", "key") is None


def test_a_request_whose_outcome_became_known_is_forgotten() -> None:
    requests = UnsettledRequests(lambda: 0.0)
    requests.note("mail", "key", "2")
    requests.settle("mail", "key")
    requests.settle("mail", "never seen")
    assert requests.shard_of("mail", "key") is None


class RequestKey(str):
    """A request key, of which a test can tell whether anything keeps it."""

    __slots__ = ("__weakref__",)


def test_old_requests_take_no_memory() -> None:
    now_s, kept = [0.0], WeakSet[RequestKey]()
    requests = UnsettledRequests(lambda: now_s[0])
    for number in range(1_000):
        key = RequestKey(number)
        kept.add(key)
        requests.note("mail", key, "1")
        now_s[0] += 1.0
    assert 1 < len(kept) <= REPEATED_WITHIN_MS / 1000 + 1


def test_of_too_many_requests_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unsettled_requests, "_REQUESTS_MAX", 10)
    requests = UnsettledRequests(lambda: 0.0)
    for number in range(25):
        requests.note("mail", str(number), "1")
    assert [number for number in range(25) if requests.shard_of("mail", str(number))] == list(range(15, 25))
