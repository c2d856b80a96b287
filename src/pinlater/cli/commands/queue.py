"""`pinlater queue ...`: make, list, delete, pause and configure queues, and show their state."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

import typer

from pinlater.cli import exits, notes, options, output
from pinlater.cli.queue_notes import say_missing
from pinlater.cli.watch import EVERY, Every, Watch, interval_ms, show_answers
from pinlater.client import AsyncClient, QueueConfig, QueueInfo, QueueStats, SettingsInForce
from pinlater.client.errors import (
    AccessDenied,
    CallerError,
    PasswordInvalid,
    QueueNotFound,
    UnknownMethod,
    WorldError,
)
from pinlater.domain.clock import SystemClock
from pinlater.domain.durations import duration_text
from pinlater.domain.errors import WITHOUT_HASH, InvalidArgument, adding
from pinlater.domain.queue import check_queue_name
from pinlater.domain.queue_settings import QUEUE_SETTINGS, QueueSetting
from pinlater.domain.servers import DELETES_QUEUES
from pinlater.domain.wording import counted

Names = Annotated[
    list[str], typer.Argument(metavar="QUEUE...", show_default=False, autocompletion=options.complete_queue)
]
_NO_QUEUES = "no queues"
# Columns of `queue stats` on a narrow terminal.
_SHORTER = {"in_progress": "claimed", "succeeded": "done", "failed/s": "fail/s", "waiting": "waits"}
COUNTS = ("pending", "future", "in_progress", "succeeded", "failed")
TOTALS = ("enqueued_total", "claimed_total", "succeeded_total", "failed_total", "retried_total")
_BY_OPTION = {setting.field.removesuffix("_ms"): setting for setting in QUEUE_SETTINGS}
_KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY
# The defaults of `worker.task`, which this command must not import: it would load all of the worker.
DEFAULTS_OF_TASKS = (
    "claim_timeout, default_attempts and default_expiry apply to jobs that set none. Tasks of the Python SDK set attempts and claim "
    "timeout of their jobs: 5 and 1m, unless the task has others."
)


def create(
    names: Names,
    ordered: Annotated[
        bool, typer.Option("--ordered", help="Their jobs run one after the other. This can't be changed later.")
    ] = False,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """Create queues. A queue that exists does not change, and the output says that it exists.

    Example: pinlater queue create emails
    """

    async def make(client: AsyncClient, name: str) -> str:
        exists = False
        with contextlib.suppress(AccessDenied):  # a token may create queues that it may not list
            exists = name in await client.queue_names()
        await client.create_queue(name, ordered=ordered)
        return "exists" if exists else "created"

    _for_each(names, server, timeout, json, make, words=("created", "exists"))


def delete(
    name: options.QueueName,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the admin password from standard input.")
    ] = False,
    no_password: Annotated[
        bool, typer.Option("--no-password", help="Send no password: the token has the role admin.")
    ] = False,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """Delete a queue with all its jobs. Asks for the server's admin password, unless an option says where it is. For a queue that does
    not exist, the output says `absent`.

    Example: pinlater queue delete emails
    """
    if password_stdin and no_password:
        raise typer.BadParameter("--password-stdin and --no-password exclude each other")
    needs_password = not no_password
    if not options.ask(server, timeout, lambda client: _can_delete(client, name, needs_password=needs_password)):
        say_missing(name)
        done = "absent"
    else:
        password = _password(from_stdin=password_stdin) if needs_password else ""
        options.ask(server, timeout, lambda client: _delete(client, name, password))
        done = "deleted"
    if json:
        output.print_json({"deleted": [], "absent": [], done: [name]})
    else:
        output.print_lines([f"{done} {name}"])


async def _delete(client: AsyncClient, name: str, password: str) -> None:
    try:
        await client.delete_queue(name, password)
    except PasswordInvalid as error:
        if password or error.detail == WITHOUT_HASH:
            raise
        raise adding(error, " (without a password, the token must have the role admin)") from None


async def _can_delete(client: AsyncClient, name: str, *, needs_password: bool) -> bool:
    """Whether the queue exists, before the operator is asked for a password. Raises `PasswordInvalid` if one is needed and the server
    has none, and `AccessDenied` if the token is not for the queue."""
    check_queue_name(name)
    names = None
    with contextlib.suppress(AccessDenied):  # callers with the password may lack the role to list queues
        names = await client.queue_names()
    if names is not None and name not in names:
        with contextlib.suppress(QueueNotFound, UnknownMethod):
            await client.queue_config(name)  # the list leaves out queues that the token does not allow
        return False
    try:
        info = await client.server_info()
    except UnknownMethod:  # an original server
        return True
    if needs_password and DELETES_QUEUES not in info.features:
        raise PasswordInvalid.of(configured=False)
    return True


def _password(*, from_stdin: bool) -> str:
    """The password as the operator types it, or from standard input. A usage error if there is neither."""
    if not from_stdin and sys.stdin.isatty():
        asked: str = typer.prompt("Admin password", hide_input=True, err=True)
        return asked
    if not from_stdin:
        exits.fail(
            "the command asks for the admin password, but standard input is no terminal: --password-stdin reads the password from there, "
            "--no-password sends none, for a token with the role admin",
            exits.USAGE,
        )
    password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise typer.BadParameter("standard input holds no password", param_hint="--password-stdin")
    return password


def list_queues(
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """List the queues by name.

    Example: pinlater queue list
    """
    names = options.ask(server, timeout, lambda client: client.queue_names())
    if json:
        output.print_json({"queues": names})
    elif names or not output.on_terminal():
        output.print_lines(names)
    else:
        output.print_lines([_NO_QUEUES])


def stats(
    names: options.QueueNames = None,
    watch: Watch = False,
    every: Every = EVERY,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """Show counts by state, rates, and the wait of due jobs. The wait is that of the oldest due job. Without QUEUE, it shows all queues.

    Pending jobs are `due`, or wait for a later time or behind another job of their ordering key (`future`). In the JSON `pending` is both,
    and `behind_key` the latter, of which 10,000 on a shard stand for that or more. `waiting` is the number of dequeues that
    wait for a job, at all servers of the shards. --watch --json prints one line each time.

    A terminal that is too narrow shows `claimed` for `in_progress`, `done` for `succeeded`, and leaves out columns of zeros. A long
    name is on a line of its own.

    Example: pinlater queue stats emails --watch
    """
    every_ms = interval_ms(watch, every)

    async def show(client: AsyncClient) -> None:
        await show_answers(
            lambda: client.queue_stats(*(names or [])),
            lambda found: _print_stats(found, json, in_one_line=watch),
            every_ms,
        )

    options.ask(server, timeout, show)


def _print_stats(found: list[QueueStats], as_json: bool, *, in_one_line: bool) -> None:
    incomplete = any(queue.incomplete for queue in found)
    if as_json:
        output.print_json(
            {"queues": [_stats_json(queue) for queue in found], "incomplete": incomplete}, in_one_line=in_one_line
        )
        return
    columns = ["queue", "due", *COUNTS[1:], "oldest", "in/s", "done/s", "failed/s", "waiting", "paused", "incomplete"]
    # A terminal is narrow; programs that read the output can rely on every column.
    shown = len(columns) if incomplete or not output.on_terminal() else len(columns) - 1
    rows = [_stats_row(queue)[:shown] for queue in found]
    output.print_narrow_table(columns[:shown], rows, shorter=_SHORTER, without_rows=_NO_QUEUES)
    for queue in found:
        _note_partitions(queue)
        if behind := queue.total("behind_key"):
            notes.note(f"{queue.queue}: {behind:,} of the future jobs wait behind others of their ordering keys")
    if incomplete:
        output.warn_incomplete()


def _note_partitions(queue: QueueStats) -> None:
    """Notes the partitions on standard error, unless the queue has one partition and all of its jobs are there."""
    number, strays = queue.partition_number, queue.strays
    several = number is not None and number.number > 1
    if not several and not strays:
        return
    text = f"{queue.queue} is stored on {' and '.join(queue.partitions)}"
    if number is not None:
        text += f": {number.told(SystemClock().now_ms())}"
    if strays:
        on = ", ".join(f"{jobs:,} on shard {shard}" for shard, jobs in sorted(strays.items()))
        text += f"; unfinished jobs elsewhere: {on}"
    notes.note(text)


def _stats_row(queue: QueueStats) -> tuple[object, ...]:
    return (
        queue.queue,
        queue.total("pending") - queue.total("future"),
        *(queue.total(name) for name in COUNTS[1:]),
        output.age(queue.oldest_waiting_ms),
        queue.rates.enqueued,
        queue.rates.succeeded,
        queue.rates.failed,
        queue.waiting_dequeues,
        queue.paused,
        queue.incomplete,
    )


def _stats_json(queue: QueueStats) -> dict[str, Any]:
    return {
        "queue": queue.queue,
        "paused": queue.paused,
        **{name: queue.total(name) for name in (*COUNTS, "behind_key", *TOTALS)},
        "oldest_waiting_ms": queue.oldest_waiting_ms,
        "rates": queue.rates._asdict(),
        "waiting_dequeues": queue.waiting_dequeues,
        "incomplete": queue.incomplete,
        "partitions": queue.partitions,
        "strays": queue.strays,
        "partition_number": queue.partition_number and queue.partition_number._asdict(),
        "priorities": [counts._asdict() for counts in queue.counts],
    }


def pause(
    names: Names,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """Stop dequeues. Enqueues and acks continue.

    Example: pinlater queue pause emails
    """

    async def act(client: AsyncClient, name: str) -> str:
        await client.pause_queue(name)
        return "paused"

    _for_each(names, server, timeout, json, act)


def resume(
    names: Names,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """Allow dequeues again.

    Example: pinlater queue resume emails
    """

    async def act(client: AsyncClient, name: str) -> str:
        await client.resume_queue(name)
        return "resumed"

    _for_each(names, server, timeout, json, act)


def unblock(
    name: options.QueueName,
    key: Annotated[str, typer.Option("--key", help="The ordering key.")],
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """Unblock an ordering key that finally failed jobs have stopped (`after_failure`). These jobs stay failed.

    Example: pinlater queue unblock payments --key account-7
    """
    unblocked = options.ask(server, timeout, lambda client: client.unblock_key(name, key))
    if json:
        output.print_json({"jobs": unblocked})
    else:
        output.print_lines([f"{counted(unblocked, 'job')} stopped the key" if unblocked else "no job stopped the key"])


def _for_each(
    names: list[str],
    server: str,
    timeout: float,
    as_json: bool,
    act: Callable[[AsyncClient, str], Awaitable[str]],
    *,
    tell_unreachable: bool = True,
    words: Sequence[str] = (),
) -> None:
    """Calls `act` for one queue after the other and prints the word that it returns for each. The queues that were done before a
    refusal are printed too. `tell_unreachable`: notes if an unreachable shard gets the change later. The JSON always has `words`."""
    done: dict[str, list[str]] = {word: [] for word in words}

    async def act_on_all(client: AsyncClient) -> None:
        for name in names:
            word = await act(client, name)
            done.setdefault(word, []).append(name)
            if not as_json:
                output.print_lines([f"{word} {name}"])

        if tell_unreachable:
            await _tell_if_a_shard_is_unreachable(client, names)

    try:
        options.ask(server, timeout, act_on_all)
    finally:
        if as_json and any(done.values()):
            output.print_json(done)


async def _tell_if_a_shard_is_unreachable(client: AsyncClient, names: Sequence[str]) -> None:
    """Prints notes on standard error. The change itself is made, so an error here does not fail the command."""
    try:
        unreachable = any(queue.incomplete for queue in await client.queue_stats(*names))
    except (CallerError, WorldError):
        return
    if unreachable:
        notes.note("a shard is unreachable (/readyz of the server names it); it gets the change when it is back")


def _with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Gives the command an option for each setting of a queue."""
    signature = inspect.signature(command, eval_str=True)
    name, *others, _ = signature.parameters.values()
    settings = [
        inspect.Parameter(
            option, _KEYWORD_ONLY, default=None, annotation=Annotated[str | None, typer.Option(help=setting.help)]
        )
        for option, setting in _BY_OPTION.items()
    ]
    parameters = [name, *settings, *[other.replace(kind=_KEYWORD_ONLY) for other in others]]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return command


@_with_settings
def config(
    name: options.QueueName,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
    **given: str | None,
) -> None:
    """Show the settings of a queue, or change those that are given. `default` removes one, so that the default of the server applies.

    Attempts, claim timeout and expiry apply to jobs that set none. Tasks of the Python SDK set attempts and claim timeout of their jobs.

    Example: pinlater queue config emails --claim-timeout 5m --max-backlog default
    """
    changes = {
        setting.field: _value(setting, text)
        for option, setting in _BY_OPTION.items()
        if (text := given.get(option)) is not None
    }

    async def change(client: AsyncClient) -> tuple[QueueInfo, SettingsInForce]:
        now = await client.queue_config(name)
        if changes:
            await client.configure_queue(name, QueueConfig(**{**now.config._asdict(), **changes}))
            await _tell_if_a_shard_is_unreachable(client, [name])
            now = await client.queue_config(name)
        return now, await client.settings_in_force(name)

    print_config(*options.ask(server, timeout, change), json)


def _value(setting: QueueSetting, text: str) -> float | str | None:
    word = "auto" if setting.unset == "auto" else "default"
    if text in {"default", word}:
        return None
    option = f"--{setting.field.removesuffix('_ms').replace('_', '-')}"
    value = text if setting.words else _number(setting, text, option, word)
    try:
        setting.check(value)
    except InvalidArgument as error:
        raise typer.BadParameter(error.message, param_hint=option) from None
    return value


def _number(setting: QueueSetting, text: str, option: str, word: str) -> float | None:
    if setting.is_span:
        return options.span_ms(text, option)
    try:
        return float(text) if setting.is_fraction else int(text)
    except ValueError:
        kind = "number" if setting.is_fraction else "whole number"
        raise typer.BadParameter(f"{text!r} is not a {kind} or `{word}`", param_hint=option) from None


def print_config(queue: QueueInfo, settings: SettingsInForce, as_json: bool) -> None:
    """Prints the values in force and their origins, and the queue's own values if those are not in force."""
    in_force = settings.values._asdict()
    if as_json:
        own = {"queue": queue.name, "paused": queue.paused, "ordered": queue.ordered, **queue.config._asdict()}
        output.print_json({**own, "in_force": in_force, "origins": settings.origins})
        return
    rows: list[tuple[object, ...]] = [("paused", queue.paused, "queue"), ("ordered", queue.ordered, "queue")]
    for option, setting in _BY_OPTION.items():
        value, stored = in_force[setting.field], getattr(queue.config, setting.field)
        origin = _origin(settings.origins.get(setting.field))
        if stored is not None and stored != value:
            origin += f"; the queue's own {_shown(setting, stored)} is stored, but not in force"
        rows.append((option, _shown(setting, value), origin))
    output.print_table(["setting", "in force", "from"], rows)
    if output.on_terminal():
        output.print_text(["", DEFAULTS_OF_TASKS])


def _shown(setting: QueueSetting, value: float | str | None) -> object:
    if value is None:
        return setting.unset or None
    return duration_text(int(value)) if setting.is_span else value


def _origin(origin: str | None) -> str:
    """Where a value comes from, in words."""
    if origin is None:
        return "not set"
    return f"server ({origin})" if origin.startswith("jobs.") else origin
