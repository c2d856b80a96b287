"""Exit codes, in one table, and the one way in which a command says that it failed: a line on standard error."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import NoReturn

import typer

from pinlater.client.errors import (
    CallerError,
    ConnectionLost,
    DeadlineExceeded,
    PinLaterError,
    ServerUnreachable,
)

OK = 0
REFUSED = 1
USAGE = 2
UNREACHABLE = 3
BUSY = 4
UNEXPECTED_RESULT = 5
BUG = 70
RECYCLED = 75
SETTINGS = 78
INTERRUPTED = 130
TERMINATED = 143

MEANINGS: dict[int, str] = {
    OK: "Done.",
    REFUSED: "Refused, or not there: no such queue or job, an invalid argument, a wrong password; again as it is won't help.",
    USAGE: "The command line is wrong.",
    UNREACHABLE: "The server can't be reached, or did not answer in time.",
    BUSY: "The server can't do it now: a limit, a pause, a full queue or store, a shard out of reach. Again later may help.",
    UNEXPECTED_RESULT: "It ran, but the outcome is not what was to come (`demo`, `load`).",
    BUG: "An error of this program. Please report it.",
    RECYCLED: "Nothing is wrong, start it again: a `worker` has done its number of jobs, has its age, or too much memory.",
    SETTINGS: "The settings are wrong (`serve`, `settings`).",
    INTERRUPTED: "Interrupted from the keyboard. `load` ends with its summary and 0, `serve` and `worker` in order and with 0.",
    TERMINATED: "Ended by SIGTERM; `serve` and `worker` end in order and with 0.",
}

_state = {"tracebacks": False}


def tracebacks(wanted: bool | None = None) -> bool:
    """Whether unexpected errors show their traceback; sets it where an argument is given."""
    if wanted is not None:
        _state["tracebacks"] = wanted
    return _state["tracebacks"]


def code_for(error: PinLaterError) -> int:
    """The exit code for what a call raised."""
    if isinstance(error, ServerUnreachable | ConnectionLost | DeadlineExceeded):
        return UNREACHABLE
    return REFUSED if isinstance(error, CallerError) else BUSY


def fail(message: str, code: int) -> NoReturn:
    """One line on standard error, then the end."""
    sys.stderr.write(f"error: {' '.join(message.split())}\n")
    raise typer.Exit(code)


@contextlib.contextmanager
def reported() -> Iterator[None]:
    """Turns what calls raise into a line and an exit code."""
    try:
        yield
    except PinLaterError as error:
        fail(error.message, code_for(error))
