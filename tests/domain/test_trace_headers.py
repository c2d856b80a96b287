"""Which headers of a job OpenTelemetry reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from pinlater.domain.trace_headers import trace_headers
from pinlater.server.telemetry.tracing import extract

PRODUCER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(
    ("headers", "read"),
    [
        ({}, {}),
        ({"traceparent": PRODUCER, "tracestate": "a=b", "tenant": "acme"}, {"traceparent": PRODUCER, "tracestate": "a=b"}),
        ({"traceparent": PRODUCER, "tracestate": "a" + " " * 511}, {"traceparent": PRODUCER, "tracestate": "a" + " " * 511}),
        ({"traceparent": PRODUCER, "tracestate": "a" + " " * 512}, {"traceparent": PRODUCER}),
        ({"traceparent": PRODUCER + " " * 512}, {}),
    ],
)  # fmt: skip
def test_a_header_of_a_trace_is_read_unless_it_is_too_long(headers: Mapping[str, str], read: Mapping[str, str]) -> None:
    assert trace_headers(headers) == read


def test_a_long_state_of_a_trace_does_not_reach_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller's header may be as long as a frame when the server links to its trace."""
    handed: list[int] = []
    read = TraceContextTextMapPropagator.extract

    def noted(self: TraceContextTextMapPropagator, carrier: Mapping[str, str], *others: Any) -> Any:
        handed.extend(map(len, carrier.values()))
        return read(self, carrier, *others)

    monkeypatch.setattr(TraceContextTextMapPropagator, "extract", noted)
    assert extract({"traceparent": PRODUCER, "tracestate": "a" + " " * 1_000_000}) is not None
    assert handed == [len(PRODUCER)]
