"""Checks that the C codec does not make: whether required fields are present, and whether text is UTF-8.

Paths name fields as the IDL does.
Both are built once for each struct from its spec, and run over each decoded call, so they consist of C-level loops if lists are long. The
C codec puts U+FFFD in place of bytes that aren't UTF-8; finding one here is a suspicion, not a proof, because a text may contain that
character itself. Then the caller decodes again without UTF-8, and checks precisely.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Any, NamedTuple

from thrift.Thrift import TType

from pinlater.wire.generated.structs import REQUIRED, Spec

REPLACEMENT = "\ufffd"
_KEY_SHOWN = 100  # characters of a map's key, in a path


class Check(NamedTuple):
    """The checks of a decoded struct.

    `missing(value)`: whether a required field is None. `path_of_missing(value)`: the path of the first one, such as `request.jobs[1].body`.
    `suspicious(value)`: whether a text has a U+FFFD.
    """

    missing: Callable[[Any], bool]
    path_of_missing: Callable[[Any], str]
    suspicious: Callable[[Any], bool]


def build_check(cls: type[Any], spec: Spec) -> Check:
    """Returns the checks for a struct and all in it."""
    return Check(
        _build_missing(cls, spec), lambda value: _path_of_missing(value, cls, spec), _build_suspicious(cls, spec)
    )


def _struct_in(kind: int, argument: Any) -> tuple[type[Any], Spec] | None:
    """Returns the class and the spec of the structs that a field holds, itself, in a list or in a map; None if it holds none."""
    if kind == TType.STRUCT:
        return argument[0], argument[1]
    if kind == TType.LIST and argument[0] == TType.STRUCT:
        return argument[1][0], argument[1][1]
    if kind == TType.MAP and argument[2] == TType.STRUCT:
        return argument[3][0], argument[3][1]
    return None


def _fields(cls: type[Any], spec: Spec, prefix: str) -> Iterator[tuple[str, bool, int, Any]]:
    """The fields of a struct, and of the structs that it requires: place, whether it is always required, type, what the type holds.

    A required struct itself has no type here: its fields follow.
    """
    for _, kind, name, argument, _ in filter(None, spec):
        is_required = name in REQUIRED.get(cls, ())
        if is_required and kind == TType.STRUCT:
            yield prefix + name, True, TType.STOP, None
            yield from _fields(argument[0], argument[1], f"{prefix}{name}.")
        else:
            yield prefix + name, is_required, kind, argument


def _build_missing(cls: type[Any], spec: Spec) -> Callable[[Any], bool]:
    """Builds the check that reads all required fields of a struct, and of the structs that it requires, in one go."""
    fields = list(_fields(cls, spec, ""))
    paths = [path for path, is_required, _, _ in fields if is_required]
    read_all = attrgetter(*paths, paths[0]) if paths else None  # a single path would not be read as a tuple
    looks = [
        (attrgetter(path), _missing_in_child(kind, *inner))
        for path, _, kind, argument in fields
        if (inner := _struct_in(kind, argument)) is not None
    ]

    def missing(value: Any) -> bool:
        try:
            if read_all is not None and None in read_all(value):
                return True
        except AttributeError:  # of None: a required struct
            return True
        for read, look in looks:
            child = read(value)
            if child is not None and look(child):
                return True
        return False

    return missing


def required_fields(cls: type[Any], spec: Spec, prefix: str) -> Callable[[Any], tuple[Any, ...]] | None:
    """Returns what reads all required fields of a struct; None if there are none, or if some are in structs, lists or maps of it."""
    paths = [f"{prefix}.{name}" for name in REQUIRED.get(cls, ())]
    is_flat = not any(_struct_in(kind, argument) for _, kind, _, argument, _ in filter(None, spec))
    return attrgetter(*paths, paths[0]) if paths and is_flat else None


def _missing_in_child(kind: int, cls: type[Any], spec: Spec) -> Callable[[Any], bool]:
    one = _build_missing(cls, spec)
    if kind == TType.STRUCT:
        return one
    if any(_struct_in(entry[1], entry[3]) for entry in filter(None, spec)):
        return lambda items: any(map(one, items if kind == TType.LIST else items.values()))
    readers = tuple(map(attrgetter, REQUIRED.get(cls, ())))

    def missing_in_flat(items: Any) -> bool:
        values = items if kind == TType.LIST else items.values()
        for read in readers:  # noqa: SIM110 - a generator costs two calls more
            if None in map(read, values):
                return True
        return False

    return missing_in_flat


def _build_suspicious(cls: type[Any], spec: Spec) -> Callable[[Any], bool]:
    """Checks all plain texts at once, also those of required structs, before the fields that need a call each. The value lacks nothing."""
    fields = list(_fields(cls, spec, ""))
    texts = [path for path, _, kind, argument in fields if kind == TType.STRING and argument != "BINARY"]
    read_texts = attrgetter(*texts, texts[0]) if texts else None  # as in `_build_missing`
    looks = [
        (attrgetter(path), look)
        for path, _, kind, argument in fields
        if kind != TType.STRING and (look := _look_for(kind, argument)) is not None
    ]

    def suspicious(value: Any) -> bool:
        if read_texts is not None and REPLACEMENT in "".join(filter(None, read_texts(value))):
            return True
        for read, look in looks:
            inner = read(value)
            if inner is not None and look(inner):
                return True
        return False

    return suspicious


def _look_for(kind: int, argument: Any) -> Callable[[Any], bool] | None:
    """Returns the check for U+FFFD in a value of this type, or None if it contains no text."""
    if kind == TType.STRING:
        return None if argument == "BINARY" else _has_replacement
    if kind == TType.STRUCT:
        return _build_suspicious(argument[0], argument[1])
    if kind in (TType.LIST, TType.SET):
        look = _look_for(argument[0], argument[1])
        return None if look is None else lambda items: any(map(look, items))
    if kind == TType.MAP:
        keys, values = _look_for(argument[0], argument[1]), _look_for(argument[2], argument[3])
        return lambda items: bool(
            (keys is not None and any(map(keys, items))) or (values is not None and any(map(values, items.values())))
        )
    return None


def _has_replacement(text: str) -> bool:
    return REPLACEMENT in text


def _path_of_missing(value: Any, cls: type[Any], spec: Spec) -> str:
    shown = {entry[2]: entry[4] for entry in spec if entry is not None}
    for name in REQUIRED.get(cls, ()):
        if getattr(value, name) is None:
            return str(shown[name])
    for _, kind, name, argument, _ in filter(None, spec):
        inner, struct = getattr(value, name), _struct_in(kind, argument)
        if inner is None or struct is None:
            continue
        for place, one in _placed(kind, inner):
            if found := _path_of_missing(one, *struct):
                return f"{shown[name]}{place}.{found}"
    return ""


def path_not_utf8(value: Any, spec: Spec, original: Spec) -> str:
    """The path of the first text whose bytes aren't UTF-8, such as `request.jobs[1].customStatus`, or ''.

    `value` was decoded with all text as bytes by `spec`; `original` is the spec that knows which of it is text.
    """
    for entry, meant in zip(spec, original, strict=True):
        if entry is None:
            continue
        inner = getattr(value, entry[2])
        found = None if inner is None else _place_not_utf8(inner, meant[1], meant[3], entry[3])
        if found is not None:
            return f"{entry[4]}{found}"
    return ""


def _place_not_utf8(value: Any, kind: int, meant: Any, argument: Any) -> str | None:
    """Returns the place of a text that isn't UTF-8 in the value: '' for the value itself, or None if all texts are valid."""
    if kind == TType.STRING:
        return None if meant == "BINARY" or _is_utf8(value) else ""
    if kind == TType.STRUCT:
        path = path_not_utf8(value, argument[1], meant[1])
        return f".{path}" if path else None
    if kind == TType.MAP and any(_place_not_utf8(key, meant[0], meant[1], argument[1]) is not None for key in value):
        return " (a key)"
    if kind in (TType.LIST, TType.SET, TType.MAP):
        of_items = (meant[2], meant[3], argument[3]) if kind == TType.MAP else (meant[0], meant[1], argument[1])
        for place, item in _placed(kind, value):
            if (found := _place_not_utf8(item, *of_items)) is not None:
                return f"{place}{found}"
    return None


def _placed(kind: int, value: Any) -> Iterable[tuple[str, Any]]:
    """Yields the values of a field, each with its place: an index, a key, or nothing for a struct."""
    if kind == TType.STRUCT:
        yield "", value
    elif kind == TType.MAP:
        for key, item in value.items():
            text = key.decode("utf-8", "replace") if isinstance(key, bytes) else str(key)
            yield f"[{text[:_KEY_SHOWN]!r}]", item
    else:
        for index, item in enumerate(value):
            yield f"[{index}]", item


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
