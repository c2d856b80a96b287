"""The users whose commands changed a file of tokens or shards: kept in a second file next to it, which servers read for the audit.

Each of its entries names the tokens or shards of one change, and has digests of the file before and after. It counts only while entries
without a gap lead to the file as it is: a change by hand breaks the chain, so that no earlier user is taken for its author.

Weakness: it says what the command said. A user who may write the files can write any name there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from pinlater.server.access.whole_files import others_may_write, replace_file

_SUFFIX = ".authors"
_CHANGES_MAX = 50
_BYTES_MAX = 1_000_000
_TEXT_MAX = 200
_LOOKS, _PAUSE_S = 3, 0.05


class FileAuthor(NamedTuple):
    """A user, in words that no token is called by, and the machine where the command ran."""

    user: str
    host: str


class _NotedChange(NamedTuple):
    names: Sequence[str]
    author: FileAuthor
    before: str
    after: str


def note_author(path: Path, names: Sequence[str], author: FileAuthor, before: bytes, after: bytes) -> None:
    """Notes that the author is about to replace the content of the file, and which tokens or shards change. To be called before that, so
    that a server which reads the new content finds the note. Raises OSError."""
    target = path.resolve()
    beside = _beside(target)
    changes = [*_read(beside), _NotedChange(names, author, _digest(before), _digest(after))]
    replace_file(beside, _text(changes[-_CHANGES_MAX:]), like=target)


def authors_of(path: Path | None) -> Mapping[str, FileAuthor]:
    """The user who last changed the token or shard of each name; empty if the file was changed by hand since. Blocks for a look at both,
    and some moments if they do not fit: one may be replaced just now."""
    if path is None:
        return {}
    target = path.resolve()
    for look in range(_LOOKS):
        if look:
            time.sleep(_PAUSE_S)
        try:
            content = _digest(target.read_bytes())
        except OSError:
            return {}
        changes = _read(_beside(target))
        if not changes:
            return {}
        if changes[-1].after == content:
            return _last_authors(changes)
    return {}


def _last_authors(changes: Sequence[_NotedChange]) -> dict[str, FileAuthor]:
    """Of the changes behind the last gap."""
    found: dict[str, FileAuthor] = {}
    needed = changes[-1].after
    for change in reversed(changes):
        if change.after != needed:
            break
        found = dict.fromkeys(change.names, change.author) | found
        needed = change.before
    return found


def _beside(target: Path) -> Path:
    return target.with_name(target.name + _SUFFIX)


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()


def _read(beside: Path) -> list[_NotedChange]:
    """The changes, the oldest first; none if the file is missing or broken, or if every user of the machine may write it."""
    try:
        with beside.open("rb") as file:
            if others_may_write(file.fileno()):
                return []
            document = json.loads(file.read(_BYTES_MAX))
        return [_change(entry) for entry in document["changes"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []


def _change(entry: Any) -> _NotedChange:
    names = [str(name)[:_TEXT_MAX] for name in entry["names"]]
    author = FileAuthor(str(entry["user"])[:_TEXT_MAX], str(entry["host"])[:_TEXT_MAX])
    return _NotedChange(names, author, str(entry["before"]), str(entry["after"]))


def _text(changes: Sequence[_NotedChange]) -> str:
    entries = [
        {"names": list(change.names), **change.author._asdict(), "before": change.before, "after": change.after}
        for change in changes
    ]
    return json.dumps({"changes": entries}, indent=2) + "\n"
