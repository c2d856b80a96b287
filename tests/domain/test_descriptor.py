"""Job descriptors: one way to write them, and nothing else is one."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinlater.domain.descriptor import I64_MAX, JobDescriptor, parse_descriptor
from pinlater.domain.errors import DescriptorInvalid

names = st.text("abcXYZ019_", min_size=1, max_size=64)
descriptors = st.builds(
    JobDescriptor,
    queue=names,
    shard=st.text("abcd019_.-", min_size=1, max_size=20),
    priority=st.integers(0, 127),
    local_id=st.integers(0, I64_MAX),
)


@given(descriptors)
def test_a_written_descriptor_is_read_back(descriptor: JobDescriptor) -> None:
    assert parse_descriptor(str(descriptor)) == descriptor


def test_the_contracts_example() -> None:
    """Old clients keep them in their own databases."""
    assert parse_descriptor("emails:s1d2:p1:73") == JobDescriptor("emails", "1d2", 1, 73)
    assert str(JobDescriptor("emails", "1d2", 1, 73)) == "emails:s1d2:p1:73"


@given(st.text(max_size=60))
def test_any_text_is_a_descriptor_or_our_error(text: str) -> None:
    """And a descriptor is written back as it was, but for leading zeros."""
    try:
        descriptor = parse_descriptor(text)
    except DescriptorInvalid:
        return
    assert parse_descriptor(str(descriptor)) == descriptor


@given(descriptors, st.data())
def test_a_changed_descriptor_never_crashes(descriptor: JobDescriptor, data: st.DataObject) -> None:
    text = str(descriptor)
    at = data.draw(st.integers(0, len(text)))
    changed = text[:at] + data.draw(st.characters()) + text[at:]
    with suppress(DescriptorInvalid):
        parsed = parse_descriptor(changed)
        assert parse_descriptor(str(parsed)) == parsed


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        ":::",
        "emails",
        "emails:s1:p1",
        "emails:s1:p1:",
        "emails:s1:p1:-1",
        "emails:s1:p1:+1",
        "emails:s1:p1: 1",
        "emails:s1:p1:1 ",
        "emails:s1:p1:1\n",
        "\nemails:s1:p1:1",
        "emails:s1:p1:1_0",
        "emails:s1:p1:0x1",
        "emails:s1:p1:1.0",
        "emails:s1:p1:٣",  # an Arabic-Indic digit, which `int` would read
        "emails:s1:p-1:1",
        "emails:s1:p1234:1",
        "emails:s:p1:1",
        "emails:1:p1:1",
        "emails:s1:1:1",
        ":s1:p1:1",
        "e mails:s1:p1:1",
        "émails:s1:p1:1",
        "emails:s1:p1:1:1",
        "x:emails:s1:p1:1",
        "emails:s1\x00:p1:1",
        f"emails:s1:p1:{I64_MAX + 1}",
        "emails:s1:p1:" + "9" * 19,
        "emails:s1:p1:" + "1" * 20,
        "emails:s1:p1:" + "1" * 100_000,
        "e" * 1_000_000,
    ],
)
def test_a_descriptor_that_no_server_can_have_made_is_refused(text: str) -> None:
    with pytest.raises(DescriptorInvalid) as caught:
        parse_descriptor(text)
    assert len(caught.value.message) < 1_000


def test_the_highest_id_is_one() -> None:
    assert parse_descriptor(f"q:s1:p1:{I64_MAX}").local_id == I64_MAX
