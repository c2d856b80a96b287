"""The content of one source of settings, before anything is typed or layered."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


class Origin(NamedTuple):
    """The source of a value. `source`: default, file, environment or flag; `place`: file and line, variable, flag, or empty."""

    source: str
    place: str = ""

    def __str__(self) -> str:
        return f"{self.source} {self.place}".rstrip()


class Given(NamedTuple):
    """One value as a source holds it. A relative path in it counts from `base` (None: the working directory).

    `fault` makes it a problem, but only if no stronger source sets the key.
    """

    path: str
    raw: object
    origin: Origin
    base: Path | None = None
    fault: str = ""


class SettingsSource(NamedTuple):
    """All values of one source, with its problems."""

    given: Mapping[str, Given]
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
