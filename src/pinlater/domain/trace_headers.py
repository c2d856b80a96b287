"""The trace of its producer that a job has in its headers. Pure."""

from __future__ import annotations

from collections.abc import Mapping

TRACEPARENT = "traceparent"
_NAMES = (TRACEPARENT, "tracestate")
_CHARS_MAX = 512  # no longer value is read: older versions of OpenTelemetry take quadratic time for some


def trace_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Returns the trace context that OpenTelemetry reads from the headers."""
    return {name: headers[name] for name in _NAMES if name in headers and len(headers[name]) <= _CHARS_MAX}
