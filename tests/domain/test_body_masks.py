"""Which bodies and fields are masked, as pure functions: what a caller may not see is in no answer, whatever a body holds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinlater.domain.access import Role
from pinlater.domain.body_masks import (
    MASKED_VALUE,
    MASKED_WHOLE,
    PARSED_BYTES_MAX,
    BodyMasks,
    MaskedField,
    masked_status,
    parse_field,
)

FIELDS = BodyMasks(fields=["password", "card.number", "mail*:to"])
ORDERS, MAILS = FIELDS.of("orders"), FIELDS.of("mail_new")


def masked(body: str) -> Any:
    shown = ORDERS.masked(body.encode())
    assert shown is not None
    return json.loads(shown)


def test_a_field_is_masked_at_any_depth_and_in_arrays() -> None:
    body = '{"password": "a", "users": [{"password": ["b", {"c": 1}]}, {"name": "d"}], "more": [[{"password": 2}]]}'
    assert masked(body) == {
        "password": MASKED_VALUE,
        "users": [{"password": MASKED_VALUE}, {"name": "d"}],
        "more": [[{"password": MASKED_VALUE}]],
    }


def test_a_path_masks_only_where_all_of_its_names_follow_each_other() -> None:
    body = '{"number": 1, "card": {"number": 2, "of": {"number": 3}}, "a": {"card": [{"number": 4}]}, "discard": {"number": 5}}'
    assert masked(body) == {
        "number": 1,
        "card": {"number": MASKED_VALUE, "of": {"number": 3}},
        "a": {"card": [{"number": MASKED_VALUE}]},
        "discard": {"number": 5},
    }


@pytest.mark.parametrize("name", ["PassWord", "pass\\u0077ord", "\\u0070assword"])
def test_a_name_is_found_however_it_is_written(name: str) -> None:
    assert "secret" not in str(masked(f'{{"{name}": "secret"}}'))


def test_a_name_with_a_dot_counts_as_a_path() -> None:
    assert masked('{"card.number": 1}') == {"card.number": MASKED_VALUE}


def test_each_field_of_a_name_that_comes_twice_is_masked() -> None:
    """Parsers disagree which one counts."""
    shown = ORDERS.masked(b'{"password": "one", "password": "two", "a": 1, "a": 2}')
    assert shown == b'{"password": "[masked]", "password": "[masked]", "a": 1, "a": 2}'


def test_other_values_keep_every_digit() -> None:
    body = '{"a": 12345678901234567890123, "b": 1.0e999, "c": 0.10, "d": -0, "password": 1, "e": [true, false, null, "\\u00e9"]}'
    shown = ORDERS.masked(body.encode())
    assert shown == (
        '{"a": 12345678901234567890123, "b": 1.0e999, "c": 0.10, "d": -0, "password": "[masked]", '
        '"e": [true, false, null, "\u00e9"]}'
    ).encode()  # fmt: skip


@pytest.mark.parametrize(
    "body",
    [
        b"plain text with a password",
        b'{"password": "cut',
        b'{"password": 1} {"password": 2}',
        b'"{\\"password\\": 1}"',
        b"4111111111111111",
        b"\xff\xfe",
        '{"password": 1}'.encode("utf-16"),
        b"\xef\xbb\xbf" + b'{"password": 1}',
        b'{"a": ' * 100_000,
        b"[" * 20_000 + b"]" * 20_000,
        b'{"password": "a", "b": "\\ud800"}',
        b'{"a": "' + b"x" * PARSED_BYTES_MAX + b'"}',
    ],
    ids=lambda body: repr(body[:20]),
)
def test_what_cannot_be_looked_into_is_masked_whole(body: bytes) -> None:
    assert ORDERS.masked(body) == MASKED_WHOLE


@pytest.mark.parametrize("body", [b"", b"{}", b'{"passwords": 1, "to": 2}', b'["password"]', b' { "a" :1}'])
def test_a_body_without_such_a_field_is_shown_byte_for_byte(body: bytes) -> None:
    assert ORDERS.masked(body) is None


def test_a_field_of_some_queues_is_masked_in_these_only() -> None:
    assert MAILS.masked(b'{"to": "ada"}') == b'{"to": "[masked]"}'
    assert ORDERS.masked(b'{"to": "ada"}') is None


def test_bodies_of_masked_queues_are_masked_whole() -> None:
    masks = BodyMasks(queues=["pay*", "hr"])
    for queue, whole in (("payments", True), ("hr", True), ("hr2", False)):
        mask = masks.of(queue)
        assert (mask.hides, mask.masked(b'{"a": 1}')) == (whole, MASKED_WHOLE if whole else None)


def test_masks_hide_bodies_from_callers_without_one_of_the_roles() -> None:
    masks = BodyMasks(["*"], (), [Role.OPERATE])
    assert [role for role in Role if not masks.hide_from([role])] == [Role.OPERATE, Role.ADMIN]
    assert masks.hide_from([Role.READ, Role.WORK, Role.PRODUCE])
    assert masks.hide_from([])
    assert BodyMasks(["*"], (), ()).hide_from([Role.ADMIN])
    assert not BodyMasks().hide_from([])


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("password", MaskedField("*", "password")),
        ("Card.Number", MaskedField("*", "card.number")),
        ("mail*:to", MaskedField("mail*", "to")),
        (" mail* : to ", MaskedField("mail*", "to")),
        ("*:a:b", MaskedField("*", "a:b")),
    ],
)
def test_a_field_may_name_its_queues(text: str, field: MaskedField) -> None:
    assert parse_field(text) == field


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", "mail*:", ":a", "ma-il:a", "x" * 501])
def test_what_names_no_field_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a field|not a pattern"):
        BodyMasks(fields=[text])


SECRET = "s3cret"
NAMES = st.sampled_from(["a", "password", "PASSWORD", "card", "number", "x.y", ""])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=20,
)


def _hidden(value: Any, inside: bool = False) -> Any:
    """The value with a secret in the place of each string that a mask must hide."""
    if isinstance(value, dict):
        return {name: _hidden(each, inside or name.casefold() == "password") for name, each in value.items()}
    if isinstance(value, list):
        return [_hidden(each, inside) for each in value]
    return SECRET if inside else value


def _expected(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: MASKED_VALUE if name.casefold() == "password" else _expected(each) for name, each in value.items()
        }
    return [_expected(each) for each in value] if isinstance(value, list) else value


@settings(deadline=None)
@given(VALUES.map(_hidden))
def test_no_secret_is_shown_and_all_else_is(value: Any) -> None:
    body = json.dumps(value).encode()
    shown = BodyMasks(fields=["password"]).of("q").masked(body)
    if not isinstance(value, dict | list):
        assert shown == MASKED_WHOLE
    else:
        assert json.loads(body if shown is None else shown) == _expected(value)
        assert SECRET.encode() not in (body if shown is None else shown)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_are_an_error(body: bytes) -> None:
    ORDERS.masked(body)


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        ("", ""),
        ("for ada", MASKED_VALUE),
        ("cancelled", "cancelled"),
        ("for ada\ncancelled", f"{MASKED_VALUE} cancelled"),
        ("expired", "expired"),
        ("[progress] 40 % ada\nexpired", f"{MASKED_VALUE} expired"),
        ("cancelled ada", MASKED_VALUE),
    ],
)
def test_a_masked_status_keeps_only_the_word_for_a_job_that_was_given_up(status: str, shown: str) -> None:
    assert masked_status(status) == shown


def test_texts_are_masked_where_whole_bodies_are_unless_the_settings_show_them() -> None:
    both = BodyMasks(["pay*"], ["password"])
    assert (both.of("pay_new").texts, both.of("other").texts) == (True, False)
    assert not BodyMasks(["pay*"], texts=False).of("pay_new").texts
