"""The search within a long text, which its callers cut before."""

from __future__ import annotations

from pinlater.domain.failures import _VARIABLE


def test_an_address_is_looked_for_from_the_beginning_of_a_word() -> None:
    """From each character of a word, the search takes quadratic time: this text would take hours."""
    assert _VARIABLE.sub("", "a" * 1_000_000) == "a" * 1_000_000
