"""The command `pinlater`: its own options, and the handling of all errors that a command raises. No business logic here."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from pinlater.cli import exits, notes
from pinlater.cli.groups import Root
from pinlater.cli.usage_errors import say_usage
from pinlater.version import __version__

app = typer.Typer(
    cls=Root,
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
    """The callbacks of the options have already done everything."""


_OUTPUT_LOST = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def _reader_is_gone() -> NoReturn:
    """Handles a reader that no longer reads our output, as `head` does: this is not an error, and the rest of the output is dropped."""
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
    """Opens the standard streams that the parent process closed: otherwise files and sockets would take their numbers, and our output could
    end up there.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - open as long as the process


def _escape_what_can_not_be_encoded() -> None:
    """Makes standard output escape a character that its encoding lacks, where Python would raise an error. Standard error
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
        if isinstance(end.__context__, BrokenPipeError):  # the parser's library handles it first, and ends with 1
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
