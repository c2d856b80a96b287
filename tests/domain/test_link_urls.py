"""Links from a job to its trace and to its code."""

from __future__ import annotations

import pytest

from pinlater.domain.link_urls import SOURCE_PLACES, TRACE_PLACES, LinkUrls, check_url, source_link, trace_link

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
URLS = LinkUrls(
    "https://jaeger.example.org/trace/{trace_id}?uiFind={trace_id}", "https://git.example.org/main/{file}#L{line}"
)
TEXT = 'boom\n  File "/srv/app/mailer.py", line 7, in send\n    x\n  File "/srv/app/a b.py", line 12, in <module>\n    raise E'


@pytest.mark.parametrize("parent", [f"00-{TRACE}-00f067aa0ba902b7-01", f"cc-{TRACE}-00f067aa0ba902b7-00-what-will-be"])
def test_a_job_in_a_trace_has_its_link(parent: str) -> None:
    link = f"https://jaeger.example.org/trace/{TRACE}?uiFind={TRACE}"
    assert trace_link(URLS, {"traceparent": parent}) == (TRACE, link)
    assert trace_link(LinkUrls(), {"traceparent": parent}) == (TRACE, "")


@pytest.mark.parametrize(
    "parent", ["", TRACE, f"00-{'0' * 32}-00f067aa0ba902b7-01", f'00-{TRACE[:-1]}"-00f067aa0ba902b7-01', "00-é-1-01"]
)
def test_a_job_in_no_trace_has_no_link(parent: str) -> None:
    assert trace_link(URLS, {"traceparent": parent}) is None
    assert trace_link(URLS, {}) is None


def test_the_last_line_of_code_of_a_traceback_has_a_link() -> None:
    assert source_link(URLS, TEXT) == ("/srv/app/a b.py, line 12", "https://git.example.org/main/srv/app/a%20b.py#L12")
    assert source_link(LinkUrls(), TEXT) is None
    for text in (
        "",
        "boom",
        'File "x.py"',
        'see File "x.py", line 7',
        'File "x"y.py", line 7',
        'File "/a/../../evil/x.py", line 7',
    ):
        assert source_link(URLS, text) is None


def test_the_white_space_before_a_frame_is_that_of_its_line() -> None:
    """Of each empty line, all that follow it were read: in quadratic time."""
    assert source_link(URLS, "\n" * 1_000_000 + TEXT) == source_link(URLS, TEXT)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("javascript:alert('{trace_id}{file}{line}')", "is not a URL"),
        ("jaeger/{trace_id}{file}{line}", "is not a URL"),
        ("https://a b/{trace_id}{file}{line}", "is not a URL"),
        ("https:///{trace_id}{file}{line}", "is not a URL"),
        ("https://jaeger.example.org/", "has no {"),
    ],
)
def test_another_text_is_refused_with_its_reason(text: str, says: str) -> None:
    for places in (TRACE_PLACES, SOURCE_PLACES):
        with pytest.raises(ValueError, match=says):
            check_url(text, places)
    check_url(URLS.trace, TRACE_PLACES)
    check_url(URLS.source, SOURCE_PLACES)
