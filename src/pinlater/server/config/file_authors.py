"""The users whose commands changed a file of tokens or shards: kept in a second file next to it, which servers read when they apply the
file.

Each of its entries names the tokens or shards of one change, and has digests of the file before and after. It counts only while entries
without a gap lead to the file as it is: a change by hand breaks the chain, so that no earlier user is taken for its author.

Weakness: it records what the command reported. A user who may write the files can write any name there.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec

from pinlater.server.access.whole_files import others_may_write, replace_file

_SUFFIX = ".authors"
_CHANGES_MAX = 50
_BYTES_MAX = 1_000_000
_TEXT_MAX = 200
_LOOKS, _PAUSE_S = 3, 0.05


class FileAuthor(NamedTuple):
    """A user, in a form that no token's name can have, and the machine where the command ran."""

    user: str
    host: str


class _NotedChange(msgspec.Struct):
    names: Sequence[str]
    user: str
    host: str
    before: str
    after: str


class _Notes(msgspec.Struct):
    changes: list[_NotedChange]


def note_author(path: Path, names: Sequence[str], author: FileAuthor, before: bytes, after: bytes) -> None:
    """Notes that the author is about to replace the content of the file, and which tokens or shards change. Call it first, so that a
    server which reads the new content finds the note. Raises OSError.
    """
    target = path.resolve()
    beside = _beside(target)
    changes = [*_read(beside), _NotedChange(names, *author, _digest(before), _digest(after))]
    content = msgspec.json.encode(_Notes(changes[-_CHANGES_MAX:]))
    replace_file(beside, msgspec.json.format(content, indent=2).decode() + "\n", like=target)


def authors_of(path: Path | None) -> Mapping[str, FileAuthor]:
    """The user who last changed the token or shard of each name; empty if the file was changed by hand since. Blocks while it reads both
    files, and for a moment longer if they do not match: one may be about to be replaced."""
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
    """Returns the authors of the changes after the last gap."""
    found: dict[str, FileAuthor] = {}
    needed = changes[-1].after
    for change in reversed(changes):
        if change.after != needed:
            break
        author = FileAuthor(change.user[:_TEXT_MAX], change.host[:_TEXT_MAX])
        found = dict.fromkeys(change.names, author) | found
        needed = change.before
    return found


def _beside(target: Path) -> Path:
    return target.with_name(target.name + _SUFFIX)


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()


def _read(beside: Path) -> list[_NotedChange]:
    """Returns the changes, the oldest first; none if the file is missing or broken, or if every user of the machine may write it."""
    try:
        with beside.open("rb") as file:
            if others_may_write(file.fileno()):
                return []
            return msgspec.json.decode(file.read(_BYTES_MAX), type=_Notes).changes
    except (OSError, msgspec.MsgspecError, RecursionError):
        return []
