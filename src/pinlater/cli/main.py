"""The command `pinlater`: a table of commands, each loaded only when it is run or its help is asked for.

Must never import a server's module by itself: the base wheel holds clients and workers only, and a command that needs more says what to
install. No business logic here.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import inspect
import io
import os
import sys
from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
import typer.core

from pinlater.cli import exits, notes
from pinlater.cli.connection_options import tls_options, token_options
from pinlater.cli.queue_argument import accept_queue_option
from pinlater.cli.usage_errors import name_in_errors, say_usage
from pinlater.version import __version__

JOBS, QUEUES, RUNNING, TRYING = "Jobs", "Queues", "Servers and workers", "Measuring and trying"

# Each command and the panel of the help it is in. Its module in `commands` has its name and holds a function of that name, or, for a group
# of commands, `app`.
COMMANDS: dict[str, str] = {
    "serve": RUNNING,
    "worker": RUNNING,
    "workers": RUNNING,
    "cron": RUNNING,
    "console": RUNNING,
    "demo": TRYING,
    "queue": QUEUES,
    "enqueue": JOBS,
    "dequeue": JOBS,
    "check-dequeue": JOBS,
    "peek": JOBS,
    "ack": JOBS,
    "cancel": JOBS,
    "lookup": JOBS,
    "explain": JOBS,
    "failures": JOBS,
    "count": JOBS,
    "scan": JOBS,
    "run-now": JOBS,
    "change-priority": JOBS,
    "retry-failed": JOBS,
    "delete-jobs": JOBS,
    "bulk": JOBS,
    "load": TRYING,
    "simulate": TRYING,
    "client-tool": TRYING,
    "token": RUNNING,
    "hash-password": RUNNING,
    "settings": RUNNING,
    "migrate": RUNNING,
    "shards": RUNNING,
    "cluster": RUNNING,
    "audit": RUNNING,
    "backup": RUNNING,
    "import-original": RUNNING,
    "version": TRYING,
}


# The extra that a command needs, if it is not `server` or the one of a store.
EXTRAS = {"console": "console"}
# Its callers send tokens of their own.
WITHOUT_TOKEN = frozenset({"console"})
# Its options of these names are for the connection to the database of the original.
WITH_OTHER_TLS = frozenset({"import-original"})
# Commands of a group that are looked for at the top, and words of other job services.
_MEANT = {
    **{name: f"queue {name}" for name in ("stats", "create", "pause", "resume", "config", "list", "delete")},
    "retry": "retry-failed",
    "purge": "delete-jobs",
    "revoke": "cancel",
    "status": "queue stats",
}


class LazyCommands(typer.core.TyperGroup):
    """The commands of `COMMANDS`."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in COMMANDS:
            return _load(cmd_name)
        if cmd_name in _MEANT and not ctx.resilient_parsing:
            ctx.fail(f"No such command {cmd_name!r}. Did you mean {_MEANT[cmd_name]!r}?")
        near = get_close_matches(cmd_name, COMMANDS, n=1)
        if near and not ctx.resilient_parsing:
            ctx.fail(f"No such command {cmd_name!r}. Did you mean {near[0]!r}?")
        return None


def _load(name: str) -> Any:
    """The command, or one in its place that says what is missing."""
    word = name.replace("-", "_")
    try:
        module = import_module(f"pinlater.cli.commands.{word}")
        found = getattr(module, "app", None) or getattr(module, word)
    except ImportError as error:
        found = _missing(name, error)
    loaded: Any
    if isinstance(found, typer.Typer):
        loaded = typer.main.get_group(found)
    else:
        alone = typer.Typer(add_completion=False, rich_markup_mode="rich")
        alone.command(name, context_settings=getattr(found, "context_settings", None))(found)
        loaded = typer.main.get_command(alone)
    for command in (loaded, *getattr(loaded, "commands", {}).values()):
        accept_queue_option(command)
        name_in_errors(command)
        command.help = _in_long_lines(command.help)
        if any(param.name == "server" for param in command.params):
            command.params += [] if name in WITHOUT_TOKEN else token_options()
            command.params += [] if name in WITH_OTHER_TLS else tls_options()
        if command.callback is not None:
            command.callback = _guarded(name, command.callback)
    loaded.name = name
    loaded.rich_help_panel = COMMANDS[name]
    return loaded


def _in_long_lines(text: str | None) -> str | None:
    """Each paragraph of a help in one line: the parser's library would keep the line breaks of a docstring."""
    return text and "\n\n".join(" ".join(each.split()) for each in inspect.cleandoc(text).split("\n\n"))


def _guarded(name: str, command: Callable[..., Any]) -> Callable[..., Any]:
    """Reports a module that turns out to be missing while the command runs like one that is missing at the start."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except ImportError as error:
            _say_missing(name, error)

    return run


def _missing(name: str, error: ImportError) -> Callable[[], None]:
    def unavailable() -> None:
        _say_missing(name, error)

    unavailable.__doc__ = f"Not installed: needs the extra `{EXTRAS.get(name, 'server')}`."
    unavailable.context_settings = {"ignore_unknown_options": True, "allow_extra_args": True}  # type: ignore[attr-defined]
    return unavailable


def _say_missing(name: str, error: ImportError) -> NoReturn:
    from pinlater.extras import install_line
    from pinlater.server.config.kinds import SHARDED

    exits.show_traceback(error)
    module = error.name or ""
    if module.partition(".")[0] == "pinlater":
        exits.fail(f"`pinlater {name}` can't be loaded: {error} (`pinlater --traceback {name}` shows where)", exits.BUG)
    of_a_store = (store for store, kind in SHARDED.items() if module in kind.driver)
    extra = EXTRAS.get(name) or next(of_a_store, "server")
    needed = module if isinstance(error, ModuleNotFoundError) else f"more than is installed ({error})"
    exits.fail(f"`pinlater {name}` needs {needed}: {install_line(extra)}", exits.REFUSED)


app = typer.Typer(
    cls=LazyCommands,
    name="pinlater",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A durable job service: run a server or a worker, enqueue jobs, inspect and control queues.",
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
    """The callbacks of the options have done all there is to do."""


_OUTPUT_LOST = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def _reader_is_gone() -> NoReturn:
    """The reader of our output has stopped, as `head` does: that is no error, and the rest of the output goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(exits.OK)


def _output_is_lost(error: OSError) -> NoReturn:
    from pinlater.cli import output

    with contextlib.suppress(typer.Exit):
        output.fail_unprinted(error)
    sys.exit(exits.REFUSED)


def _say_bug(error: Exception) -> NoReturn:
    exits.show_traceback(error)
    exits.write_error(f"unexpected: {type(error).__name__}: {error} (run with --traceback to see where)", exits.BUG)
    sys.exit(exits.BUG)


def _open_standard_streams() -> None:
    """Opens those that the parent process closed: else files and sockets would take their numbers, and our output could end up there."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - open as long as the process


def _escape_what_can_not_be_encoded() -> None:
    """Lets standard output show a character that its encoding lacks as an escape, where Python would raise an error. Standard error
    does so by itself."""
    stream = sys.stdout
    if isinstance(stream, io.TextIOWrapper):
        try:
            "\N{GRINNING FACE}".encode(stream.encoding, stream.errors or "strict")
        except UnicodeEncodeError:
            stream.reconfigure(errors="backslashreplace")


def main() -> None:
    """The process's entry. It ends with a code from `exits`; a bug is one line on standard error, `--traceback` shows where."""
    _open_standard_streams()
    _escape_what_can_not_be_encoded()
    exits.tracebacks(False)
    notes.take_logged_warnings()
    notes.use_json("--json" in sys.argv)  # for mistakes that the parser finds before it reads this option
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
        _output_is_lost(error)
    except Exception as error:  # noqa: BLE001 - the last resort
        if hasattr(error, "format_message"):
            sys.exit(say_usage(error))
        _say_bug(error)
