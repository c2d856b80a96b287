"""The versions of stored formats, alike for all stores.

A program of schema N runs on schema N and N + 1: a new version first adds what the new program needs (expand), and removes what the old
one needed a version later (contract). Older shards are migrated.

A step that needs all servers to be of the new version waits until then. On MySQL and Redis, the first job with an ordering key migrates
the shard to `ORDERED` of its store, which is two above the schema of the previous version: its servers refuse the shard from then on.
"""

from __future__ import annotations

from pinlater.domain.errors import SchemaRefused


def check_version(place: object, version: int, newest: int) -> None:
    """Raises `SchemaRefused` if a program of schema `newest` may not touch a shard of this version."""
    if version > newest + 1:
        raise SchemaRefused(
            f"{place} has schema {version}; this version of pinlater is written for schema {newest} and runs on {newest} and "
            f"{newest + 1}: upgrade pinlater"
        )
