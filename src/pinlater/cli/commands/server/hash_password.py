"""`pinlater server hash-password`: makes the hash that the setting `admin_password_hash` holds.

The password never comes as an argument: arguments are in the shell's history and in the process list that every user sees.
"""

from __future__ import annotations

import sys

import typer

from pinlater.cli import exits
from pinlater.cli.call import CommandReply


def hash_password(reply: CommandReply, context: typer.Context) -> None:
    """Hash an admin password. The command asks for it twice on a terminal, or reads it as one line from standard input.

    Example: pinlater server hash-password
    """
    from pinlater.domain.passwords import hash_password as make_hash

    if context.args:  # not repeated: it may be the password
        context.fail(
            "A password is no argument, since every user of the machine can see arguments: type it when asked, or pipe it in"
        )
    try:
        password = _asked() if _on_terminal() else _read(sys.stdin.buffer.read(65_536))
        made = make_hash(password)
    except ValueError as error:
        exits.fail(f"not hashed: {error}", exits.USAGE)
    reply.answer({"admin_password_hash": made}, [made])


hash_password.context_settings = {"allow_extra_args": True}  # type: ignore[attr-defined]  # to say where a password goes


def _on_terminal() -> bool:
    return sys.stdin.isatty()


def _asked() -> str:
    """Asks twice, without an echo. The prompts go to standard error so that the hash can be piped."""
    password: str = typer.prompt("Admin password", hide_input=True, confirmation_prompt="Once more", err=True)
    return password


def _read(content: bytes) -> str:
    """The one line in `content`. Raises `ValueError` for more lines, or text that isn't UTF-8."""
    try:
        password = content.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise ValueError("the password is not text in UTF-8") from None
    if not password:
        raise ValueError("standard input is empty; run the command on a terminal, or pipe the password in")
    if "\n" in password or "\r" in password:
        raise ValueError("standard input holds more than one line")
    return password
