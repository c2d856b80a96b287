"""Names of queues."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinlater.domain.errors import ErrorCode, QueueNameInvalid, QueueNameTooLong
from pinlater.domain.queue import QUEUE_NAME_CHARS_MAX, check_queue_name


@pytest.mark.parametrize("name", ["a", "Z", "0", "_", "emails", "Emails_2", "q" * 50, "q" * QUEUE_NAME_CHARS_MAX])
def test_legal_names(name: str) -> None:
    """Letters, digits and underscore; 50 characters work on every store."""
    assert check_queue_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", " ", "a b", "a-b", "a.b", "a:b", "é", "a\n", "\x00", "q\x00", "٣", "ａ", "../etc", "'; --", "a" * 99 + "!"],
)
def test_other_characters_are_refused(name: str) -> None:
    """By the contract's code and text, which people grep for."""
    with pytest.raises(QueueNameInvalid) as caught:
        check_queue_name(name)
    assert caught.value.code is ErrorCode.QUEUE_NAME_INVALID
    assert caught.value.message == f"Invalid queue name: {name}"


@pytest.mark.parametrize("length", [65, 100, 1_000_000])
def test_long_names_are_refused(length: int) -> None:
    """65 characters are refused on every store."""
    with pytest.raises(QueueNameTooLong) as caught:
        check_queue_name("q" * length)
    assert caught.value.code is ErrorCode.QUEUE_NAME_TOO_LONG
    assert str(length) in caught.value.message
    assert len(caught.value.message) < 200


@given(st.text(max_size=100))
def test_any_text_is_a_name_or_one_of_two_errors(name: str) -> None:
    """And what is a name is ASCII."""
    try:
        check_queue_name(name)
    except (QueueNameInvalid, QueueNameTooLong):
        return
    assert name.isascii()
    assert name.replace("_", "a").isalnum()
    assert 1 <= len(name) <= QUEUE_NAME_CHARS_MAX
