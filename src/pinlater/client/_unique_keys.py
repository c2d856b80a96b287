"""Checks of the types of a unique key, wherever a caller hands one in."""

from __future__ import annotations

from pinlater.client.values import UniqueKey


def check_unique_types(unique: UniqueKey, name: str) -> None:
    """Raises TypeError, which begins with `name`, if scope or time have another type."""
    scope: object = unique.scope
    for_ms: object = unique.for_ms
    if not isinstance(scope, int):
        raise TypeError(f"{name}: scope must be a UniqueScope such as UniqueScope.TIME, not {scope!r}")
    if isinstance(for_ms, bool) or not isinstance(for_ms, int):
        raise TypeError(f"{name}: for_ms must be an integer of milliseconds, not {for_ms!r}")
