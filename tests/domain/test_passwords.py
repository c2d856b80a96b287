"""Hashes of the admin password."""

from __future__ import annotations

import pytest

from pinlater.domain.passwords import HashMalformed, check_hash_form, hash_password, verify_password

# SHA-256 of "open sesame" and the original's salt.
ORIGINAL = "6e4c412acbad7b36e0c19c862413db34a2b4a6f6cec8566316c7b96aa4849b17"
# Low costs, so that the test is quick: the form says its own costs.
QUICK = "scrypt:16:1:1:MDEyMzQ1Njc4OWFiY2RlZg:LRGcxBRo5BjENXn5zpaL40YSC0XdjNlUcT3NvraTOxM"


@pytest.fixture(scope="module")
def stored() -> str:
    return hash_password("open sesame")


def test_a_password_matches_its_own_hash_and_no_other_does(stored: str) -> None:
    assert verify_password("open sesame", stored)
    assert not verify_password("open sesam", stored)
    assert not verify_password("", stored)


def test_two_hashes_of_one_password_differ(stored: str) -> None:
    assert hash_password("open sesame") != stored


def test_a_hash_names_its_function_and_costs(stored: str) -> None:
    assert stored.startswith("scrypt:16384:8:5:")
    check_hash_form(stored)


def test_a_hash_needs_no_quoting_in_a_shell_or_a_compose_file(stored: str) -> None:
    assert not set(stored) & set("$ '\"\\#!&*`=")


def test_a_hash_in_the_originals_form_keeps_working() -> None:
    check_hash_form(ORIGINAL)
    assert verify_password("open sesame", ORIGINAL)
    assert not verify_password("open sesam", ORIGINAL)


def test_costs_come_from_the_hash() -> None:
    assert verify_password("open sesame", QUICK)
    assert not verify_password("open sesam", QUICK)


def test_passwords_of_any_characters_work() -> None:
    stored = hash_password("пароль 🔑\n")
    assert verify_password("пароль 🔑\n", stored)


def test_text_that_has_no_bytes_matches_nothing() -> None:
    assert not verify_password("\ud800", ORIGINAL)


def test_an_empty_password_is_not_hashed() -> None:
    with pytest.raises(ValueError, match="empty"):
        hash_password("")


@pytest.mark.parametrize(
    "malformed",
    [
        "",
        "open sesame",
        "0" * 63,
        "0" * 65,
        "A" * 64,
        "0" * 64 + "\n",
        "scrypt:16384:8:5:salt",
        "bcrypt:1:1:1:AAAAAAAAAAAAAAAAAAAAAA:" + "A" * 43,
        "scrypt:16383:8:5:AAAAAAAAAAAAAAAAAAAAAA:" + "A" * 43,
        "scrypt:1:8:5:AAAAAAAAAAAAAAAAAAAAAA:" + "A" * 43,
        "scrypt:0:8:5:AAAAAAAAAAAAAAAAAAAAAA:" + "A" * 43,
        "scrypt:-2:8:5:AAAAAAAAAAAAAAAAAAAAAA:" + "A" * 43,
        "scrypt:1048576:8:5:AAAAAAAAAAAAAAAAAAAAAA:" + "A" * 43,
        "scrypt:16384:8:5000:AAAAAAAAAAAAAAAAAAAAAA:" + "A" * 43,
        "scrypt:16384:8:5:AAAA:" + "A" * 43,
        "scrypt:16384:8:5:AAAAAAAAAAAAAAAAAAAAAA:AAAA",
        "scrypt:16384:8:5:****************:" + "A" * 43,
        "scrypt:16384:8:5:ÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄ:" + "A" * 43,
    ],
)
def test_a_malformed_hash_is_refused_without_being_shown(malformed: str) -> None:
    with pytest.raises(HashMalformed) as caught:
        check_hash_form(malformed)
    assert not malformed or malformed not in str(caught.value)
    with pytest.raises(HashMalformed):
        verify_password("open sesame", malformed)
