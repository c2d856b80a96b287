"""Files that are reread while the server runs: queues' rate limits, the set of live servers, tokens; in `shard_file` the shards.

The maintenance runner calls `refresh` every 10 s, in a thread if the file could be slow. A broken file never changes anything:
it is logged once for each content, and the last good values stay. The file is read each time and compared by content; its time
stamp alone would miss an edit within one tick of the file system's clock, and reload a file that was only touched.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

from pinlater.server.access.tokens import Token, parse_tokens
from pinlater.server.access.whole_files import others_may_write

log = logging.getLogger(__name__)

FILE_BYTES_MAX = 16 * 2**20
T = TypeVar("T")


class FileBroken(Exception):
    """A file that can't be read or understood; the text names it and the reason."""


class WatchedFile(Generic[T]):
    """A file's last good value, and what is wrong with it now."""

    def __init__(self, path: Path, parse: Callable[[bytes], T], *, private: bool = False) -> None:
        """`private`: a file that every user of the machine may write is broken."""
        self.path = path
        self._parse = parse
        self._private = private
        self._content = read_bytes(path, private=private)
        self.value = self._understood(self._content)
        self.last_error: str | None = None

    def refresh(self) -> bool:
        """Returns whether the value changed."""
        try:
            content = read_bytes(self.path, private=self._private)
            if content == self._content:
                self._valid_again()
                return False
            value = self._understood(content)
        except FileBroken as error:
            self._broken(str(error))
            return False
        changed = value != self.value
        self._content, self.value = content, value
        self._valid_again()
        if changed:
            log.info("%s was read again", self.path)
        return changed

    def _understood(self, content: bytes) -> T:
        try:
            return self._parse(content)
        except (ValueError, RecursionError) as error:
            raise FileBroken(f"{self.path} is broken: {error}") from error

    def _broken(self, error: str) -> None:
        if error != self.last_error:
            log.error("%s; the last good values stay", error)
        self.last_error = error

    def _valid_again(self) -> None:
        if self.last_error is not None:
            log.info("%s is good again", self.path)
        self.last_error = None


def rate_limits_in(path: Path) -> WatchedFile[Mapping[str, float]]:
    """Jobs a second by queue. A queue that isn't named has no limit; 0 stops its dequeues. Raises `FileBroken`."""
    return WatchedFile(path, _parse_rate_limits)


def server_count_in(path: Path) -> WatchedFile[int]:
    """Returns how many servers share the queues' limits, at least 1. Raises `FileBroken`."""
    return WatchedFile(path, _ServerCount(path))


def tokens_in(path: Path) -> WatchedFile[tuple[Token, ...]]:
    """The tokens of callers. Raises `FileBroken`."""
    return WatchedFile(path, parse_tokens, private=True)


def read_bytes(path: Path, *, private: bool = False) -> bytes:
    """The file as it is now. Raises `FileBroken`, also if the file is to be `private` and every user of the machine may write it."""
    try:
        with path.open("rb") as file:
            if private and others_may_write(file.fileno()):
                raise FileBroken(f"{path} can be changed by every user of this machine (chmod o-w)")
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise FileBroken(f"{path} can't be read: {error.strerror or error}") from error
    if len(content) > FILE_BYTES_MAX:
        raise FileBroken(f"{path} is longer than {FILE_BYTES_MAX:,} bytes")
    return content


class _ServerCount:
    """Counts the distinct lines that are not empty.

    An empty file is ignored, since a program that writes it may empty it first; at the start it counts as one server.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last: int | None = None

    def __call__(self, content: bytes) -> int:
        try:
            lines = content.decode().splitlines()
        except UnicodeDecodeError:
            raise ValueError("not text in UTF-8") from None
        found = len({line.strip() for line in lines} - {""})
        if not found and self._last is not None:
            log.warning("%s is empty: still dividing limits by %d", self._path, self._last)
        self._last = found or self._last or 1
        return self._last


def _parse_rate_limits(content: bytes) -> Mapping[str, float]:
    """Parses `{"queues": [{"name": "q", "queueConfig": {"maxJobsPerSecond": 100}}]}`. The last entry of a queue counts."""
    document = json.loads(content, parse_constant=_no_number)
    entries = document.get("queues") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise ValueError('the list "queues" is missing')  # noqa: TRY004 (what is wrong is the file's content)
    return dict(_parse_entry(index, entry) for index, entry in enumerate(entries))


def _parse_entry(index: int, entry: Any) -> tuple[str, float]:
    name = entry.get("name") if isinstance(entry, dict) else None
    if not isinstance(name, str) or not name:
        raise ValueError(f'queues[{index}] has no "name"')
    config = entry.get("queueConfig")
    if not isinstance(config, dict) or "maxJobsPerSecond" not in config:
        raise ValueError(f'queue {name!r} has no "queueConfig" with "maxJobsPerSecond"')
    rate = config["maxJobsPerSecond"]
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= 1e15 or math.isnan(rate):
        raise ValueError(f"queue {name!r}: maxJobsPerSecond is {rate!r}, not a number of at least 0")
    return name, float(rate)


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number")
