"""Structured logs: one line an event, fields kept apart, nothing that a caller could forge or leak."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from pinlater.server.telemetry.settings import TelemetrySettings
from pinlater.supervision.logs import setup

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
    for name, stream in (("text", text), ("json", json_lines)):
        setup(name, "info", stream)
        log.warning("failed", extra={"traceback": trace})
    assert text.getvalue().endswith('failed\n      File "shop.py", line 1, in send\n        raise KeyError("\\x1b")\n')
    assert json.loads(json_lines.getvalue())["traceback"] == trace


def test_a_second_setup_replaces_the_first() -> None:
    first, second = io.StringIO(), io.StringIO()
    setup("text", "info", first)
    setup("text", "info", second)
    log.info("once")
    assert not first.getvalue()
    assert len(second.getvalue().splitlines()) == 1


@pytest.mark.parametrize(
    ("settings", "word"),
    [({"log_level": "loud"}, "loud"), ({"log_format": "xml"}, "xml"), ({"queue_metrics_max": 0}, "below")],
)
def test_wrong_settings_are_refused_with_what_would_be_right(settings: dict[str, object], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        TelemetrySettings(**settings)  # type: ignore[arg-type]
