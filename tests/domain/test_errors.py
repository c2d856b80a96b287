"""Errors as values that many callers may be given."""

from __future__ import annotations

import copy
import pickle

import pytest

from pinlater.client import errors as client_errors
from pinlater.domain import errors
from pinlater.domain.errors import OutcomeUnknown, PinLaterError, QueueFull, StoreFull


@pytest.mark.parametrize(
    "error", [OutcomeUnknown("lost", retry_after_ms=7), QueueFull.of("q", 2, 1, 1), StoreFull.of("disk")]
)
def test_a_text_is_added_to_a_copy(error: PinLaterError) -> None:
    """One error may be the answer to all callers of a batch; what is added for one must not be told to all."""
    before = error.message
    more = errors.adding(error, " (and more)")
    assert error.message == str(error) == before
    assert more.message == str(more) == before + " (and more)"
    assert type(more) is type(error)
    assert (more.code, more.detail, more.retryable) == (error.code, error.detail, error.retryable)
    assert more.retry_after_ms == error.retry_after_ms


KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, PinLaterError)]


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_is_copied_and_pickled_whole(kind: type[PinLaterError]) -> None:
    """Callers send errors between processes; a constructor of its own would lose one on the way."""
    error = kind("no", code=errors.ErrorCode.UNKNOWN, detail="WORD", retryable=True, retry_after_ms=7)
    for same in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(same) is kind
        assert str(same) == same.message == "no"
        assert (same.code, same.detail, same.retryable, same.retry_after_ms) == (500, "WORD", True, 7)


@pytest.mark.parametrize(
    ("sent", "caught_as"),
    [
        (errors.QueueFull.of("q", 2, 1, 1), client_errors.EnqueueRejected),
        (errors.StoreFull.of("/x"), client_errors.EnqueueRejected),
        (errors.OutcomeUnknown("lost"), client_errors.ShardConnectionFailed),
        (errors.DescriptorInvalid.of("x"), client_errors.CallerError),
        (errors.TooManyWaiting("no"), client_errors.WorldError),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_client_raises_the_class_that_the_service_answered_with(
    sent: PinLaterError, caught_as: type[PinLaterError]
) -> None:
    code = errors.ErrorCode.UNKNOWN if sent.code is None else sent.code
    raised = client_errors.error_for(code, sent.message, sent.detail, sent.retryable, sent.retry_after_ms)
    assert type(raised) is type(sent)
    assert isinstance(raised, caught_as)
    assert (raised.message, raised.detail, raised.retry_after_ms) == (sent.message, sent.detail, sent.retry_after_ms)
    assert type(client_errors.error_for(code, sent.message)) is not type(sent)  # an original server says no detail
