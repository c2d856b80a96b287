"""Tasks of a module that takes long to import in a child process, and only there."""

from __future__ import annotations

import multiprocessing
import os
import time

from pinlater.worker import Worker, current_job

IMPORT_S = 1.5
_LIMIT_MS = 1_000
if multiprocessing.parent_process() is not None:
    time.sleep(IMPORT_S)
_IMPORTED_MS = int(time.time() * 1000)

worker = Worker("127.0.0.1:1")


@worker.task("p", process=True, attempts=1, time_limit=_LIMIT_MS / 1000)
def quick(folder: str) -> None:
    """Notes its process, and whether its deadline counts from a moment after the import."""
    whole = (current_job().deadline_ms or 0) >= _IMPORTED_MS + _LIMIT_MS
    with open(os.path.join(folder, "quick"), "a") as file:  # noqa: PTH123, PTH118 - plain on purpose
        file.write(f"{os.getpid()} {'whole' if whole else 'cut'}\n")


@worker.task("p", process=True, attempts=1, time_limit=_LIMIT_MS / 1000)
def endless() -> None:
    while True:
        time.sleep(1)
