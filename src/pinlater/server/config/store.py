"""Which store a server keeps its jobs in, from one string: `sqlite:PATH`, `memory:`, `mysql:FILE`, `mysql://user@host/database` …

A URL may hold a password. It is never shown: neither in the text of a location nor in an error about one.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from pinlater.server.config.errors import did_you_mean
from pinlater.server.config.kinds import EMBEDDED, SHARDED
from pinlater.server.config.kinds.kind import ShardedKind
from pinlater.server.config.paths import resolved
from pinlater.server.config.shard_entry import ShardAddress
from pinlater.server.config.shard_url import parse_url

POSSIBLE = (
    f"{', '.join(kind.form for kind in EMBEDDED.values())}, {' or '.join(f'{name}:FILE' for name in SHARDED)} (a shard file), "
    f"{' or '.join(kind.url_form for kind in SHARDED.values())} is possible"
)


class StoreLocation(NamedTuple):
    """A store and where it is: `path` is the file of an embedded store, `shard_file` or `url` tell where the shards of other stores are."""

    kind: str
    path: Path | None = None
    shard_file: Path | None = None
    url: ShardAddress | None = None

    @property
    def is_sharded(self) -> bool:
        """Whether it may have several shards, and several servers."""
        return self.kind in SHARDED

    def __str__(self) -> str:
        return str(self.url) if self.url is not None else f"{self.kind}:{self.path or self.shard_file or ''}"


def parse_store(text: str, base: Path | None = None) -> StoreLocation:
    """The location that `text` names; a relative path counts from `base`. Raises `ValueError` with a text that contains no password."""
    word, colon, rest = text.strip().partition(":")
    if word in EMBEDDED and (colon if EMBEDDED[word].in_file else not rest):
        return StoreLocation(word, EMBEDDED[word].locate(rest, base))
    for name, kind in SHARDED.items():
        if word in kind.schemes and rest.startswith("//"):
            return StoreLocation(name, url=parse_url(text.strip(), kind))
        if word == name and colon:
            return StoreLocation(name, shard_file=_shard_file(kind, rest, base))
        if word in kind.nicknames:
            raise ValueError(f"is not a store: {kind.nicknames[word]}")
    near = did_you_mean(word, [*EMBEDDED, *SHARDED]) if colon else f" (did you mean sqlite:{text.strip()}?)"
    raise ValueError(f"is not a store: {POSSIBLE}{near}")


def without_password(text: str) -> str:
    """Returns `text` in the form in which an error may show it: a possible URL with a password loses everything up to the last `@`, and
    its query."""
    word, colon, rest = text.strip().partition(":")
    names_file = word in EMBEDDED and EMBEDDED[word].in_file
    if not colon or names_file or ("@" not in rest and not rest.startswith("//")):
        return text
    slashes = "//" if rest.startswith("//") else ""
    place = rest.rpartition("@")[2].partition("?")[0] if "@" in rest else ""
    return f"{word}:{slashes}…" + (f"@{place}" if place else "")


def _shard_file(kind: ShardedKind, rest: str, base: Path | None) -> Path:
    if not rest:
        raise ValueError(f"names no shard file: write {kind.name}:FILE, or {kind.url_form} for a single database")
    if "@" in rest and ":" in rest:
        raise ValueError(f"is neither a file nor a URL: a URL begins with {kind.name}://")
    return resolved(rest, base)
