"""Prints errors of the command line in one line and in plain words."""

from __future__ import annotations

import re
from typing import Any

from pinlater.cli import exits

_QUOTED_OPTION = re.compile(r"'(-[^' ]+)'(?: / '-[^' ]+')*")
_NO_NUMBER = re.compile(r"is not a valid (int|integer|float)(?: range)?\.?$")
_RANGE = re.compile(r"is not in the range (?:(\S+)<=)?x(?:<=(\S+?)|>=(\S+?))?\.?$")


def name_in_errors(command: Any) -> None:
    """Errors of the command's parser name the command; that of an option without its value does not by itself."""
    parse = command.parse_args

    def parse_args(context: Any, args: list[str]) -> Any:
        try:
            return parse(context, args)
        except Exception as error:
            if hasattr(error, "format_message") and getattr(error, "ctx", None) is None:
                error.ctx = context  # type: ignore[attr-defined]
            raise

    command.parse_args = parse_args


def say_usage(error: Any) -> int:
    """Prints the error in one line, or the help if the command line is empty. Returns the exit code. Typer's versions differ in the
    class.
    """
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
    else:
        where = error.ctx.command_path if getattr(error, "ctx", None) else "pinlater"
        told = (
            _option_of_setting(error)
            or _option_before_its_command(error)
            or _server_of_offline_command(error)
            or _in_words(error.format_message())
        )
        exits.write_error(f"{told} (see: {where} --help)", exits.USAGE)
    return int(error.exit_code)


def _in_words(message: str) -> str:
    """The message without the jargon of parsers: it states the range of a number, and an option by one name without quotes."""
    text = " ".join(message.split()).replace(": Value error, ", ": ")  # the checker's own words
    text = _QUOTED_OPTION.sub(r"\1", text)
    text = _NO_NUMBER.sub(lambda found: f"is not a {'number' if found[1] == 'float' else 'whole number'}", text)
    return _RANGE.sub(_range_in_words, text)


def _range_in_words(found: re.Match[str]) -> str:
    least, most = found[1] or found[3], found[2]
    if least is None:
        return f"is too large: at most {most}"
    return f"is too small: at least {least}" if most is None else f"is not from {least} to {most}"


def _option_before_its_command(error: Any) -> str:
    """The message for an unknown option before the name of a command; '' for other errors."""
    option, context = getattr(error, "option_name", ""), getattr(error, "ctx", None)
    if not option or context is None or not hasattr(context.command, "commands"):
        return ""
    return f"No such option: {option}. Write the options of a command behind it: {context.command_path} COMMAND {option} ..."


def _option_of_setting(error: Any) -> str:
    """The message for an unknown option that is the name of a setting, of a command that takes settings; '' for other errors."""
    option, context = getattr(error, "option_name", ""), getattr(error, "ctx", None)
    if not option or context is None or not any("--set" in param.opts for param in context.command.params):
        return ""
    from pinlater.server.config.schema import key_of_option

    key = key_of_option(option)
    return "" if key is None else f"No such option: {option}. Write --set {key.path}=VALUE"


def _server_of_offline_command(error: Any) -> str:
    """The message for the option --server of a command that reads the store instead; '' for other errors."""
    option, context = getattr(error, "option_name", ""), getattr(error, "ctx", None)
    if option != "--server" or context is None or not any("--store" in param.opts for param in context.command.params):
        return ""
    return f"No such option: {option}. The command asks the store itself, and no server"
