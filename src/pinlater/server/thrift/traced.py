"""Spans around the methods that carry a trace: put around their handlers at the start, so that a server without tracing pays nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from pinlater.server.telemetry.tracing import Tracing
from pinlater.server.thrift.methods.record import ServedMethod


def traced(methods: Mapping[str, ServedMethod], tracing: Tracing) -> Mapping[str, ServedMethod]:
    """Returns the methods with spans around those that have one; as they are without tracing."""
    if not tracing.enabled:
        return methods
    return {name: _traced(served, tracing) for name, served in methods.items()}


def _traced(served: ServedMethod, tracing: Tracing) -> ServedMethod:
    if served.in_span is None:
        return served
    return replace(served, handle=partial(served.in_span, tracing, served.handle))
