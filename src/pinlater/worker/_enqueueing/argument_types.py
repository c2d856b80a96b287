"""Which types of values a worker would refuse for a parameter.

Such a call fails when it is enqueued, in the caller's code, and not later in the worker. Only what no worker with that annotation takes is
refused, and bytes for a text and the reverse, and only values of the exact types of `_CHECKED`, whose encoding is known. Values of other
types pass, as do all values for a type that the codec leaves to a hook, such as a pydantic model. Items of lists and dictionaries and
fields of dataclasses are not checked.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple, cast
from uuid import UUID

from msgspec import inspect as decoded

from pinlater.worker.codecs import Codec, JsonCodec, MessagePackCodec

# In JSON, bytes are a base64 text. Still none is taken for the other: the worker would get another text, or other bytes.
_BYTES: frozenset[type] = frozenset({bytes, bytearray, memoryview})
_ARRAY: frozenset[type] = frozenset({list, tuple, set, frozenset})
_NUMBER: frozenset[type] = frozenset({int, float})
# What a parameter decodes to, to the type that is encoded as a text of the same form.
_IN_TEXT: dict[type, type] = {
    decoded.DecimalType: Decimal,
    decoded.DateTimeType: datetime,
    decoded.DateType: date,
    decoded.TimeType: time,
    decoded.TimeDeltaType: timedelta,
    decoded.UUIDType: UUID,
}
_CHECKED: frozenset[type] = (
    frozenset[type]({str, bool, type(None), dict}) | _BYTES | _ARRAY | _NUMBER | frozenset(_IN_TEXT.values())
)
# What a parameter decodes to, to the types of values whose encoding decodes to it, in JSON or in MessagePack.
_TAKEN: dict[type, frozenset[type]] = {
    decoded.NoneType: frozenset({type(None)}),
    decoded.BoolType: frozenset({bool}),
    decoded.IntType: frozenset({int}),
    decoded.FloatType: _NUMBER,
    decoded.StrType: frozenset[type]({str, *_IN_TEXT.values()}),
    **{kind: frozenset({str, written}) for kind, written in _IN_TEXT.items()},
    decoded.DecimalType: frozenset({str, Decimal}) | _NUMBER,
    decoded.UUIDType: frozenset({str, UUID}) | _BYTES,
    **dict.fromkeys((decoded.BytesType, decoded.ByteArrayType, decoded.MemoryViewType), _BYTES),
    **dict.fromkeys(
        (
            decoded.ListType,
            decoded.SetType,
            decoded.FrozenSetType,
            decoded.CollectionType,
            decoded.VarTupleType,
            decoded.TupleType,
            decoded.NamedTupleType,
        ),
        _ARRAY,
    ),
    **dict.fromkeys((decoded.DictType, decoded.TypedDictType, decoded.DataclassType), frozenset({dict})),
}


# Of their values, equal ones are the same on the wire.
_CHOSEN = frozenset({str, int})
_CHOICES_SHOWN = 12


class RefusedTypes(NamedTuple):
    """The exact types of values that each parameter does not take, and its annotation for messages. Both are empty if all take all.

    `choices`: of a parameter that takes a few texts and numbers only, which.
    """

    types: Mapping[str, frozenset[type]] = {}
    annotations: Mapping[str, str] = {}
    choices: Mapping[str, Sequence[object]] = {}

    def check(self, arguments: Mapping[str, Any], task: str) -> None:
        """Raises TypeError or ValueError that names task and argument."""
        if refused := self.types:
            for name, value in arguments.items():
                if type(value) in refused[name]:
                    given = type(value).__name__
                    raise TypeError(f"task {task}: argument {name!r} must be {self.annotations[name]}, not {given}")
                if name in self.choices and type(value) in _CHOSEN and value not in self.choices[name]:
                    shown = [repr(choice) for choice in self.choices[name][:_CHOICES_SHOWN]]
                    possible = ", ".join(shown + ["..."] * (len(self.choices[name]) > len(shown)))
                    raise ValueError(f"task {task}: argument {name!r} is one of {possible}, not {value!r}")


def refused_types(codec: Codec | None, parameters: Sequence[inspect.Parameter]) -> RefusedTypes:
    """Nothing for a user's own codec, which may take what it likes."""
    found = {each.name: _refused(each.annotation) for each in parameters}
    if type(codec) not in (JsonCodec, MessagePackCodec) or not any(found.values()):
        return RefusedTypes()
    choices = {each.name: _choices(each.annotation) for each in parameters if found[each.name]}
    return RefusedTypes(
        found,
        {each.name: inspect.formatannotation(each.annotation) for each in parameters},
        {name: values for name, values in choices.items() if values},
    )


def _refused(annotation: Any) -> frozenset[type]:
    try:
        return _CHECKED - _taken(decoded.type_info(annotation))
    except Exception:  # noqa: BLE001 - such a type is refused or accepted elsewhere
        return frozenset()


def _choices(annotation: Any) -> Sequence[object]:
    """The values of a literal or an enum, or of either and None; none for other annotations."""
    kind = decoded.type_info(annotation)
    kinds = kind.types if isinstance(kind, decoded.UnionType) else (kind,)
    [*several] = [each for each in kinds if not isinstance(each, decoded.NoneType)]
    if len(several) == 1 and isinstance(several[0], decoded.LiteralType):
        return several[0].values
    if len(several) == 1 and isinstance(several[0], decoded.EnumType) and not _finds_more(several[0].cls):
        return [member.value for member in several[0].cls]
    return ()


def _finds_more(kind: type[Enum]) -> bool:
    """Whether the enum has a way of its own to find a member for a value."""
    return cast("Any", kind)._missing_.__func__ is not cast("Any", Enum)._missing_.__func__


def _taken(kind: decoded.Type) -> frozenset[type]:
    """The checked types whose values may decode to this."""
    if isinstance(kind, decoded.Metadata):
        return _taken(kind.type)
    if isinstance(kind, decoded.UnionType):
        return frozenset[type]().union(*map(_taken, kind.types))
    if isinstance(kind, decoded.LiteralType):
        return _as_values(kind.values)
    if isinstance(kind, decoded.EnumType):
        return _as_values([member.value for member in kind.cls])
    if isinstance(kind, decoded.StructType):
        return _ARRAY if kind.array_like else frozenset({dict})
    return _TAKEN.get(type(kind), _CHECKED)


def _as_values(values: Sequence[object]) -> frozenset[type]:
    """The types that decode to one of these, as a literal or a member of an enum. All if one of them is of a type of its own."""
    kinds = frozenset(map(type, values))
    return kinds if kinds <= {str, int, type(None)} else _CHECKED
