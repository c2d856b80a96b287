"""Finds the value that kept a call from being encoded, and names it as the caller of the client's method does.

Only a call that can't be encoded gets here, so that checks of types cost the other calls nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from thrift.Thrift import TType

from pinlater.client.errors import InvalidArgument, WrongType

_BITS = {TType.BYTE: 8, TType.I16: 16, TType.I32: 32, TType.I64: 64}
# Where the caller has another word than the struct.
_NAMES = {
    "FailureMute.name": "group",
    "failed": "acks",
    "requests": "items",
    "succeeded": "acks",
    "unique_for_ms": "unique.for_ms",
    "unique_key": "unique.key",
    "unique_scope": "unique.scope",
}
# Structs that the client makes of a method's arguments.
_OF_THE_CLIENT = frozenset({"request", "acks", "mark", "mute"})
# Lists that the client makes of a list of the caller's, so that their numbers say nothing to it.
_PARTS = frozenset({"failed", "succeeded"})
_TIME = re.compile("(run_after|at|from|since|until)_ms$")


def wrong_value(value: Any, spec: tuple[Any, ...], name: str = "") -> InvalidArgument | None:
    """The error that names the first wrong value in a struct; None if there seems to be none. `name`: the caller's, of the struct."""
    return next(_errors_in(value, spec, name), None)


def _errors_in(struct: Any, spec: tuple[Any, ...], name: str) -> Iterator[InvalidArgument]:
    for entry in spec:
        value = None if entry is None else getattr(struct, entry[2], None)
        if value is None:
            continue
        _, kind, field, argument, _ = entry
        known = _NAMES.get(f"{type(struct).__name__}.{field}") or _NAMES.get(field, field)
        own = name if field in _OF_THE_CLIENT else _joined(name, known)
        yield from _errors_of(value, kind, argument, own, numbered=field not in _PARTS)


def _joined(outer: str, inner: str) -> str:
    return f"{outer}.{inner}" if outer else inner


def _errors_of(value: Any, kind: int, argument: Any, name: str, *, numbered: bool = True) -> Iterator[InvalidArgument]:
    """`numbered`: whether items have the numbers of the caller's list."""
    if kind in _BITS:
        yield from _errors_of_integer(value, 1 << _BITS[kind] - 1, name)
    elif kind == TType.DOUBLE and not isinstance(value, float | int):
        yield WrongType(f"{name} must be a number, not {_shown(value)}")
    elif kind == TType.STRING:
        yield from _errors_of_text(value, name)
    elif kind == TType.STRUCT:
        yield from _errors_in(value, argument[1], name)
    elif kind == TType.LIST and not isinstance(value, list):
        yield WrongType(f"{name} must be a list, not {_shown(value)}")
    elif kind == TType.LIST:
        for index, item in enumerate(value):
            yield from _errors_of(item, argument[0], argument[1], f"{name}[{index if numbered else '...'}]")
    elif kind == TType.MAP and isinstance(value, Mapping):
        for key, item in value.items():
            yield from _errors_of(key, argument[0], argument[1], f"a key of {name}")
            yield from _errors_of(item, argument[2], argument[3], f"{name}[{key!r}]")


def _errors_of_integer(value: Any, beyond: int, name: str) -> Iterator[InvalidArgument]:
    if not isinstance(value, int):
        unit = " of milliseconds" if name.endswith("_ms") else ""
        if _TIME.search(name):
            unit += " since the epoch"
        yield WrongType(f"{name} must be an integer{unit}, not {_shown(value)}")
    elif not -beyond <= value < beyond:
        yield InvalidArgument(f"{name} must be from {-beyond} to {beyond - 1}, not {value}")


def _errors_of_text(value: Any, name: str) -> Iterator[InvalidArgument]:
    if not isinstance(value, str | bytes):
        yield WrongType(f"{name} must be a text, not {_shown(value)}")
    elif isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            yield InvalidArgument(f"{name} can't be encoded: {error}")


def _shown(value: Any) -> str:
    return repr(value[:100]) if isinstance(value, str) else type(value).__name__


def wrong_items(error: Exception, name: str, items: Any, kind: type[Any], example: str) -> Exception:
    """The error to raise where the items of an argument could not be read: TypeError if they are not all of that kind, else `error`."""
    if not hasattr(items, "__iter__"):
        return TypeError(f"{name} must be a list of {kind.__name__}, not {type(items).__name__}: {example}")
    wrong = [item for item in items if not isinstance(item, kind)]
    return (
        TypeError(f"{name} must be a list of {kind.__name__}, not of {type(wrong[0]).__name__}: {example}")
        if wrong
        else error
    )
