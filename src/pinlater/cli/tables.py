"""Tables and blocks that fit the terminal: no word and no descriptor is folded, and nothing is left out.

A table that is too wide wraps its longest text, or continues below, with its first column again, or becomes one block a row. The table of
queues writes a long name on a line of its own. A text wraps between words. A word that is longer than the terminal has a line of its own,
so that it can be copied whole; no other line is too long.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rich.cells import cell_len

_GAP = "  "
_BOLD, _DIM, _PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[0m"
_TEXT_COLUMNS_MIN = 24
_EMPTY = ("", "-")
_PARTS_MAX = 2  # of a table of queues that continues below
_NOTHING = (*_EMPTY, "0", "0.0", "no")
NONE = "none"
"""The text that a terminal shows instead of a table without rows, unless the command gives another one."""


class Screen(NamedTuple):
    """The destination of the output. `columns` is None if it is not a terminal, so that programs may read it."""

    columns: int | None = None
    colour: bool = False

    def bold(self, text: str) -> str:
        return f"{_BOLD}{text}{_PLAIN}" if self.colour and text else text

    def dim(self, text: str) -> str:
        return f"{_DIM}{text}{_PLAIN}" if self.colour and text else text


def screen() -> Screen:
    """Returns standard output as it is now. NO_COLOR and TERM=dumb turn colours off."""
    if not sys.stdout.isatty():
        return Screen()
    colour = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return Screen(shutil.get_terminal_size().columns, colour)


def error_columns() -> int | None:
    """The width of standard error, or None if it is not a terminal."""
    if not sys.stderr.isatty():
        return None
    try:
        return int(os.environ.get("COLUMNS", "")) or None
    except ValueError:
        return os.get_terminal_size(sys.stderr.fileno()).columns or None


def table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], screen: Screen, *, without_rows: str = NONE
) -> list[str]:
    """The lines of a table. Without a terminal, cells with tabs between. `without_rows`: what a terminal shows if there are none.

    If it is too wide, its widest column wraps; or it continues below; or, if a word needs more than that, each row is a block.
    """
    if screen.columns is None:
        return _with_tabs(columns, rows)
    if not rows:
        return wrap(without_rows, screen.columns)
    widths = _widths(columns, rows)
    wrapped = _with_wrapped_column(widths, columns, rows, screen.columns)
    if wrapped is not None:
        return _columns(columns, wrapped, screen)
    parts = list(_parts(widths, screen.columns))
    if not all(_fits([widths[each] for each in part], screen.columns) for part in parts):
        return _blocks(columns, rows, screen, head=f"{columns[0]} ")
    lines: list[str] = []
    for number, part in enumerate(parts):
        chosen = [[row[column] for column in part] for row in rows]
        lines += [""] * bool(number)
        lines += _columns([columns[column] for column in part], chosen, screen)
    return lines


def blocks_or_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    screen: Screen,
    head: str = "",
    *,
    without_rows: str = NONE,
) -> list[str]:
    """Returns a table if it fits, otherwise a block for each row, headed by `head` and its first cell. On a terminal, leaves out columns
    that are empty in all rows.
    """
    if screen.columns is None or not rows:
        return table(columns, rows, screen, without_rows=without_rows)
    said = [column for column in range(len(columns)) if not column or any(row[column] not in _EMPTY for row in rows)]
    columns, rows = [columns[column] for column in said], [[row[column] for column in said] for row in rows]
    if _fits(_widths(columns, rows), screen.columns):
        return table(columns, rows, screen)
    return _blocks(columns, rows, screen, head)


def narrow_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    screen: Screen,
    *,
    shorter: Mapping[str, str],
    without_rows: str = NONE,
) -> list[str]:
    """Returns a table as `table` does, but one that is too wide gets the `shorter` names, and then leaves out columns that hold only
    zeros, `no` and `-`, the last ones first, if it fits so. If not, the longest names go on lines of their own, as few as possible; the
    last resort is a block for each row.
    """
    if screen.columns is None or not rows or _fits(_widths(columns, rows), screen.columns):
        return table(columns, rows, screen, without_rows=without_rows)
    short_columns = [shorter.get(name, name) for name in columns]
    for shown in _with_fewer_names(rows):
        if _fits(_widths(columns, shown), screen.columns):
            return _with_long_names(columns, rows, screen, screen.columns)
        if kept := _columns_that_fit(short_columns, shown, screen.columns):
            return _with_long_names(*_only(kept, short_columns, rows), screen, screen.columns)
    columns = short_columns
    if len(list(_parts(_widths(columns, rows), screen.columns))) <= _PARTS_MAX:
        return table(columns, rows, screen)
    return blocks_or_table(columns, rows, screen)


def _with_fewer_names(rows: Sequence[Sequence[str]]) -> Iterator[list[Sequence[str]]]:
    """Yields the rows with all their first cells, then without the longest ones, and so on until no first cell is left."""
    for longest in (*sorted({cell_len(row[0]) for row in rows}, reverse=True), 0):
        yield [row if cell_len(row[0]) <= longest else ("", *row[1:]) for row in rows]


def _only(
    kept: Sequence[int], columns: Sequence[str], rows: Sequence[Sequence[str]]
) -> tuple[list[str], list[list[str]]]:
    return [columns[each] for each in kept], [[row[each] for each in kept] for row in rows]


def _with_long_names(
    columns: Sequence[str], rows: Sequence[Sequence[str]], screen: Screen, screen_columns: int
) -> list[str]:
    """A table whose other columns fit. A first cell that does not fit beside them goes on the line before."""
    others = _widths(columns, rows)[1:]
    free = screen_columns - sum(others) - len(_GAP) * len(others)
    is_long = [cell_len(row[0]) > free for row in rows]
    shown = [("", *row[1:]) if long else row for row, long in zip(rows, is_long, strict=True)]
    head, *lines = _columns(columns, shown, screen)
    named = [head]
    for row, long, line in zip(rows, is_long, lines, strict=True):
        named += [*wrap(row[0], screen_columns), line] if long else [line]
    return named


def _columns_that_fit(
    columns: Sequence[str], rows: Sequence[Sequence[str]], screen_columns: int
) -> Sequence[int] | None:
    """Returns the columns, leaving out as few empty ones at the end as possible, or None if even that is too wide."""
    widths = _widths(columns, rows)
    kept = list(range(len(columns)))
    silent = [column for column in kept[1:] if all(row[column] in _NOTHING for row in rows)]
    while not _fits([widths[column] for column in kept], screen_columns):
        if not silent:
            return None
        kept.remove(silent.pop())
    return kept


def fields(named: Sequence[tuple[str, str]], screen: Screen, indent: str = "") -> list[str]:
    """A line for each name and value, more if a value wraps. Without a terminal, name and value with a tab between."""
    if screen.columns is None:
        return _with_tabs(("field", "value"), named)
    width = max((len(name) for name, _ in named), default=0)
    return [line for name, value in named for line in _field(name.ljust(width), value, screen.columns, screen, indent)]


def _field(padded: str, value: str, columns: int, screen: Screen, indent: str) -> list[str]:
    """The value beside its name; below it if a word is too long for that."""
    name = screen.dim(padded.rstrip())
    left = len(indent) + len(padded) + len(_GAP)
    if _longest_word(value) > columns - left:
        return [indent + name, *wrap_line(indent + _GAP + value, columns)]
    first, *more = wrap(value, columns - left)
    blanks = " " * (len(padded) - len(padded.rstrip()))
    return [f"{indent}{name}{blanks}{_GAP}{first}".rstrip(), *(" " * left + line for line in more)]


def wrap(text: str, columns: int) -> list[str]:
    """Lines of at most that many columns, broken at blanks only; at least one."""
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if not lines[-1] or cell_len(longer) <= columns:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def wrap_line(line: str, columns: int | None) -> list[str]:
    """The line in as many as it takes, each with its indentation if it fits so; without a terminal unchanged."""
    if columns is None:
        return [line]
    text = line.lstrip(" ")
    indent = line[: min(len(line) - len(text), max(0, columns - _TEXT_COLUMNS_MIN))]
    parts = wrap(text, columns - len(indent))
    return [indent + part if len(indent) + cell_len(part) <= columns else part for part in parts]


def _with_tabs(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return ["\t".join(row) for row in (columns, *rows)]


def _widths(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(cell_len, cells)) for cells in zip(columns, *rows, strict=True)]


def _fits(widths: Sequence[int], columns: int) -> bool:
    return sum(widths) + len(_GAP) * (len(widths) - 1) <= columns


def _longest_word(text: str) -> int:
    return max(map(cell_len, text.split(" ")))


def _with_wrapped_column(
    widths: Sequence[int], columns: Sequence[str], rows: Sequence[Sequence[str]], screen_columns: int
) -> list[list[str]] | None:
    """Returns rows some of which continue in the next, so that a wide table fits, or None if it fits anyway or can't be made to fit."""
    if _fits(widths, screen_columns):
        return None
    widest = max(range(len(widths)), key=widths.__getitem__)
    wrapped_columns = screen_columns - (sum(widths) - widths[widest]) - len(_GAP) * (len(widths) - 1)
    words = max(_longest_word(row[widest]) for row in rows)
    if wrapped_columns < max(words, cell_len(columns[widest]), _TEXT_COLUMNS_MIN):
        return None
    wrapped: list[list[str]] = []
    for row in rows:
        first, *more = wrap(row[widest], wrapped_columns)
        wrapped.append([*row[:widest], first, *row[widest + 1 :]])
        wrapped += [["" if each != widest else line for each in range(len(row))] for line in more]
    return wrapped


def _blocks(columns: Sequence[str], rows: Sequence[Sequence[str]], screen: Screen, head: str) -> list[str]:
    """Returns each row as a block below `head` and its first cell, without empty cells."""
    lines: list[str] = []
    for row in rows:
        lines += [""] * bool(lines)
        lines += [screen.bold(part) for part in wrap_line(head + row[0], screen.columns)]
        named = [pair for pair in zip(columns[1:], row[1:], strict=True) if pair[1] not in _EMPTY]
        lines += fields(named, screen, indent=_GAP)
    return lines


def _parts(widths: Sequence[int], columns: int) -> Iterator[list[int]]:
    """Returns which columns go side by side: as many as fit, with the first one in each part."""
    part = [0]
    for column in range(1, len(widths)):
        if len(part) > 1 and not _fits([widths[each] for each in (*part, column)], columns):
            yield part
            part = [0]
        part.append(column)
    yield part


def _columns(names: Sequence[str], rows: Sequence[Sequence[str]], screen: Screen) -> list[str]:
    widths = _widths(names, rows)
    right = [_is_number(cells) for cells in zip(*rows, strict=True)] if rows else [False] * len(names)
    lines = [_line(names, widths, right)]
    return [screen.bold(lines[0]), *(_line(row, widths, right) for row in rows)]


def _is_number(cells: Sequence[str]) -> bool:
    return all(cell in _EMPTY or cell.replace(".", "", 1).replace(",", "").isdigit() for cell in cells)


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = []
    for cell, width, at_right in zip(cells, widths, right, strict=True):
        blanks = " " * (width - cell_len(cell))
        padded.append(blanks + cell if at_right else cell + blanks)
    return _GAP.join(padded).rstrip()
