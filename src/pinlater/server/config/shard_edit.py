"""Changes one entry of a shard file and keeps every other character; the change is atomic, so that no reader sees a part of it.

The text is changed where the entry is, not regenerated from parsed values: layout, order and what other programs keep in it stay. A MySQL
file's entries are the members of its object; a Redis file's are the elements of its list "shards", by their names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pinlater.server.access.whole_files import replace_file

_SPACE = " \t\r\n"
_LIST, _CONFIG = "shards", "shardConfig"


class JsonMember(NamedTuple):
    """A member of an object in the text: its name begins at `start`, its value spans `value` to `end`. The name is empty for an
    element of a list."""

    name: str
    start: int
    value: int
    end: int


def with_flag(text: str, key: str, name: str, value: bool) -> str:
    """Returns `text` with that flag of the entry set. Raises ValueError if there is no such entry."""
    siblings, place = _entries(text, key)
    entry = siblings[place]
    wanted = _understood(text)
    if _is_list(wanted):
        entry = _member(text, entry.value, _CONFIG)
        wanted[_LIST][place][_CONFIG][name] = value
    else:
        wanted[key][name] = value
    word = json.dumps(value)
    inner = _members(text, entry.value)
    flag = next((member for member in inner if member.name == name), None)
    if flag is not None:
        changed = text[: flag.value] + word + text[flag.end :]
    elif inner:
        last = inner[-1]
        before = inner[-2].end if len(inner) > 1 else entry.value
        gap = text[before : last.start].lstrip(",{ \t") if "\n" in text[before : last.start] else " "
        changed = f'{text[: last.end]},{gap}"{name}": {word}{text[last.end :]}'
    else:
        changed = f'{text[: entry.value]}{{"{name}": {word}}}{text[entry.end :]}'
    return _checked(changed, wanted)


def without_entry(text: str, key: str) -> str:
    """Returns `text` without the entry. Raises ValueError if there is no such entry."""
    siblings, place = _entries(text, key)
    entry = siblings[place]
    if place:
        changed = text[: siblings[place - 1].end] + text[entry.end :]
    elif len(siblings) > 1:
        changed = text[: entry.start] + text[siblings[1].start :]
    else:
        changed = text[: entry.start] + text[entry.end :]
    wanted = _understood(text)
    if _is_list(wanted):
        del wanted[_LIST][place]
    else:
        del wanted[key]
    return _checked(changed, wanted)


def replace_text(path: Path, before: str, after: str) -> None:
    """Replaces the file's content by `after` (`replace_file`). Raises OSError, also if the file is missing, and ValueError if another
    program has changed it since `before` was read.
    """
    target = path.resolve(strict=True)

    def check() -> None:
        if read_text(target) != before:
            raise ValueError(f"{path} was changed by another program in the meantime; look at it, and try again")

    replace_file(target, after, check=check)


def read_text(path: Path) -> str:
    """The file's text with its original line ends. Raises OSError, ValueError if it isn't UTF-8."""
    return path.read_bytes().decode()


# --- positions in the text ------------------------------------------------------------------------------------------------


def _entries(text: str, key: str) -> tuple[Sequence[JsonMember], int]:
    """Returns all entries, and which of them is called `key`."""
    document = _understood(text)
    if _is_list(document):
        siblings = _members(text, _member(text, _begin(text), _LIST).value)
        names = [entry.get("name") if isinstance(entry, dict) else None for entry in document[_LIST]]
    else:
        siblings = _members(text, _begin(text))
        names = [member.name for member in siblings]
    if key not in names:
        raise ValueError(f"the shard file has no entry {key!r}")
    return siblings, names.index(key)


def _is_list(document: Mapping[str, Any]) -> bool:
    return isinstance(document.get(_LIST), list)


def _member(text: str, brace: int, name: str) -> JsonMember:
    return next(member for member in _members(text, brace) if member.name == name)


def _members(text: str, begin: int) -> list[JsonMember]:
    """Returns the members of the object or list that begins there, in order. The text has been parsed before, so it is JSON."""
    decoder = json.JSONDecoder()
    found: list[JsonMember] = []
    at = _behind_space(text, begin + 1)
    while text[at] not in "}]":
        if text[at] == ",":
            at = _behind_space(text, at + 1)
        name, start = "", at
        if text[begin] == "{":
            name, colon = decoder.raw_decode(text, at)
            at = _behind_space(text, _behind_space(text, colon) + 1)
        _, end = decoder.raw_decode(text, at)
        found.append(JsonMember(name, start, at, end))
        at = _behind_space(text, end)
    return found


def _begin(text: str) -> int:
    return text.index("{")  # a byte order mark may precede it


def _behind_space(text: str, at: int) -> int:
    while text[at] in _SPACE:
        at += 1
    return at


def _understood(text: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(text.removeprefix("\ufeff"))
    return document


def _checked(text: str, wanted: Mapping[str, Any]) -> str:
    if _understood(text) != wanted:
        raise ValueError(
            "the shard file could not be changed without changing more than the one entry; change it by hand"
        )
    return text
