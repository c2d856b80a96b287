"""What of an error makes a group of failures."""

from __future__ import annotations

import pytest

from pinlater.domain.failures import OTHERS, PATTERN_CHARS_MAX, TASK_CHARS_MAX, failure_of, pattern_of


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("", ""),
        ("\n\n  boom  \nsecond", "boom"),
        ("timed out after 17.5 s", "timed out after … s"),
        ("user 4 of 10", "user … of …"),
        ("no such file: 'a b.txt'", "no such file: …"),
        ('KeyError "name"', "KeyError …"),
        ("job 6f9619ff-8b86-d011-b42d-00c04fc964ff is gone", "job … is gone"),
        ("object at 0x7f3a2c", "object at …"),
        ("etag 9e107d9d372bb6826bd81d3542a419d6", "etag …"),
        ("mailbox ada@example.org is full", "mailbox … is full"),
        ("<ada@example.org>, bob@example.org", "<…>, …"),
        ("'ada'bob@example.org", "……"),
        ("connect to 10.0.0.7:5432 failed on 2026-01-31", "connect to … failed on …"),
        ("utf8 can't decode", "utf… can't decode"),
        ("it's John's", "it…s"),
        ("facade", "facade"),
        ("429 from them; again in 3 s", "429 from them"),
        ("429 from them", "429 from them"),
        ("again in 0.5 s", ""),
        ("not open; again in 1e+06 s", "not open"),
        ("look again in 3 s", "look again in … s"),
        ("HTTP 503", "HTTP 503"),
        ("HTTP/1.1 503 for user 7", "HTTP/1.1 503 for user …"),
        ("Client error '404 Not Found' for url 'http://a/1'", "Client error … for url …"),
        ("failed with status code 422, id 422", "failed with status code 422, id …"),
        ("status=502", "status=502"),
        ("fetch: 500 in 20 ms", "fetch: 500 in … ms"),
        ("row 503 of 900", "row … of …"),
        ("error 4290", "error …"),
        ("error 499", "error …"),
        ("404.5 is too much", "… is too much"),
        ("Ünïcode Straße", "Ünïcode Straße"),
    ],
)
def test_what_differs_from_job_to_job_is_left_out(text: str, pattern: str) -> None:
    assert pattern_of(text) == pattern


def test_a_long_or_hostile_text_takes_no_time_and_is_cut() -> None:
    for text in ("a" * 1_000_000, "'" * 1_000_000, "1." * 500_000, "@" * 500_000, "\n" * 1_000_000 + "x"):
        assert len(pattern_of(text)) <= PATTERN_CHARS_MAX


def test_task_type_and_pattern_make_a_group() -> None:
    headers = {"task": "send"}
    one = failure_of(headers, "task", "OSError", "no file 1")
    assert one == ("send", "OSError", "no file …")
    assert one.group == failure_of(headers, "task", "OSError", "no file 2").group
    others = [
        failure_of({}, "task", "OSError", "no file 1"),
        failure_of(None, "task", "OSError", "no file 1"),
        failure_of(headers, "task", "OSErro", "r no file 1"),
        failure_of(headers, "task", "ValueError", "no file 1"),
        failure_of(headers, "task", "OSError", "no folder 1"),
    ]
    assert len({each.group for each in others} | {one.group}) == len(others)
    assert all(len(each.group) == len(OTHERS) for each in others)
    assert failure_of({"task": "x" * 1_000}, "task", "", "\ud800").task == "x" * TASK_CHARS_MAX
