"""Options that many commands share, and the parsing of their values."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Annotated, Any

import typer

from pinlater.cli import exits, notes
from pinlater.cli.connection_options import CONNECTION
from pinlater.client import AsyncClient
from pinlater.client._servers import DEFAULT_SERVER, SERVERS_VARIABLE, servers_by_default
from pinlater.client.errors import PinLaterError
from pinlater.domain.clock import SystemClock
from pinlater.domain.descriptor import parse_descriptor
from pinlater.domain.durations import duration_ms
from pinlater.domain.errors import DescriptorInvalid
from pinlater.domain.job import JobState

_COMPLETION_MS = 1_000
_EPOCH_MS_MIN = 10**11  # 1973
_EPOCH_MS_MAX = 253_402_300_799_999  # the end of the year 9999
_MOMENTS = "write 2030-01-31T12:00:00Z, 2030-01-31, now, or milliseconds such as 1896091200000"

Server = Annotated[
    str,
    typer.Option(
        "--server",
        "-s",
        envvar=SERVERS_VARIABLE,
        metavar="HOST:PORT",
        rich_help_panel=CONNECTION,
        help="Server, or several with commas between.",
    ),
]


class LogForm(str, Enum):  # noqa: UP042 - the option's words
    """Forms of log lines."""

    AUTO = "auto"
    JSON = "json"
    TEXT = "text"


LogFormat = Annotated[LogForm, typer.Option("--log-format", help="json, text, or auto: text on a terminal.")]
_TIMEOUT_S_MIN = 0.001


def timeout_s(given: str | float) -> float:
    """Seconds of a duration such as `500ms` or `5s`, or of a number without a unit."""
    try:
        seconds = float(given)
    except ValueError:
        try:
            seconds = duration_ms(str(given)) / 1000
        except ValueError as error:
            raise typer.BadParameter(f"{given!r} {error}") from None
    if not _TIMEOUT_S_MIN <= seconds < float("inf"):
        raise typer.BadParameter(f"{given} is less than 1ms")
    return seconds


def _timeout(text: str) -> Any:
    return typer.Option("--timeout", parser=timeout_s, metavar="DURATION", rich_help_panel=CONNECTION, help=text)


_FORMS = "500ms, 5s, 2m; without a unit in seconds."
TimeoutSeconds = Annotated[float, _timeout(f"How long to wait for an answer: {_FORMS}")]
TimeoutAndWaitSeconds = Annotated[
    float, _timeout(f"How long to wait for an answer, also while no server accepts connections: {_FORMS}")
]


def integer_up_to(highest: int) -> Callable[[str | int], int]:
    """Parses an integer that is at least 0. Unlike `max=` it writes no range beside the option, whose name then fits into narrow help."""

    def read(given: str | int) -> int:
        text = str(given)
        if not (text.isascii() and text.isdigit() and int(text) <= highest):
            raise typer.BadParameter(f"{text!r} is not a whole number from 0 to {highest}")
        return int(text)

    return read


def complete_queue(context: typer.Context, incomplete: str) -> list[str]:
    """Returns the queues whose names begin with this prefix, for the shell; none if the server does not answer at once."""
    given = context.params
    of_client_tool = f"{given['host']}:{given['port']}" if given.get("host") and given.get("port") else None
    server = of_client_tool or given.get("server") or os.environ.get(SERVERS_VARIABLE) or DEFAULT_SERVER

    async def names() -> list[str]:
        async with AsyncClient(server, timeout_ms=_COMPLETION_MS, retries=0) as client:
            return await client.queue_names()

    try:
        return [name for name in asyncio.run(names()) if name.startswith(incomplete)]
    except (PinLaterError, ValueError, OSError):
        return []


def complete_queues(context: typer.Context, incomplete: str) -> list[str]:
    """Does the same as `complete_queue` for the last of several names with commas between them."""
    before, comma, begun = incomplete.rpartition(",")
    return [before + comma + name for name in complete_queue(context, begun)]


def _print_json(wanted: bool) -> bool:
    notes.use_json(wanted)
    return wanted


Json = Annotated[bool, typer.Option("--json", help="Print JSON, also of errors.", callback=_print_json, is_eager=True)]
QueueName = Annotated[str, typer.Argument(metavar="QUEUE", show_default=False, autocompletion=complete_queue)]
QueueNames = Annotated[
    list[str] | None, typer.Argument(metavar="QUEUE...", show_default=False, autocompletion=complete_queue)
]
QueueIfAny = Annotated[
    str | None,
    typer.Argument(
        metavar="QUEUE", show_default=False, autocompletion=complete_queue, help="--descriptor names it, too."
    ),
]
Descriptors = Annotated[list[str], typer.Argument(metavar="DESCRIPTOR...", show_default=False)]

SERVER = DEFAULT_SERVER
TIMEOUT_S = 10.0


class State(str, Enum):  # noqa: UP042 - the option's words, not the enum's
    """Job states as the command line writes them."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    SUCCEEDED = "succeeded"
    FAILED = "failed"

    @property
    def wire(self) -> JobState:
        return JobState[self.name]


STATES = ", ".join(state.value for state in State)
_STATE: Any = typer.Option("--state", case_sensitive=False, metavar="STATE", help=f"Jobs in this state: {STATES}.")
StateOption = Annotated[State, _STATE]
StateIfAny = Annotated[State | None, _STATE]
Delay = Annotated[str | None, typer.Option(help="Due after this span: 90s, 5m, 2h, 1d.")]
At = Annotated[str | None, typer.Option(help="Due at this time: 2030-01-31T12:00:00Z, now, or ms.")]
Future = Annotated[bool, typer.Option("--future", help="Pending jobs that are not due yet, instead of those that are.")]


def client_for(
    server: str,
    timeout_s: float,
    *,
    connections: int = 1,
    request_keys: bool = True,
    wait_for_servers: bool = False,
    token: str | None = None,
) -> AsyncClient:
    """A client, not open yet. A bad address is a usage error. `token`: instead of that of the environment; '' is none."""
    timeout_ms = max(1, round(timeout_s * 1000))
    if server == DEFAULT_SERVER:
        servers_by_default()  # for its warning
    try:
        return AsyncClient(
            server,
            timeout_ms=timeout_ms,
            connections=connections,
            wait_for_servers=wait_for_servers,
            request_keys=request_keys,
            token=token,
        )
    except ValueError as error:
        hints = {"server set ": "--server", "token": "--token-file", "tls: ": "--tls-ca", "PINLATER_TLS": "--tls"}
        hint = next((option for word, option in hints.items() if word in str(error)), "--server")
        raise typer.BadParameter(str(error), param_hint=hint) from None


@contextlib.contextmanager
def naming(option: str, value: object = None) -> Iterator[None]:
    """Turns a ValueError into a usage error that names the option, and the value if its text goes on from there."""
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(str(error) if value is None else f"{value!r} {error}", param_hint=option) from None


def span_ms(text: str | None, option: str) -> int | None:
    """Milliseconds of a duration such as `90s` or `10m`; a number without a unit is in seconds. An error names `option`."""
    if text is None:
        return None
    with naming(option, text):
        return duration_ms(text)


def moment_ms(text: str | None, option: str = "--at") -> int | None:
    """Milliseconds since the epoch, from ISO 8601 (UTC if it names no zone), `now`, or such a number of at least 12 digits.

    A smaller number is a usage error: it is a year, a compact date or seconds; as milliseconds it would be a time before 1974.
    """
    if text is None:
        return None
    if text == "now":
        return SystemClock().now_ms()
    if text.isascii() and text.isdigit():
        if not _EPOCH_MS_MIN <= int(text) <= _EPOCH_MS_MAX:
            raise typer.BadParameter(
                f"{text!r} is not a time: a number is milliseconds since 1970 and has 12 to 15 digits; {_MOMENTS}",
                param_hint=option,
            )
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a time; {_MOMENTS}", param_hint=option) from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def due_ms(delay: str | None, at: str | None, option: str = "--delay") -> int | None:
    """Returns when a job is due, from --delay (or `option`) or --at."""
    if delay is not None and at is not None:
        raise typer.BadParameter("--delay and --at exclude each other")
    waiting = span_ms(delay, option)
    return moment_ms(at) if waiting is None else SystemClock().now_ms() + waiting


def by_queue(descriptors: Sequence[str]) -> dict[str, list[str]]:
    """Descriptors by the queue that they name."""
    grouped: dict[str, list[str]] = {}
    for text in descriptors:
        try:
            grouped.setdefault(parse_descriptor(text).queue, []).append(text)
        except DescriptorInvalid as error:
            exits.fail(f"{error.message} {exits.DESCRIPTOR_HINT}", exits.REFUSED, error.detail)
    return grouped


def check_future(state: State, future: bool) -> None:
    """Refuses --future, as a usage error, for jobs that don't wait."""
    if future and state is not State.PENDING:
        raise typer.BadParameter(
            f"only pending jobs wait for their time, not those that are {state.value}", param_hint="--future"
        )


def queue_of(queue: str | None, descriptors: list[str] | None) -> str:
    """Returns the queue that is named, otherwise that of the jobs. If there is neither, or a job is of another queue, it is a usage
    error.
    """
    of_jobs = by_queue(descriptors or [])
    named = queue or next(iter(of_jobs), None)
    if named is None:
        raise typer.BadParameter("name a queue, or jobs with --descriptor", param_hint="QUEUE")
    others = sorted(of_jobs.keys() - {named})
    if others:
        raise typer.BadParameter(f"a job of queue {others[0]}, not {named}", param_hint="--descriptor")
    return named


def headers_of(texts: Sequence[str]) -> dict[str, str] | None:
    """Returns `NAME=VALUE` strings as headers, or None if there are none."""
    headers = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--header")
        headers[name] = value
    return headers or None
