"""`pinlater queue ...`: make, list, delete, pause and configure queues, and show their state."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Awaitable, Callable, Sequence
from inspect import Parameter
from typing import Annotated, Any

import typer

from pinlater.cli import exits, notes, options, output
from pinlater.cli.call import CommandReply, OptionGroup, ServerCall
from pinlater.cli.queue_notes import say_missing
from pinlater.cli.watch import Watching
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
_STATS: output.Columns[QueueStats] = {
    "queue": lambda queue: queue.queue,
    "due": lambda queue: queue.total("pending") - queue.total("future"),
    "future": lambda queue: queue.total("future"),
    "in_progress": lambda queue: queue.total("in_progress"),
    "succeeded": lambda queue: queue.total("succeeded"),
    "failed": lambda queue: queue.total("failed"),
    "oldest": lambda queue: output.age(queue.oldest_waiting_ms),
    "in/s": lambda queue: queue.rates.enqueued,
    "done/s": lambda queue: queue.rates.succeeded,
    "failed/s": lambda queue: queue.rates.failed,
    "waiting": lambda queue: queue.waiting_dequeues,
    "paused": lambda queue: queue.paused,
}
_INCOMPLETE: output.Columns[QueueStats] = {"incomplete": lambda queue: queue.incomplete}
TOTALS = ("enqueued_total", "claimed_total", "succeeded_total", "failed_total", "retried_total")
_BY_OPTION = {setting.field.removesuffix("_ms"): setting for setting in QUEUE_SETTINGS}
# The defaults of `worker.task`, which this command must not import: it would load all of the worker.
DEFAULTS_OF_TASKS = (
    "claim_timeout, default_attempts and default_expiry apply to jobs that set none. Tasks of the Python SDK set attempts and claim "
    "timeout of their jobs: 5 and 1m, unless the task has others."
)


def create(
    call: ServerCall,
    names: Names,
    ordered: Annotated[
        bool, typer.Option("--ordered", help="Their jobs run one after the other. This can't be changed later.")
    ] = False,
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

    _for_each(call, names, make, "created", "exists")


def delete(
    call: ServerCall,
    name: options.QueueName,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the admin password from standard input.")
    ] = False,
    no_password: Annotated[
        bool, typer.Option("--no-password", help="Send no password: the token has the role admin.")
    ] = False,
) -> None:
    """Delete a queue with all its jobs. Asks for the server's admin password, unless an option says where it is. For a queue that does
    not exist, the output says `absent`.

    Example: pinlater queue delete emails
    """
    if password_stdin and no_password:
        raise typer.BadParameter("--password-stdin and --no-password exclude each other")
    needs_password = not no_password
    if not call.ask(lambda client: _can_delete(client, name, needs_password=needs_password)):
        say_missing(name)
        done = "absent"
    else:
        password = _password(from_stdin=password_stdin) if needs_password else ""
        call.ask(lambda client: _delete(client, name, password))
        done = "deleted"
    call.answer({"deleted": [], "absent": [], done: [name]}, [f"{done} {name}"])


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
    call: ServerCall,
) -> None:
    """List the queues by name.

    Example: pinlater queue list
    """
    names = call.ask(lambda client: client.queue_names())
    call.answer({"queues": names}, names if names or not output.on_terminal() else [_NO_QUEUES])


def stats(
    call: ServerCall,
    watching: Watching,
    names: options.QueueNames = None,
) -> None:
    """Show counts by state, rates, and the wait of due jobs. The wait is that of the oldest due job. Without QUEUE, it shows all queues.

    Pending jobs are `due`, or wait for a later time or behind another job of their ordering key (`future`). In the JSON `pending` is both,
    and `behind_key` the latter, of which 10,000 on a shard stand for that or more. `waiting` is the number of dequeues that
    wait for a job, at all servers of the shards. --watch --json prints one line each time.

    A terminal that is too narrow shows `claimed` for `in_progress`, `done` for `succeeded`, and leaves out columns of zeros. A long
    name is on a line of its own.

    Example: pinlater queue stats emails --watch
    """
    watching.ask_and_show(
        call,
        lambda client: client.queue_stats(*(names or [])),
        lambda found: _answer_stats(call, found, in_one_line=watching.watch),
    )


def _answer_stats(call: ServerCall, found: list[QueueStats], *, in_one_line: bool) -> None:
    incomplete = any(queue.incomplete for queue in found)
    document = {"queues": list(map(_stats_json, found)), "incomplete": incomplete}
    call.answer(document, lambda: _print_stats(found, incomplete), in_one_line=in_one_line)


def _print_stats(found: list[QueueStats], incomplete: bool) -> None:
    # A terminal is narrow; programs that read the output can rely on every column.
    columns = {**_STATS, **_INCOMPLETE} if incomplete or not output.on_terminal() else _STATS
    output.print_narrow_table(columns, found, shorter=_SHORTER, without_rows=_NO_QUEUES)
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
    call: ServerCall,
    names: Names,
) -> None:
    """Stop dequeues. Enqueues and acks continue.

    Example: pinlater queue pause emails
    """
    _for_each(call, names, lambda client, name: client.pause_queue(name), "paused")


def resume(
    call: ServerCall,
    names: Names,
) -> None:
    """Allow dequeues again.

    Example: pinlater queue resume emails
    """
    _for_each(call, names, lambda client, name: client.resume_queue(name), "resumed")


def unblock(
    call: ServerCall,
    name: options.QueueName,
    key: Annotated[str, typer.Option(help="The ordering key.")],
) -> None:
    """Unblock an ordering key that finally failed jobs have stopped (`after_failure`). These jobs stay failed.

    Example: pinlater queue unblock payments --key account-7
    """
    unblocked = call.ask(lambda client: client.unblock_key(name, key))
    told = f"{counted(unblocked, 'job')} stopped the key" if unblocked else "no job stopped the key"
    call.answer({"jobs": unblocked}, [told])


def _for_each(
    call: ServerCall, names: list[str], act: Callable[[AsyncClient, str], Awaitable[str | None]], *words: str
) -> None:
    """Calls `act` for one queue after the other and prints for each the word that it returns, or else the first of `words`. The queues
    that were done before a refusal are printed too. Notes if an unreachable shard gets the change later."""
    usual, *_ = words
    done: dict[str, list[str]] = {word: [] for word in words}

    async def act_on_all(client: AsyncClient) -> None:
        for name in names:
            word = await act(client, name) or usual
            done[word].append(name)
            if not call.json:
                output.print_lines([f"{word} {name}"])
        await _tell_if_a_shard_is_unreachable(client, names)

    try:
        call.ask(act_on_all)
    finally:
        if call.json and any(done.values()):
            output.print_json(done)


async def _tell_if_a_shard_is_unreachable(client: AsyncClient, names: Sequence[str]) -> None:
    """Prints notes on standard error. The change itself is made, so an error here does not fail the command."""
    try:
        unreachable = any(queue.incomplete for queue in await client.queue_stats(*names))
    except (CallerError, WorldError):
        return
    if unreachable:
        notes.note("a shard is unreachable (/readyz of the server names it); it gets the change when it is back")


class SettingChanges(OptionGroup):
    """An option for each setting of a queue."""

    def __init__(self, **given: str | None) -> None:
        self._given = given

    @classmethod
    def parameters(cls) -> Sequence[Parameter]:
        return [
            Parameter(
                option,
                Parameter.KEYWORD_ONLY,
                default=None,
                annotation=Annotated[str | None, typer.Option(help=setting.help)],
            )
            for option, setting in _BY_OPTION.items()
        ]

    def values(self) -> dict[str, float | str | None]:
        """The given settings by the names of their fields."""
        return {
            setting.field: _value(setting, text)
            for option, setting in _BY_OPTION.items()
            if (text := self._given.get(option)) is not None
        }


def config(call: ServerCall, name: options.QueueName, given: SettingChanges) -> None:
    """Show the settings of a queue, or change those that are given. `default` removes one, so that the default of the server applies.

    Attempts, claim timeout and expiry apply to jobs that set none. Tasks of the Python SDK set attempts and claim timeout of their jobs.

    Example: pinlater queue config emails --claim-timeout 5m --max-backlog default
    """
    changes = given.values()

    async def change(client: AsyncClient) -> tuple[QueueInfo, SettingsInForce]:
        now = await client.queue_config(name)
        if changes:
            await client.configure_queue(name, QueueConfig(**{**now.config._asdict(), **changes}))
            await _tell_if_a_shard_is_unreachable(client, [name])
            now = await client.queue_config(name)
        return now, await client.settings_in_force(name)

    answer_config(call, *call.ask(change))


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


def answer_config(reply: CommandReply, queue: QueueInfo, settings: SettingsInForce) -> None:
    """Prints the values in force and their origins, and the queue's own values if those are not in force."""
    own = {"queue": queue.name, "paused": queue.paused, "ordered": queue.ordered, **queue.config._asdict()}
    reply.answer(
        {**own, "in_force": settings.values._asdict(), "origins": settings.origins},
        lambda: _print_config(queue, settings),
    )


def _print_config(queue: QueueInfo, settings: SettingsInForce) -> None:
    rows: list[tuple[object, ...]] = [("paused", queue.paused, "queue"), ("ordered", queue.ordered, "queue")]
    for option, setting in _BY_OPTION.items():
        value, stored = getattr(settings.values, setting.field), getattr(queue.config, setting.field)
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
