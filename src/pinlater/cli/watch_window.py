"""The output of --watch on a terminal: the first lines, as many as the window has, and how many more there are.

Of longer output only the last lines would stay visible, although its header and the most important lines come first.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from typing import TextIO

from rich.cells import cell_len

from pinlater.cli import notes, output, tables
from pinlater.domain.wording import counted

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class _Caught(io.StringIO):
    """Captures what is written to a stream. It is a terminal if that stream is one."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding


def wanted() -> bool:
    """Returns whether the output is for an operator at a terminal, who sees one window of it."""
    return output.on_terminal() and not notes.in_json()


def draw(show: Callable[[], None], below: str = "") -> None:
    """Shows in the window, at its present size, what `show` prints, with notes on the same terminal and the text `below` at the end."""
    printed, noted = _Caught(sys.stdout), _Caught(sys.stderr)
    with ExitStack() as caught:
        caught.enter_context(redirect_stdout(printed))
        if sys.stderr.isatty():
            caught.enter_context(redirect_stderr(noted))
        show()
    window = shutil.get_terminal_size()
    at_end = [*noted.getvalue().splitlines(), *(tables.wrap_line(below, window.columns) if below else ())]
    lines = fitted(printed.getvalue().splitlines(), at_end, window)
    output.clear_screen()
    output.print_lines(lines)
    sys.stdout.flush()


def fitted(lines: Sequence[str], at_end: Sequence[str], window: os.terminal_size) -> list[str]:
    """The first of the lines, at least one, and those `at_end`, so that all fit in the window above the cursor's line."""
    left = window.lines - 1 - _height(at_end, window)
    if len(lines) < 2 or _height(lines, window) <= left:
        return [*lines, *at_end]
    left -= _height([_more(len(lines))], window)
    shown = 1
    while _height(lines[: shown + 1], window) <= left:
        shown += 1
    return [*lines[:shown], tables.screen().dim(_more(len(lines) - shown)), *at_end]


def _more(number: int) -> str:
    return f"... {counted(number, 'more line')}; a larger window shows {'it' if number == 1 else 'them'}"


def _height(lines: Sequence[str], window: os.terminal_size) -> int:
    """Returns how many rows of the window they take: a longer line than the window continues in the next row."""
    return sum(max(1, -(-cell_len(_COLOUR.sub("", line)) // window.columns)) for line in lines)
