"""The tables of access control, from the table that servers read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from pinlater.domain.access import INCLUDED, MEANINGS, METHOD_ROLES, VARIANT_ROLES, Role


def _roles() -> Iterator[str]:
    yield from ("| role | what it allows | it includes |", "|---|---|---|")
    for role, meaning in MEANINGS.items():
        others = ", ".join(f"`{other.value}`" for other in Role if other in INCLUDED[role] - {role})
        yield f"| `{role.value}` | {meaning} | {others or '–'} |"


def _methods() -> Iterator[str]:
    yield from (f"| call | {' | '.join(role.value for role in Role)} |", "|---|" + "---|" * len(Role))
    for name, needed in {**METHOD_ROLES, **VARIANT_ROLES}.items():
        cells = ("yes" if not needed or needed & INCLUDED[role] else "–" for role in Role)
        yield f"| {name}{'' if needed else ' (also without a role)'} | {' | '.join(cells)} |"


TABLES: Mapping[str, Callable[[], Iterator[str]]] = {"roles": _roles, "methods": _methods}
