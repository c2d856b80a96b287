"""Roles, patterns of queues, and secrets, as pure functions."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinlater.domain.access import (
    METHOD_ROLES,
    TOKEN_PREFIX,
    VARIANT_ROLES,
    Role,
    allowed,
    check_pattern,
    digest_of,
    matches,
    new_secret,
)
from pinlater.domain.body_masks import BodyMasks
from pinlater.server.access.control import AccessControl
from pinlater.server.access.tokens import Token


def test_an_admin_may_do_everything() -> None:
    assert allowed([Role.ADMIN]) == {*METHOD_ROLES, *VARIANT_ROLES}


def test_operate_includes_read_and_neither_work_nor_produce_does() -> None:
    assert allowed([Role.READ]) < allowed([Role.OPERATE])
    assert "getQueueNames" not in allowed([Role.WORK, Role.PRODUCE])


def test_several_roles_allow_what_each_allows() -> None:
    assert allowed([Role.WORK, Role.READ]) == allowed([Role.WORK]) | allowed([Role.READ])


def test_without_a_role_a_caller_may_ask_what_server_it_is() -> None:
    assert allowed([]) == {"getServerInfo"}


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        ("mail", ["mail"], ["mails", "a_mail", "Mail", ""]),
        ("mail*", ["mail", "mails"], ["amail", "mai"]),
        ("*mail", ["mail", "a_mail"], ["mails"]),
        ("a*b*c", ["abc", "a1b2c", "abbbc"], ["ab", "acb", "ab_"]),
        ("a*a", ["aa", "aba"], ["a"]),
        ("*", ["", "anything"], []),
        ("a**b", ["ab", "axb"], ["a"]),
    ],
)
def test_patterns_match_whole_names(pattern: str, good: list[str], bad: list[str]) -> None:
    assert [name for name in good if not matches([pattern], name)] == []
    assert [name for name in bad if matches([pattern], name)] == []


@given(st.text("ab*", min_size=1, max_size=8), st.text("ab", max_size=10))
def test_a_pattern_matches_as_a_regular_expression_would(pattern: str, name: str) -> None:
    expression = ".*".join(map(re.escape, pattern.split("*")))
    assert matches([pattern], name) == bool(re.fullmatch(expression, name))


def test_a_pattern_with_many_stars_ends_on_a_long_name() -> None:
    """A caller chooses the name; a matcher that tries all places for each star would not end in this test's time."""
    assert not matches(["*a*a*a*a*a*a*b"], "a" * 1_000_000)


@pytest.mark.parametrize("pattern", ["", "mail?", "mail-*", "a b", "[ab]", "gr\u00fcn", "a\n"])
def test_what_no_queue_could_match_is_no_pattern(pattern: str) -> None:
    with pytest.raises(ValueError, match="is not a pattern of queues"):
        check_pattern(pattern)


def test_secrets_have_256_bits_and_a_prefix_that_scanners_find() -> None:
    secrets = {new_secret() for _ in range(100)}
    assert len(secrets) == 100
    assert all(len(secret) == len(TOKEN_PREFIX) + 43 and secret.startswith(TOKEN_PREFIX) for secret in secrets)
    assert len(digest_of(secrets.pop())) == 64


class SentName(str):
    """The name of a queue, of which a test can tell whether anything keeps it."""

    __slots__ = ("__weakref__",)


def test_only_names_that_a_queue_may_have_are_remembered() -> None:
    """A caller may send others, as long as a frame, and none of them stays in memory."""
    control = AccessControl([], [Role.READ], lambda: 0, lambda: 0.0)
    control.replace([Token("mails", digest_of("secret"), (Role.READ,), ("mail*",), 0, None)])
    grant = control.grant_of("secret")
    masks = BodyMasks(["mail*"])
    askers: list[Callable[[str], bool]] = [grant.has_queue, lambda name: masks.of(name).whole]
    for asked in askers:
        name, long_name = SentName("mail"), SentName("mail" + "x" * 100_000)
        kept, not_kept = weakref.ref(name), weakref.ref(long_name)
        assert asked(name)
        assert asked(long_name)
        del name, long_name
        assert kept() == "mail"
        assert not_kept() is None
