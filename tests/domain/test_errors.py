"""Errors as values that many callers may be given."""

from __future__ import annotations

import pytest

from pinlater.domain.errors import OutcomeUnknown, PinLaterError, QueueFull, StoreFull


@pytest.mark.parametrize("error", [OutcomeUnknown("lost", retry_after_ms=7), QueueFull("q", 2, 1), StoreFull("disk")])
def test_a_text_is_added_to_a_copy(error: PinLaterError) -> None:
    """One error may be the answer to all callers of a batch; what is added for one must not be told to all."""
    before = error.message
    more = error.adding(" (and more)")
    assert error.message == str(error) == before
    assert more.message == str(more) == before + " (and more)"
    assert type(more) is type(error)
    assert (more.code, more.detail, more.retryable) == (error.code, error.detail, error.retryable)
    assert more.retry_after_ms == error.retry_after_ms
