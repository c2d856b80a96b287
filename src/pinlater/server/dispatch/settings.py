"""Settings of dispatch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DispatchSettings:
    """Bounds of what may wait here."""

    max_waiting_dequeues: int = 10_000
    wake_port: int = 0
    """TCP port for the other servers of the same shards: they wake this one's waiting dequeues, and send it their calls for queues that it
    owns; 0 takes a free one."""
