"""A task that runs in a process, with a worker that sets its processes up first."""

from __future__ import annotations

import os
from pathlib import Path

from pinlater.worker import Worker

_done: list[str] = []


def set_up() -> None:
    """What a child does before its first job."""
    _done.append("by the worker")


def set_up_first() -> None:
    """What whoever runs the worker has a child do even before."""
    _done.append("by the command")


worker = Worker("127.0.0.1:1", child_setup=set_up)


@worker.handler("q", process=True)
def tell(path: str) -> None:
    Path(path).write_text(f"{', '.join(_done)} in {os.getpid()}")
