"""Which types of values a worker would refuse for a parameter, as far as its annotation is of builtin types.

Such a call fails when it is enqueued, in the caller's code, and not later in the worker. Only what no worker with that annotation takes is
refused, and only of the exact types of `_CHECKED`, whose encoding is known. Subclasses, dates, UUIDs and the like pass. Items of lists and
dictionaries are not checked.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pinlater.worker.codecs import Codec, JsonCodec, MessagePackCodec

_CHECKED: frozenset[type] = frozenset({str, int, float, bool, type(None), bytes, list, tuple, dict})
# Annotation to the types of values whose encoding decodes to it, in JSON or in MessagePack.
_TAKEN: dict[type, set[type]] = {
    int: {int},
    float: {int, float},
    bool: {bool},
    str: {str, bytes},
    bytes: {bytes, str},
    type(None): {type(None)},
    list: {list, tuple},
    tuple: {list, tuple},
    dict: {dict},
}


class RefusedTypes(NamedTuple):
    """Holds, by parameter, the exact types of values that it does not take, and its annotation for the message. Both are empty if all take
    any."""

    types: Mapping[str, frozenset[type]] = {}
    annotations: Mapping[str, str] = {}

    def check(self, arguments: Mapping[str, Any], task: str) -> None:
        """Raises TypeError that names task and argument."""
        if refused := self.types:
            for name, value in arguments.items():
                if type(value) in refused[name]:
                    given = type(value).__name__
                    raise TypeError(f"task {task}: argument {name!r} must be {self.annotations[name]}, not {given}")


def refused_types(codec: Codec | None, parameters: Sequence[inspect.Parameter]) -> RefusedTypes:
    """Nothing for a user's own codec, which may take what it likes."""
    found = {each.name: _refused(each.annotation) for each in parameters}
    if type(codec) not in (JsonCodec, MessagePackCodec) or not any(found.values()):
        return RefusedTypes()
    return RefusedTypes(found, {each.name: inspect.formatannotation(each.annotation) for each in parameters})


def _refused(annotation: Any) -> frozenset[type]:
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        return frozenset.intersection(*map(_refused, typing.get_args(annotation)))
    taken = _TAKEN.get(origin or annotation) if isinstance(origin or annotation, type) else None
    return frozenset() if taken is None else _CHECKED - taken
