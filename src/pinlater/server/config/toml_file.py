"""A settings file in TOML: top-level keys, and one table for each part of the server.

Weakness: the parser doesn't report where a value was, so lines are found by a second pass over the text, which multi-line strings could
mislead; then a message names a wrong line, never a wrong value.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from pinlater.server.config.errors import did_you_mean
from pinlater.server.config.schema import keys, nearest_key, tables
from pinlater.server.config.sources import Given, Origin, SettingsSource

_TABLE = re.compile(r"\s*\[\s*([A-Za-z0-9_.\s\"'-]+?)\s*\]")
_NUMBER = re.compile(r"\s*[+-]?[0-9][0-9_.]*\s*", re.ASCII)
_ASSIGNMENT = re.compile(r"\s*([A-Za-z0-9_.\"'-]+)\s*=")


def read_toml(path: Path, text: str) -> SettingsSource:
    """Returns the settings of the file. Unknown keys and broken syntax are problems."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        return SettingsSource({}, (f"{path}: not valid TOML: {error}",))
    except RecursionError:
        return SettingsSource({}, (f"{path}: not valid TOML: nested too deeply",))
    lines = _lines(text)
    given: dict[str, Given] = {}
    problems: list[str] = []
    for name, raw in _flat(document):
        place = f"{path}:{lines[name]}" if name in lines else str(path)
        problem = _problem(name, raw)
        if problem:
            problems.append(f"{place}: {problem}")
        elif raw != "":
            given[name] = Given(name, raw, Origin("file", f"{place}: {name}"), path.parent)
    return SettingsSource(given, tuple(problems))


def _flat(document: Mapping[str, object]) -> list[tuple[str, object]]:
    """Keys by their path; an unknown table is kept as a whole, so that it is reported once."""
    found: list[tuple[str, object]] = []
    for name, value in document.items():
        if isinstance(value, dict) and name in tables():
            found.extend((f"{name}.{inner}", raw) for inner, raw in value.items())
        else:
            found.append((name, value))
    return found


def _problem(name: str, raw: object) -> str | None:
    """A number in quotes could be milliseconds, as in the key's name, or seconds, as in durations elsewhere: it is refused."""
    if name in tables():
        return f"{name} is a table: write [{name}], and its keys below it"
    if isinstance(raw, dict) and name in keys():
        alike = [f"{name}_{inner}" for inner in raw if f"{name}_{inner}" in keys()]
        meant = f" (did you mean {alike[0]}?)" if alike else ""
        return f"{name} is a key, not a table: write {name} = …{meant}"
    if isinstance(raw, dict) and "." not in name and name not in keys():
        return f"unknown table [{name}]{did_you_mean(name, tables())}"
    if name not in keys():
        return f"unknown key {name}{nearest_key(name)}"
    if keys()[name].unit == "ms" and isinstance(raw, str) and _NUMBER.fullmatch(raw):
        return f"{name}: {raw!r} has no unit: write milliseconds without quotes, or a duration such as '90s'"
    return None


def _lines(text: str) -> dict[str, int]:
    """The line of each key, counted from 1."""
    found: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _TABLE.match(line):
            table = _bare(header[1])
            found.setdefault(table, number)
        elif assignment := _ASSIGNMENT.match(line):
            name = _bare(assignment[1])
            found.setdefault(f"{table}.{name}" if table else name, number)
    return found


def _bare(name: str) -> str:
    return re.sub(r"[\s\"']", "", name)
