"""A task that runs in a process, and set-up functions for it."""

from __future__ import annotations

import os
from pathlib import Path

from pinlater.worker import Worker

_done: list[str] = []


def set_up() -> None:
    """The worker's child_setup."""
    _done.append("by the worker")


def set_up_first() -> None:
    """The command's child_setup, which runs first."""
    _done.append("by the command")


worker = Worker("127.0.0.1:1", child_setup=set_up)


@worker.task("q", process=True)
def tell(path: str) -> None:
    Path(path).write_text(f"{', '.join(_done)} in {os.getpid()}")
