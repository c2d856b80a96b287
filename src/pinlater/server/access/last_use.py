"""When each token was last used, in a small file beside the tokens' file that all servers of a machine share.

It helps operators to find tokens that are no longer needed; nothing depends on it. The key is the digest of a token, so that a new token
with the name of an old one counts as never used.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path

from pinlater.server.access.whole_files import locked, replace_file


def last_use_file(tokens_file: Path) -> Path:
    """Returns the path of the file with the times of last use of the tokens in that file."""
    return tokens_file.with_name(f"{tokens_file.name}.used")


def read_last_uses(tokens_file: Path) -> Mapping[str, int] | None:
    """Milliseconds since the epoch by digest. Returns None if the file is missing or broken."""
    try:
        document = json.loads(last_use_file(tokens_file).read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(document, dict):
        return None
    return {digest: at for digest, at in document.items() if isinstance(at, int)}


def note_last_uses(tokens_file: Path, used: Mapping[str, int], known: Collection[str]) -> None:
    """Adds these times to the file, and removes digests that are no longer `known`. Raises OSError."""
    path = last_use_file(tokens_file)
    with locked(path):  # and not the tokens' own: a server may not be allowed to open that
        before = read_last_uses(tokens_file) or {}
        latest = {digest: max(at, used.get(digest, 0)) for digest, at in before.items()}
        both = {**used, **latest}
        replace_file(
            path,
            json.dumps({digest: at for digest, at in both.items() if digest in known}) + "\n",
        )
