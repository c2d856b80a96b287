"""Exit codes, in one table, and the one way in which a command reports its failure: a line on standard error, JSON with `--json`."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator
from typing import NoReturn

import typer

from pinlater.cli import notes
from pinlater.client.errors import (
    CallerError,
    ConnectionLost,
    DeadlineExceeded,
    PinLaterError,
    QueueNameInvalid,
    QueueNotFound,
    ServerUnreachable,
    TokenRequired,
)
from pinlater.domain.queue import QUEUE_NAME_RULE
from pinlater.wire.wrong_port import TLS_PORT

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
    REFUSED: "Refused: no such queue or job, an invalid argument, a wrong password, a token without the role. "
    "The same command fails again. Also: a simulated cluster broke a promise (`bench simulate`).",
    USAGE: "The command line is wrong.",
    UNREACHABLE: "The server can't be reached, or did not answer in time.",
    BUSY: "The server can't do it now: a limit, a pause, a full queue or store, an unreachable shard. Try again later.",
    UNEXPECTED_RESULT: "It ran, but the outcome is not the expected one (`demo`, `bench load`).",
    BUG: "An error of this program. Please report it.",
    RECYCLED: "A `worker` reached its number of jobs, its age or its memory limit. Start it again.",
    SETTINGS: "The settings are wrong (`serve`, `server settings`).",
    INTERRUPTED: "Interrupted from the keyboard. `bench load` prints its summary; `serve`, `worker`, `console` and a `demo` that stays "
    "stop in order: all of these end with 0.",
    TERMINATED: "Ended by SIGTERM. `serve`, `worker` and `console` stop in order and end with 0, also while they start.",
}

_state = {"tracebacks": False}


def tracebacks(wanted: bool | None = None) -> bool:
    """Returns whether unexpected errors show their traceback; sets it if an argument is given."""
    if wanted is not None:
        _state["tracebacks"] = wanted
    return _state["tracebacks"]


def show_traceback(error: BaseException) -> None:
    """Prints where an unexpected error was raised, if the operator requested that."""
    if tracebacks():
        text = "".join(traceback.format_exception(error)).rstrip("\n")
        notes.say(text, traceback=text)


OTHER_SERVERS = "--server or PINLATER_SERVERS name other servers"
_SHARDS_HINT = "(/readyz of the server says which shards are unreachable, and why)"
DESCRIPTOR_HINT = "(a descriptor looks like emails:s1:p1:73: queue, shard, priority and number, as `job enqueue` and `job list` print it)"

_HINTS = {
    "DESCRIPTOR_INVALID": DESCRIPTOR_HINT,
    "NO_SUCH_RUN": "(`pinlater bulk list` shows the runs of the last 30 days)",
    "CONTINUATION_INVALID": "(--after takes what the command wrote behind `more: --after`)",
    "NO_HEALTHY_SHARDS": _SHARDS_HINT,
    "SHARD_UNREACHABLE": _SHARDS_HINT,
}
"""What the operator can do, by the wire contract's word for the error."""


def code_for(error: PinLaterError) -> int:
    """The exit code for the error of a call."""
    if isinstance(error, ServerUnreachable | ConnectionLost | DeadlineExceeded):
        return UNREACHABLE
    return REFUSED if isinstance(error, CallerError) else BUSY


def hint_for(error: PinLaterError, other_servers: str = OTHER_SERVERS) -> str:
    """Returns what the operator can do about it; '' if the error's text says enough. `other_servers`: the command's option for them."""
    if isinstance(error, QueueNotFound):
        return "(`pinlater queue list` shows the queues, `pinlater queue create NAME` creates one)"
    if isinstance(error, QueueNameInvalid) and QUEUE_NAME_RULE not in error.message:
        return f"({QUEUE_NAME_RULE})"
    if isinstance(error, TokenRequired):
        return "(--token-file, PINLATER_TOKEN or PINLATER_TOKEN_FILE give one)"
    if error.message.endswith(TLS_PORT):
        return "(commands take --tls, or --tls-ca FILE)"
    if isinstance(error, ServerUnreachable) and "with TLS" not in error.message:
        return f"(is `pinlater serve` running there? {other_servers})"
    return _HINTS.get(error.detail or type(error).detail, "")


def fail(message: str, code: int, detail: str = "", *, in_lines: bool = False, whole: bool = False) -> NoReturn:
    """Writes the error like `write_error`, and ends the command."""
    write_error(message, code, detail, in_lines=in_lines, whole=whole)
    raise typer.Exit(code)


def fail_for(error: PinLaterError, other_servers: str = OTHER_SERVERS) -> NoReturn:
    """Ends the command with the error of a call, and what the operator can do about it."""
    fail(f"{error.message} {hint_for(error, other_servers)}", code_for(error), error.detail)


def write_error(message: str, code: int, detail: str = "", *, in_lines: bool = False, whole: bool = False) -> None:
    """Writes one line on standard error; a JSON document if the caller reads JSON.

    `detail`: the wire contract's word, for `--json`.
    `in_lines`: the message consists of several lines.
    `whole`: the line stays as it is, so that a command in it can be copied.
    """
    text = message if in_lines or whole else " ".join(message.split())
    notes.say(f"error: {text}", whole=whole, error=text, detail=detail or None, exit_code=code)


@contextlib.contextmanager
def reported(other_servers: str = OTHER_SERVERS) -> Iterator[None]:
    """Turns the errors of calls into a line and an exit code."""
    try:
        yield
    except PinLaterError as error:
        fail_for(error, other_servers)
