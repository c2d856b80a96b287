"""The token that a client sends with its calls: a text, or a file that is read again when it changes, so that a token can be replaced
while the client runs."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from itertools import repeat
from os import PathLike
from typing import Self

_log = logging.getLogger("pinlater.client")

TOKEN_VARIABLE, TOKEN_FILE_VARIABLE = "PINLATER_TOKEN", "PINLATER_TOKEN_FILE"
_LOOK_S = 1.0
_BYTES_MAX = 4096

# The token to send now; '' for none. From any thread.
TokenSource = Callable[[], str]


class TokenForCaller(str):
    """A token with the caller that its holder makes calls for. `user`: servers believe the name if the token may speak for others.
    `address`: the audit shows it before that of this process. `through`: what has named either; '' says nothing of it."""

    __slots__ = ("address", "through", "user")
    user: str
    address: str
    through: str

    def __new__(cls, token: str, user: str, address: str, through: str) -> Self:
        made = super().__new__(cls, token)
        made.user, made.address, made.through = user, address, through
        return made

    def source_of(self, source: str) -> str:
        """A source, with what has named the caller."""
        return f"{source} through {self.through}" if self.through else source


def token_source(given: str | PathLike[str] | None, monotonic: Callable[[], float]) -> TokenSource:
    """A text is the token itself, '' none, a path its file; None takes PINLATER_TOKEN or PINLATER_TOKEN_FILE.

    Raises TypeError, and ValueError for a token that is no printable ASCII, or a file that can't be read.
    """
    if given is None:
        given = os.environ.get(TOKEN_VARIABLE) or _file_by_default()
    if isinstance(given, str):
        token = checked(given.strip(), "the token")
        return repeat(token).__next__
    if not isinstance(given, PathLike):
        raise TypeError(f"token must be a text or a path, not {type(given).__name__}")
    return TokenFile(given, monotonic)


def _file_by_default() -> PathLike[str] | str:
    from pathlib import Path

    path = os.environ.get(TOKEN_FILE_VARIABLE)
    return Path(path) if path else ""


def checked(token: str, what: str) -> str:
    """The token. Raises ValueError, without showing it, if it can't be one."""
    if len(token) > _BYTES_MAX or not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError(
            f"{what} is no token: one line of printable ASCII is expected, as `pinlater token create` prints it"
        )
    return token


class TokenFile:
    """The token in a file, looked at again at most once a second. While the file can't be read the last token stays."""

    def __init__(self, path: PathLike[str], monotonic: Callable[[], float]) -> None:
        """Raises ValueError."""
        self._path = path
        self._monotonic = monotonic
        self._failed = False
        self._token = self._read()
        self._next_look_s = monotonic() + _LOOK_S

    def __call__(self) -> str:
        now_s = self._monotonic()
        if now_s >= self._next_look_s:
            self._next_look_s = now_s + _LOOK_S
            self._look()
        return self._token

    def _look(self) -> None:
        try:
            self._token = self._read()
            self._failed = False
        except ValueError as error:
            if not self._failed:
                _log.warning("%s; the last token stays", error)
            self._failed = True

    def _read(self) -> str:
        try:
            with open(self._path, "rb") as file:  # noqa: PTH123 - as for those of TLS, `pathlib` is not imported
                content = file.read(_BYTES_MAX + 1)
        except OSError as error:
            raise ValueError(f"token file {self._path} can't be read: {error.strerror or error}") from error
        token = checked(content.decode("latin-1").strip(), f"token file {self._path}")
        if not token:
            raise ValueError(f"token file {self._path} is empty")
        return token
