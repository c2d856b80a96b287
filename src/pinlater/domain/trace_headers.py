"""What a job carries of the trace of its producer, in its headers. Pure."""

from __future__ import annotations

from collections.abc import Mapping

TRACEPARENT = "traceparent"
_NAMES = (TRACEPARENT, "tracestate")
_CHARS_MAX = 512  # no longer one is read: older versions of OpenTelemetry take quadratic time for some


def trace_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Returns what OpenTelemetry reads of the headers."""
    return {name: headers[name] for name in _NAMES if name in headers and len(headers[name]) <= _CHARS_MAX}
