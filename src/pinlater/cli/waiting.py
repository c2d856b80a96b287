"""Reports on standard error that a command waits for a server or a shard that is unreachable."""

from __future__ import annotations

from pinlater.cli import notes
from pinlater.client import AsyncClient
from pinlater.client._waiting_calls import WaitingCall


def say_waiting(client: AsyncClient, timeout_s: float) -> None:
    """Prints a note once, when a call of the client has been retried for a second. Its calls take at most `timeout_s`."""

    def say(waiting: WaitingCall | None) -> None:
        if waiting is not None:
            notes.note(f"{waiting.reason}; trying until --timeout {timeout_s:g}s")

    client._say_waiting = say  # noqa: SLF001 - what a program shows is no option of a client
