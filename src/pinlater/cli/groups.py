"""Groups of commands for the parser, each command loaded only when it is run or its help is requested.

It never imports a server's module by itself: the base wheel contains clients and workers only, and a command that needs more reports what
to install.
"""

from __future__ import annotations

import functools
import inspect
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NoReturn

import typer
import typer.core

from pinlater.cli import exits
from pinlater.cli.call import with_options
from pinlater.cli.connection_options import tls_options, token_options
from pinlater.cli.hide_passwords import holds_password
from pinlater.cli.queue_argument import accept_queue_option
from pinlater.cli.tree import COMMANDS, INSTEAD, Group, Leaf
from pinlater.cli.usage_errors import name_in_errors

_MODULE_AND_NAME = re.compile(r":[^\W\d]")  # not HOST:PORT


class Commands(typer.core.TyperGroup):
    """The commands below `words`, which follow `pinlater`."""

    below: Mapping[str, Leaf | Group] = {}
    words: tuple[str, ...] = ()
    default = ""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.below)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found = self.below.get(cmd_name)
        if found is None:
            return None
        words = (*self.words, cmd_name)
        return _group(words, found) if isinstance(found, Group) else _load(words, found)

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        if self.default and args and args[0] not in ctx.help_option_names and not self._is_answered(args):
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, *arguments = args
        if name not in self.below and not ctx.resilient_parsing:
            if (instead := INSTEAD.get(self._words_of(name))) is not None:
                _say_instead(self._words_of(name), instead, arguments)
            if near := self._near(name):
                ctx.fail(f"No such command {name!r}. Did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)

    def _is_answered(self, args: Sequence[str]) -> bool:
        """Returns whether these arguments belong to the group, and not to its default command: the first is a command or a spelling of
        one, or an option before one."""
        first, *more = args
        if first.startswith("-"):
            return any(arg in self.below for arg in more) and not any(map(_MODULE_AND_NAME.search, more))
        return first in self.below or self._words_of(first) in INSTEAD or (":" not in first and bool(self._near(first)))

    def _near(self, name: str) -> list[str]:
        return get_close_matches(name, self.below, n=1)

    def _words_of(self, name: str) -> str:
        return " ".join((*self.words, name))


class Root(Commands):
    """All commands."""

    below = COMMANDS


def _say_instead(words: str, instead: str, arguments: Sequence[str]) -> NoReturn:
    """Ends the command with an error that names the command to write, with these arguments unless
    one may be a password or can't be shown in one line."""
    while arguments and (further := INSTEAD.get(f"{instead} {arguments[0]}")) is not None:
        instead, arguments = further, arguments[1:]
    shown = [shlex.join(arguments)] if arguments else []
    if words == "hash-password" or holds_password(arguments) or not all(map(str.isprintable, arguments)):
        shown = ["..."] * bool(arguments)
    exits.fail(f"No such command {words!r}. Write: {' '.join(['pinlater', instead, *shown])}", exits.USAGE, whole=True)


def _group(words: tuple[str, ...], group: Group) -> Commands:
    found = Commands(
        name=words[-1], help=group.help, no_args_is_help=True, rich_markup_mode="rich", rich_help_panel=group.panel
    )
    found.subcommand_metavar = "COMMAND | MODULE:NAME" if group.default else "COMMAND"
    found.below, found.words, found.default = group.commands, words, group.default
    return found


def _load(words: tuple[str, ...], leaf: Leaf) -> Any:
    """Returns the command, or a substitute that reports what is missing."""
    module, _, name = leaf.function.partition(":")
    try:
        function = getattr(import_module(f"pinlater.cli.commands.{module}"), name)
    except ImportError as error:
        function = _missing(words, leaf, error)
    alone = typer.Typer(add_completion=False, rich_markup_mode="rich")
    settings = getattr(function, "context_settings", None)
    alone.command(words[-1], context_settings=settings)(with_options(function))
    command: Any = typer.main.get_command(alone)
    accept_queue_option(command)
    name_in_errors(command)
    command.help = _in_long_lines(command.help)
    command.short_help = command.help.partition("\n")[0].partition(". ")[0].removesuffix(".") + "."
    if any(param.name == "server" for param in command.params):
        command.params += token_options() if leaf.sends_token else []
        command.params += [] if leaf.own_tls else tls_options()
    command.callback = _guarded(words, leaf, command.callback)
    command.rich_help_panel = leaf.panel
    return command


def _in_long_lines(text: str | None) -> str | None:
    """Returns each paragraph of a help in one line: the parser's library would keep the line breaks of a docstring."""
    return text and "\n\n".join(" ".join(each.split()) for each in inspect.cleandoc(text).split("\n\n"))


def _guarded(words: tuple[str, ...], leaf: Leaf, command: Callable[..., Any]) -> Callable[..., Any]:
    """Reports a module that turns out to be missing while the command runs like one that is missing at the start."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except ImportError as error:
            _say_missing(words, leaf, error)

    return run


def _missing(words: tuple[str, ...], leaf: Leaf, error: ImportError) -> Callable[[], None]:
    def unavailable() -> None:
        _say_missing(words, leaf, error)

    unavailable.__doc__ = f"Not installed: needs the extra `{leaf.extra}`."
    unavailable.context_settings = {"ignore_unknown_options": True, "allow_extra_args": True}  # type: ignore[attr-defined]
    return unavailable


def _say_missing(words: tuple[str, ...], leaf: Leaf, error: ImportError) -> NoReturn:
    from pinlater.extras import install_line
    from pinlater.server.config.kinds import SHARDED

    exits.show_traceback(error)
    name, module = " ".join(words), error.name or ""
    if module.partition(".")[0] == "pinlater":
        exits.fail(f"`pinlater {name}` can't be loaded: {error} (`pinlater --traceback {name}` shows where)", exits.BUG)
    of_a_store = (store for store, kind in SHARDED.items() if module in kind.driver)
    extra = next(of_a_store, leaf.extra) if leaf.extra == "server" else leaf.extra
    needed = module if isinstance(error, ModuleNotFoundError) else f"more than is installed ({error})"
    exits.fail(f"`pinlater {name}` needs {needed}: {install_line(extra)}", exits.REFUSED)
