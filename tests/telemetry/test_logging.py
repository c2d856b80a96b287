"""Structured logs: one line an event, fields kept apart, nothing that a caller could forge or leak."""

from __future__ import annotations

import io
import json
import logging
import time
from collections.abc import Iterator

import pytest

from pinlater.server.config.errors import SettingsError
from pinlater.server.config.load import load
from pinlater.server.operations.addressing import left_out
from pinlater.server.telemetry.metrics import Metrics
from pinlater.server.telemetry.tracing import extract
from pinlater.supervision.logs import count_repeats, setup

log = logging.getLogger("pinlater.tests.logging")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """Leaves the process's logging as it was."""
    root, ours = logging.getLogger(), logging.getLogger("pinlater")
    handlers, level = root.handlers[:], ours.level
    yield
    root.handlers[:] = handlers
    ours.setLevel(level)


def logged_json(stream: io.StringIO) -> dict[str, object]:
    (line,) = stream.getvalue().splitlines()
    entry = json.loads(line)
    assert isinstance(entry, dict)
    return entry


def test_json_is_one_object_a_line_with_the_fields_beside_the_event() -> None:
    stream = io.StringIO()
    setup("json", "info", stream)
    log.info("queue %s", "created", extra={"queue": "emails", "jobs": 3, "ok": True})
    entry = logged_json(stream)
    assert str(entry.pop("time")).endswith("Z")
    assert entry == {
        "level": "info",
        "logger": "pinlater.tests.logging",
        "event": "queue created",
        "queue": "emails",
        "jobs": 3,
        "ok": True,
    }


def test_text_shows_fields_as_key_and_value() -> None:
    stream = io.StringIO()
    setup("text", "info", stream)
    log.warning("store slow", extra={"shard": "1", "where": "the disk", "ms": 12.5, "empty": ""})
    assert stream.getvalue().endswith('WARNING store slow shard=1 where="the disk" ms=12.5 empty=""\n')


@pytest.mark.parametrize(("stream", "is_json"), [(Terminal(), False), (io.StringIO(), True)])
def test_auto_is_text_on_a_terminal_and_json_elsewhere(stream: io.StringIO, is_json: bool) -> None:
    setup("auto", "info", stream)
    log.info("here")
    assert stream.getvalue().startswith("{") is is_json


def test_the_level_holds_for_us_and_warnings_for_others() -> None:
    stream = io.StringIO()
    setup("text", "debug", stream)
    log.debug("shown")
    logging.getLogger("somebody.else").info("hidden")
    assert [line.split()[-1] for line in stream.getvalue().splitlines()] == ["shown"]


@pytest.mark.parametrize("format", ["text", "json"])
def test_a_callers_text_can_not_forge_a_line(format: str) -> None:
    stream = io.StringIO()
    setup(format, "info", stream)
    log.info("queue %s", "a\nb\x1b[31m", extra={"source": "x\r\ny\u2028z"})
    assert len(stream.getvalue().splitlines()) == 1
    assert "\x1b" not in stream.getvalue()


@pytest.mark.parametrize("format", ["text", "json"])
def test_bytes_show_their_length_only(format: str) -> None:
    stream = io.StringIO()
    setup(format, "info", stream)
    log.info("job", extra={"body": b"secret"})
    assert "secret" not in stream.getvalue()
    assert "<6 bytes>" in stream.getvalue()


def test_numbers_that_json_does_not_know_are_text() -> None:
    stream = io.StringIO()
    setup("json", "info", stream)
    log.info("odd", extra={"rate": float("nan")})
    assert logged_json(stream)["rate"] == "nan"


@pytest.mark.parametrize("queues", [["mails", "2", "a b"], ("mails", "2", "a b")])
def test_lists_are_values_with_commas_between_as_text_and_arrays_in_json(queues: object) -> None:
    text, json_lines = io.StringIO(), io.StringIO()
    for name, stream in (("text", text), ("json", json_lines)):
        setup(name, "info", stream)
        log.info("listed", extra={"queues": queues, "none": []})
    assert text.getvalue().endswith('listed queues=mails,2,"a b" none=""\n')
    entry = logged_json(json_lines)
    assert (entry["queues"], entry["none"]) == (["mails", "2", "a b"], [])


def test_a_line_of_the_server_that_names_shards_lists_them() -> None:
    text, json_lines = io.StringIO(), io.StringIO()
    for name, stream in (("text", text), ("json", json_lines)):
        setup(name, "info", stream)
        left_out(Metrics(), "getJobCount", ["2", "3"], "timed out")
    assert ' shards=2,3 reason="timed out"\n' in text.getvalue()
    assert logged_json(json_lines)["shards"] == ["2", "3"]
    left_out(Metrics(), "getJobCount", ["2"])
    assert "reason" not in json.loads(json_lines.getvalue().splitlines()[-1])


def test_a_set_is_listed_in_order() -> None:
    stream = io.StringIO()
    setup("text", "info", stream)
    log.info("listed", extra={"shards": {"b", "a"}})
    assert stream.getvalue().endswith("listed shards=a,b\n")


@pytest.mark.parametrize("format", ["text", "json"])
def test_values_in_a_list_are_shown_as_safely_as_single_values(format: str) -> None:
    """No forged line, no body, no number that JSON does not know, no endless line."""
    stream = io.StringIO()
    setup(format, "info", stream)
    log.info("listed", extra={"odd": ["a\nb", b"secret", float("nan")], "many": ["name"] * 10_000, "deep": [["x"]]})
    (line,) = stream.getvalue().splitlines()
    assert "secret" not in line
    assert "<6 bytes>" in line
    assert len(line) < 8_000


def test_long_values_are_cut() -> None:
    stream = io.StringIO()
    setup("json", "info", stream)
    log.info("x" * 10_000, extra={"name_asked_for": "y" * 10_000})
    assert len(stream.getvalue()) < 5_000


@pytest.mark.parametrize("format", ["text", "json"])
def test_a_traceback_comes_along(format: str) -> None:
    stream = io.StringIO()
    setup(format, "info", stream)
    try:
        raise KeyError("lost")
    except KeyError:
        log.exception("failed")
    assert "KeyError: 'lost'" in stream.getvalue()


def test_a_traceback_from_another_process_is_lines_in_text_and_a_field_in_json() -> None:
    text, json_lines = io.StringIO(), io.StringIO()
    trace = '  File "shop.py", line 1, in send\n    raise KeyError("\x1b")'
    record = logging.makeLogRecord({"name": log.name, "levelno": logging.WARNING, "msg": "failed", "exc_text": trace})
    for name, stream in (("text", text), ("json", json_lines)):
        setup(name, "info", stream)
        log.handle(record)
    assert text.getvalue().endswith('failed\n      File "shop.py", line 1, in send\n        raise KeyError("\\x1b")\n')
    assert json.loads(json_lines.getvalue())["traceback"] == trace


def test_a_malformed_trace_of_many_jobs_is_warned_of_once_then_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """One wrong producer would else fill the log, a line a job."""
    stream, traceparent = io.StringIO(), f"00-{'a' * 32}-{'b' * 16}-01"
    setup("json", "info", stream)
    for number in range(50):
        extract({"traceparent": traceparent, "tracestate": f"Malformed {number}"})
    extract({"traceparent": "0" * 10_000})
    extract({"traceparent": traceparent, "tracestate": "x" * 10_000})
    first, *others = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert ("Malformed 0" in first["event"], "repeated" in first) == (True, False)
    assert all("Malformed" not in other["event"] for other in others)
    assert len(others) <= 2
    later = time.time() + 61
    monkeypatch.setattr(time, "time", lambda: later)
    monkeypatch.setattr(time, "time_ns", lambda: int(later * 1e9))
    extract({"traceparent": traceparent, "tracestate": "Malformed again"})
    last = json.loads(stream.getvalue().splitlines()[-1])
    assert ("again" in last["event"], last["repeated"]) == (True, 49)


def test_a_warning_that_says_the_same_again_is_shown_once_a_minute_with_the_number_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A page that asks for statistics each second would else fill the log while a shard is unreachable."""
    stream = io.StringIO()
    setup("json", "info", stream)
    for _ in range(50):
        left_out(Metrics(), "getQueueStats", ["2"])
    assert "repeated" not in logged_json(stream)
    later = time.time() + 61
    monkeypatch.setattr(time, "time", lambda: later)
    monkeypatch.setattr(time, "time_ns", lambda: int(later * 1e9))
    for _ in range(3):
        left_out(Metrics(), "getQueueStats", ["2"])
    _, last = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert (last["shards"], last["repeated"]) == (["2"], 49)


def test_warnings_that_say_something_else_and_errors_are_all_shown() -> None:
    stream = io.StringIO()
    setup("json", "info", stream)
    for number in range(3):
        log.warning("store slow", extra={"shard": number})
        log.warning("queue %s: can't claim", f"emails-{number}")
        log.error("gave up")
        log.info("claims timed out")
        logging.getLogger("opentelemetrical").warning("odd")
        logging.getLogger("opentelemetry.sdk").error("export failed")
    assert len(stream.getvalue().splitlines()) == 18


def test_requests_that_are_no_http_fill_no_log() -> None:
    """uvicorn warns of each; every caller who reaches the console can send them."""
    stream = io.StringIO()
    setup("json", "info", stream)
    for _ in range(100):
        logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
    assert logged_json(stream)["event"] == "Invalid HTTP request received."


def test_the_warnings_of_jobs_are_all_shown() -> None:
    """Two attempts of one job may fail in the same way at the same speed."""
    stream = io.StringIO()
    setup("json", "info", stream)
    for _ in range(3):
        log.warning("ship failed in 1ms, again in 1s", extra={"job": "orders:s1:p1:1", "task": "ship"})
    assert len(stream.getvalue().splitlines()) == 3


def test_a_warning_that_can_not_be_formatted_is_left_to_the_handler() -> None:
    class Odd:
        def __str__(self) -> str:
            raise ValueError("no text")

    seen: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = seen.append  # type: ignore[assignment, method-assign]
    count_repeats(handler)
    for _ in range(2):
        handler.handle(logging.LogRecord("pinlater.x", logging.WARNING, __file__, 1, "odd: %s", (Odd(),), None))
    assert len(seen) == 2


def test_a_warning_is_shown_again_after_its_logger_said_that_the_state_is_over() -> None:
    stream = io.StringIO()
    setup("text", "info", stream)
    for _ in range(2):
        log.warning("a shard is full")
        log.warning("a shard is full")
        log.info("a shard takes enqueues again")
    assert [line.split(" ", 1)[1].strip() for line in stream.getvalue().splitlines()] == [
        "WARNING a shard is full",
        "INFO    a shard takes enqueues again",
        "WARNING a shard is full repeated=1",
        "INFO    a shard takes enqueues again",
    ]


def test_the_memory_of_repeated_warnings_is_bounded_and_forgets_the_oldest() -> None:
    stream = io.StringIO()
    setup("json", "info", stream)
    for number in range(1_000):
        log.warning("queue %d", number)
    for number in range(999, 899, -1):
        log.warning("queue %d", number)
    assert len(stream.getvalue().splitlines()) == 1_000, "a hundred are remembered"
    log.warning("queue 899")
    assert len(stream.getvalue().splitlines()) == 1_001, "and no more"


def test_a_second_setup_replaces_the_first() -> None:
    first, second = io.StringIO(), io.StringIO()
    setup("text", "info", first)
    setup("text", "info", second)
    log.info("once")
    assert not first.getvalue()
    assert len(second.getvalue().splitlines()) == 1


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("log_level", "loud", "'loud' is not one of debug"),
        ("log_format", "xml", "'xml' is not one of auto"),
        ("queue_metrics_max", 0, "'0' is out of range"),
    ],
)
def test_wrong_settings_are_refused_with_what_would_be_right(key: str, value: object, complaint: str) -> None:
    with pytest.raises(SettingsError, match=complaint):
        load(flags={f"telemetry.{key}": value})
