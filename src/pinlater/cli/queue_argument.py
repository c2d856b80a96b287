"""The common code of all commands with an argument QUEUE: the option `--queue` as an alternative, because people write either, and the
error for an argument that is not a queue's name.

Weakness: a queue that `--queue` names must not begin with a hyphen, which no queue's name does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from pinlater.cli.options import complete_queue
from pinlater.domain.descriptor import parse_descriptor
from pinlater.domain.errors import DescriptorInvalid
from pinlater.domain.queue import QUEUE_NAME_RULE

_OPTION = "_queue"


def _with_queue(
    _queue: Annotated[
        list[str] | None,
        typer.Option(
            "--queue",
            "-q",
            metavar="QUEUE",
            expose_value=False,
            autocompletion=complete_queue,
            help="The same as the argument QUEUE.",
        ),
    ] = None,
) -> None: ...


def accept_queue_option(command: Any) -> None:
    """Adds `--queue` to a command with an argument QUEUE or QUEUE..., and checks both. Does nothing to other commands."""
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    if not arguments or not (arguments[0].metavar or "").startswith("QUEUE"):
        return
    only = typer.Typer(add_completion=False)
    only.command()(_with_queue)
    command.params += [param for param in typer.main.get_command(only).params if param.name == _OPTION]
    parse = command.parse_args

    def parse_args(context: Any, args: list[str]) -> Any:
        given, _, _ = command.make_parser(context).parse_args(args=list(args))
        named: list[str] = list(given.get(_OPTION) or ())
        if not context.resilient_parsing:
            in_place = [given.get(argument.name) for argument in arguments]
            _check(context, [*named, *_texts(in_place[0])])
            places = sum(isinstance(text, str) for text in in_place)
            if (
                named
                and arguments[0].nargs == 1
                and not context.allow_extra_args
                and len(named) + places > len(arguments)
            ):
                context.fail("Name one queue, and once: as QUEUE or with --queue")
        return parse(context, [*named, *args])

    command.parse_args = parse_args


def _texts(value: object) -> Sequence[str]:
    """Returns the strings of an argument as the parser found it: one, several, or a mark for none."""
    if isinstance(value, str):
        return [value]
    return [text for text in value if isinstance(text, str)] if isinstance(value, list | tuple) else []


def _check(context: Any, names: Sequence[str]) -> None:
    """Ends the command if the name obviously means something else. The server checks the rest."""
    for name in names:
        if not name:
            raise typer.BadParameter(f"the name is empty; {QUEUE_NAME_RULE}", ctx=context, param_hint="QUEUE")
        if _names_job(name):
            raise typer.BadParameter(
                f"{name} names a job, not a queue: `job show`, `explain` and `run-now` take it as it is, "
                "`job retry` and `job delete` with --descriptor",
                ctx=context,
                param_hint="QUEUE",
            )


def _names_job(text: str) -> bool:
    try:
        parse_descriptor(text)
    except DescriptorInvalid:
        return False
    return True
