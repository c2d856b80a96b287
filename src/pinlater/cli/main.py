"""The command `pinlater`: a table of commands, each loaded only when it is run or its help is asked for.

Must never import a server's module by itself: the base wheel holds clients and workers only, and a command that needs more says what to
install. No business logic here.
"""

from __future__ import annotations

import errno
import functools
import os
import sys
import traceback
from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NoReturn

import typer
import typer.core

from pinlater.cli import exits
from pinlater.version import __version__

WITH_JOBS, WITH_QUEUES, RUNNING, TRYING = "Jobs", "Queues", "Servers and workers", "Measuring and trying"


class Place(NamedTuple):
    """Where a command is: `attribute` of `module` is its function, or the Typer app of its group."""

    module: str
    attribute: str
    panel: str


COMMANDS: dict[str, Place] = {
    "serve": Place("serve", "serve", RUNNING),
    "worker": Place("work", "worker", RUNNING),
    "demo": Place("demo", "demo", TRYING),
    "queue": Place("queues", "app", WITH_QUEUES),
    "enqueue": Place("produce", "enqueue", WITH_JOBS),
    "dequeue": Place("consume", "dequeue", WITH_JOBS),
    "check-dequeue": Place("consume", "check_dequeue", WITH_JOBS),
    "peek": Place("consume", "peek", WITH_JOBS),
    "ack": Place("finish", "ack", WITH_JOBS),
    "cancel": Place("finish", "cancel", WITH_JOBS),
    "lookup": Place("look", "lookup", WITH_JOBS),
    "count": Place("look", "count", WITH_JOBS),
    "scan": Place("look", "scan", WITH_JOBS),
    "retry-failed": Place("bulk", "retry_failed", WITH_JOBS),
    "delete-jobs": Place("bulk", "delete_jobs", WITH_JOBS),
    "load": Place("load", "load", TRYING),
    "client-tool": Place("client_tool", "client_tool", TRYING),
    "hash-password": Place("password", "hash_password", RUNNING),
    "settings": Place("settings", "settings", RUNNING),
    "migrate": Place("migrate", "migrate", RUNNING),
    "shards": Place("shards", "app", RUNNING),
    "backup": Place("backup", "backup", RUNNING),
    "import-original": Place("import_original", "import_original", RUNNING),
    "version": Place("about", "version", TRYING),
}


class LazyCommands(typer.core.TyperGroup):
    """The commands of `COMMANDS`."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        place = COMMANDS.get(cmd_name)
        if place is not None:
            return _load(cmd_name, place)
        near = get_close_matches(cmd_name, COMMANDS, n=1)
        if near and not ctx.resilient_parsing:
            ctx.fail(f"No such command {cmd_name!r}. Did you mean {near[0]!r}?")
        return None


def _load(name: str, place: Place) -> Any:
    """The command, or one in its place that says what is missing."""
    try:
        found = getattr(import_module(f"pinlater.cli.{place.module}"), place.attribute)
    except ImportError as error:
        found = _missing(name, error)
    loaded: Any
    if isinstance(found, typer.Typer):
        loaded = typer.main.get_group(found)
    else:
        alone = typer.Typer(add_completion=False, rich_markup_mode="rich")
        alone.command(name, context_settings=getattr(found, "context_settings", None))(_guarded(found))
        loaded = typer.main.get_command(alone)
    loaded.name = name
    loaded.rich_help_panel = place.panel
    return loaded


def _guarded(command: Callable[..., Any]) -> Callable[..., Any]:
    """A module that turns out to be missing while the command runs is said like one that is missing at the start."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except ImportError as error:
            _say_missing(command.__name__.replace("_", "-"), error)

    return run


def _missing(name: str, error: ImportError) -> Callable[[], None]:
    def unavailable() -> None:
        _say_missing(name, error)

    unavailable.__doc__ = "Not installed: needs the extra `server`."
    unavailable.context_settings = {"ignore_unknown_options": True, "allow_extra_args": True}  # type: ignore[attr-defined]
    return unavailable


def _say_missing(name: str, error: ImportError) -> NoReturn:
    from pinlater.config.extras import install_line

    if exits.tracebacks():
        traceback.print_exception(error)
    module = error.name or ""
    extra = {"asyncmy": "mysql", "redis": "redis", "hiredis": "redis"}.get(module, "server")
    exits.fail(f"`pinlater {name}` needs {module or 'more than is installed'}: {install_line(extra)}", exits.REFUSED)


app = typer.Typer(
    cls=LazyCommands,
    name="pinlater",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A durable job service: serve one, fill its queues, run its jobs, look into it.",
    epilog="Start with `pinlater demo`. Servers: --server HOST:PORT or PINLATER_SERVERS. Exit codes: see the CLI reference.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"pinlater {__version__}")
        raise typer.Exit


def _want_tracebacks(wanted: bool) -> bool:
    return exits.tracebacks(wanted)


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True)
    ] = False,
    trace: Annotated[
        bool,
        typer.Option(
            "--traceback",
            help="Show the traceback of an unexpected error.",
            callback=_want_tracebacks,
            is_eager=True,  # the command is imported before this function is called, and may fail then
        ),
    ] = False,
) -> None:
    """Its options have taken effect when they were read."""


def _say_usage(error: Any) -> int:
    """What the parser found wrong, in one line; the help where nothing was said at all. Typer's versions differ in the class."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
    else:
        where = error.ctx.command_path if getattr(error, "ctx", None) else "pinlater"
        message = " ".join(error.format_message().split()).replace(": Value error, ", ": ")  # the checker's own words
        sys.stderr.write(f"error: {message} (see: {where} --help)\n")
    return int(error.exit_code)


_OUTPUT_LOST = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


def _reader_is_gone(error: str = "") -> NoReturn:
    """Whoever read our output has stopped, as `head` does: that is no error, and what is left to write has nowhere to go."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if error:
        sys.stderr.write(f"error: {error}\n")
    sys.exit(exits.REFUSED if error else exits.OK)


def _say_bug(error: Exception) -> NoReturn:
    if exits.tracebacks():
        traceback.print_exc()
    sys.stderr.write(f"error: unexpected: {type(error).__name__}: {error} (run with --traceback to see where)\n")
    sys.exit(exits.BUG)


def _open_standard_streams() -> None:
    """Where one was closed by whoever started us, files and sockets would take its number, and our output could end up in them."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - open as long as the process


def main() -> None:
    """The process's entry. Every end has an exit code of the table in `exits`; a bug is one line, with `--traceback` all of it."""
    _open_standard_streams()
    try:
        code = app(standalone_mode=False, prog_name="pinlater") or exits.OK
        sys.stdout.flush()
        sys.exit(code)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(exits.INTERRUPTED)
    except BrokenPipeError:
        _reader_is_gone()
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # the parser's library meets it first, and ends with 1
            _reader_is_gone()
        raise
    except OSError as error:
        if error.errno not in _OUTPUT_LOST:
            _say_bug(error)
        _reader_is_gone(f"the output can't be written: {error.strerror}")
    except Exception as error:  # noqa: BLE001 - the last resort
        if hasattr(error, "format_message"):
            sys.exit(_say_usage(error))
        _say_bug(error)
