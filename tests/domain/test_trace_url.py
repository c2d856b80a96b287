"""Links from a job to its trace."""

from __future__ import annotations

import pytest

from pinlater.domain.trace_url import check_trace_url, trace_link

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
URL = "https://jaeger.example.org/trace/{trace_id}?uiFind={trace_id}"


@pytest.mark.parametrize(
    "parent",
    [f"00-{TRACE}-00f067aa0ba902b7-01", f"cc-{TRACE}-00f067aa0ba902b7-00-what-will-be"],
)
def test_a_job_in_a_trace_has_its_link(parent: str) -> None:
    link = f"https://jaeger.example.org/trace/{TRACE}?uiFind={TRACE}"
    assert trace_link(URL, {"traceparent": parent}) == (TRACE, link)
    assert trace_link("", {"traceparent": parent}) == (TRACE, "")


@pytest.mark.parametrize(
    "parent", ["", TRACE, f"00-{'0' * 32}-00f067aa0ba902b7-01", f'00-{TRACE[:-1]}"-00f067aa0ba902b7-01', "00-é-1-01"]
)
def test_a_job_in_no_trace_has_no_link(parent: str) -> None:
    assert trace_link(URL, {"traceparent": parent}) is None
    assert trace_link(URL, {}) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("javascript:alert('{trace_id}')", "is no URL"),
        ("jaeger/{trace_id}", "is no URL"),
        ("https://a b/{trace_id}", "is no URL"),
        ("https:///{trace_id}", "is no URL"),
        ("https://jaeger.example.org/trace", "the place for the id"),
    ],
)
def test_another_text_is_refused_with_its_reason(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        check_trace_url(text)
    check_trace_url(URL)
