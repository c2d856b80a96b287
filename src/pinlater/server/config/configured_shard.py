"""A shard as the settings and files have it."""

from __future__ import annotations

from typing import Any, NamedTuple


class ConfiguredShard(NamedTuple):
    """One shard: its name, the entry of the shard file it comes from (empty for a URL's), and where it is. `lost`: its data are gone for
    good; its entry only says so."""

    name: str
    key: str
    endpoint: Any  # a value of the kind of store; its text is the address, without the password
    takes_enqueues: bool = True
    lost: bool = False
