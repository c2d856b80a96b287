"""Notices changes of Python files below a folder by polling twice a second, which needs no library and works on every file system.

For development. Skips folders of environments and caches, and hidden folders. Weakness: a file that is written twice within its file
system's time step, with the same length, counts as one change.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

_POLL_S = 0.5
_FILES_MAX = 20_000
_SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages", "venv", "build", "dist"})
Seen = Mapping[str, tuple[int, int]]


def look(folder: str | Path) -> Seen:
    """The modification time and length of each Python file, of 20,000 files at most."""
    seen: dict[str, tuple[int, int]] = {}
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _SKIPPED]
        for name in files:
            if name.endswith(".py") and len(seen) < _FILES_MAX:
                path = os.path.join(place, name)  # noqa: PTH118 - thousands of them, twice a second
                try:
                    found = os.stat(path)  # noqa: PTH116 - see above
                except OSError:
                    continue  # removed meanwhile
                seen[path] = (found.st_mtime_ns, found.st_size)
    return seen


def changed(before: Seen, after: Seen) -> list[str]:
    """Files that are new, removed or changed."""
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


async def changes(folder: str | Path) -> AsyncIterator[list[str]]:
    """Yields the files of each change, once they have stopped changing."""
    before = await asyncio.to_thread(look, folder)
    while True:
        await asyncio.sleep(_POLL_S)
        after = await asyncio.to_thread(look, folder)
        found = changed(before, after)
        while found:
            await asyncio.sleep(_POLL_S / 5)
            settled = await asyncio.to_thread(look, folder)
            if settled == after:
                break
            after = settled
        if found:
            yield changed(before, after) or found
        before = after
