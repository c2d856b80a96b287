"""The calls about claims, for features that listen. Each request of a worker makes one call here."""

from __future__ import annotations

from typing import Any

from pinlater.server.operations.values import Caller


class ClaimEvents:
    """Ignores all of it. A listener overrides the methods that it needs."""

    def asked(self, caller: Caller, queue: str) -> Any:
        """A worker asks for jobs. The value is passed to `handed_out`."""

    def handed_out(self, asking: Any, jobs: int, claim_ms: int) -> None:
        """A worker gets jobs. `claim_ms`: the longest of their claims."""

    def renewed(self, caller: Caller, queue: str) -> None:
        """A worker renews claims."""

    def reported(self, caller: Caller) -> None:
        """A worker sends a request that never names a process."""

    def late(self, caller: Caller, queue: str, number: int) -> None:
        """`number` of its answers arrived after their claims had ended."""
