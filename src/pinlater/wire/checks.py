"""What the C codec does not look at: whether required fields came, and whether text was UTF-8.

Both are built once for each struct from its spec, and run over each decoded call, so they are made of C-level loops if lists
are long. The C codec puts U+FFFD in place of bytes that aren't UTF-8; finding one here is a suspicion, not a proof, because a
text may hold that character itself. The caller then decodes again without UTF-8, and looks closely.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from thrift.Thrift import TType

REPLACEMENT = "\ufffd"
_READ_IN_ONE_GO_FROM = 2  # one alone isn't read as a tuple


Children = Sequence[tuple[Callable[[Any], Any], Callable[[Any], str]]]
"""Fields that hold structs: how to read one, and the look at it."""


class Check(NamedTuple):
    """`missing(value)`: the name of a required field that is None, or ''. `suspicious(value)`: whether a text has a U+FFFD."""

    missing: Callable[[Any], str]
    suspicious: Callable[[Any], bool]


def build_check(cls: type[Any], spec: tuple[Any, ...], required: Mapping[str, tuple[str, ...]]) -> Check:
    """The two checks for a struct and all in it."""
    return Check(_build_missing(cls, spec, required), _build_suspicious(spec))


def _children(spec: tuple[Any, ...]) -> Iterable[tuple[str, int, type[Any], tuple[Any, ...]]]:
    """Fields that hold structs: name, how (STRUCT, LIST or MAP), class, spec."""
    for entry in spec:
        if entry is None:
            continue
        _, kind, name, argument, _ = entry
        if kind == TType.STRUCT:
            yield name, kind, argument[0], argument[1]
        elif kind == TType.LIST and argument[0] == TType.STRUCT:
            yield name, kind, argument[1][0], argument[1][1]
        elif kind == TType.MAP and argument[2] == TType.STRUCT:
            yield name, kind, argument[3][0], argument[3][1]


def _build_missing(
    cls: type[Any], spec: tuple[Any, ...], required: Mapping[str, tuple[str, ...]]
) -> Callable[[Any], str]:
    """Mostly nothing is missing: all that is required of a struct, and of the structs that it requires, is read in one go."""
    name_missing = _build_name_missing(cls, spec, required)
    paths, others = _required_paths(cls, spec, required, "")
    if len(paths) < _READ_IN_ONE_GO_FROM:
        return name_missing
    read_all, inner = attrgetter(*paths), tuple(others)

    def missing(value: Any) -> str:
        try:
            if None in read_all(value):
                return name_missing(value)
        except AttributeError:  # of None: a required struct
            return name_missing(value)
        return _missing_within(inner, value)

    return missing


def _missing_within(children: Children, value: Any) -> str:
    """Of these children, if they came."""
    for read, look in children:
        child = read(value)
        if child is not None:
            found = look(child)
            if found:
                return found
    return ""


def _required_paths(
    cls: type[Any], spec: tuple[Any, ...], required: Mapping[str, tuple[str, ...]], prefix: str
) -> tuple[list[str], Children]:
    """Where all that is always required lies; and what else holds structs, with the look at it."""
    names = required.get(cls.__name__, ())
    paths = [prefix + name for name in names]
    others: list[tuple[Callable[[Any], Any], Callable[[Any], str]]] = []
    for name, kind, child, child_spec in _children(spec):
        if kind == TType.STRUCT and name in names:
            more = _required_paths(child, child_spec, required, f"{prefix}{name}.")
            paths += more[0]
            others += more[1]
        else:
            others.append((attrgetter(prefix + name), _missing_in_child(kind, child, child_spec, required)))
    return paths, others


def _build_name_missing(
    cls: type[Any], spec: tuple[Any, ...], required: Mapping[str, tuple[str, ...]]
) -> Callable[[Any], str]:
    own = tuple((attrgetter(name), f"{cls.__name__}.{name}") for name in required.get(cls.__name__, ()))
    inner = tuple(
        (attrgetter(name), _missing_in_child(kind, child, child_spec, required))
        for name, kind, child, child_spec in _children(spec)
    )

    def missing(value: Any) -> str:
        for read, label in own:
            if read(value) is None:
                return label
        return _missing_within(inner, value)

    return missing


def _missing_in_child(
    kind: int, cls: type[Any], spec: tuple[Any, ...], required: Mapping[str, tuple[str, ...]]
) -> Callable[[Any], str]:
    one = _build_missing(cls, spec, required)
    if kind == TType.STRUCT:
        return one
    names = required.get(cls.__name__, ())
    if not any(True for _ in _children(spec)):
        readers = tuple((attrgetter(name), f"{cls.__name__}.{name}") for name in names)

        def missing_in_flat(items: Any) -> str:
            values = items if kind == TType.LIST else items.values()
            for read, label in readers:
                if None in map(read, values):
                    return label
            return ""

        return missing_in_flat

    def missing_in_each(items: Any) -> str:
        values = items if kind == TType.LIST else items.values()
        return next((found for found in map(one, values) if found), "")

    return missing_in_each


def _build_suspicious(spec: tuple[Any, ...]) -> Callable[[Any], bool]:
    """Plain texts first, without a call for each."""
    entries = [entry for entry in spec if entry is not None]
    texts = tuple(attrgetter(entry[2]) for entry in entries if entry[1] == TType.STRING and entry[3] != "BINARY")
    looks = tuple(
        (attrgetter(entry[2]), look)
        for entry in entries
        if entry[1] != TType.STRING and (look := _look_for(entry[1], entry[3])) is not None
    )

    def suspicious(value: Any) -> bool:
        for read in texts:
            text = read(value)
            if text and REPLACEMENT in text:
                return True
        for read, look in looks:
            inner = read(value)
            if inner is not None and look(inner):
                return True
        return False

    return suspicious


def _look_for(kind: int, argument: Any) -> Callable[[Any], bool] | None:
    """How to look for U+FFFD in a value of this type; None if it holds no text."""
    if kind == TType.STRING:
        return None if argument == "BINARY" else _has_replacement
    if kind == TType.STRUCT:
        return _build_suspicious(argument[1])
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


def first_text_not_utf8(value: Any, spec: tuple[Any, ...], original: tuple[Any, ...]) -> str:
    """The name of the first field whose bytes aren't UTF-8, or ''. `value` was decoded with all text as bytes by `spec`;
    `original` is the spec that knows which of it is text."""
    for entry, meant in zip(spec, original, strict=True):
        if entry is None:
            continue
        inner = getattr(value, entry[2])
        if inner is not None and not _all_utf8(inner, meant[1], meant[3], entry[3]):
            return str(entry[2])
    return ""


def _all_utf8(value: Any, kind: int, meant: Any, argument: Any) -> bool:
    if kind == TType.STRING:
        return meant == "BINARY" or _is_utf8(value)
    if kind == TType.STRUCT:
        return not first_text_not_utf8(value, argument[1], meant[1])
    if kind in (TType.LIST, TType.SET):
        return all(_all_utf8(item, meant[0], meant[1], argument[1]) for item in value)
    if kind == TType.MAP:
        return all(
            _all_utf8(key, meant[0], meant[1], argument[1]) and _all_utf8(item, meant[2], meant[3], argument[3])
            for key, item in value.items()
        )
    return True


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
