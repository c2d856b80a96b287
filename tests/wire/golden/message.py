"""Reads a message of the binary protocol into a tree that has every byte, the names of the IDL, and text for people.

It shares no code with the server's codec. A message that can't be read comes out as one part without names.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tests.wire.golden.idl import APPLICATION_EXCEPTION, ENUMS, METHODS, STRUCTS, Fields, Method, element_types

_BOOL, _BYTE, _DOUBLE, _I16, _I32, _I64, _STRING, _STRUCT, _MAP, _SET, _LIST = 2, 3, 4, 6, 8, 10, 11, 12, 13, 14, 15
_NUMBERS = {_BYTE: ">b", _DOUBLE: ">d", _I16: ">h", _I32: ">i", _I64: ">q"}
_CALL, _REPLY, _EXCEPTION, _ONEWAY = 1, 2, 3, 4
_KINDS = {_CALL: "call", _REPLY: "reply", _EXCEPTION: "exception", _ONEWAY: "oneway"}
_TEXT_CHARS_MAX = 80
_LINE_CHARS_MAX = 140


@dataclass(frozen=True)
class Part:
    """A field, an element, or the message itself: `head`, its `children`, and `tail` are its bytes."""

    name: str
    text: str
    head: bytes
    children: tuple[Part, ...] = ()
    tail: bytes = b""
    type: str = ""

    @property
    def data(self) -> bytes:
        """All of its bytes."""
        return self.head + b"".join(child.data for child in self.children) + self.tail

    @property
    def hex(self) -> str:
        """All of its bytes, with a space wherever a part begins."""
        pieces = [self.head.hex(), *(child.hex for child in self.children), self.tail.hex()]
        return " ".join(filter(None, pieces))

    @property
    def line(self) -> str:
        """The name with the text, and those of the children."""
        inside = ", ".join(child.line for child in self.children)
        shown = f"{self.name} {self.text}".strip()
        return f"{shown} {{{inside}}}".strip() if self.children else shown


class _Unreadable(Exception):
    """These bytes are no message of the protocol."""


@dataclass
class _Bytes:
    data: bytes
    at: int = 0

    def take(self, size: int) -> bytes:
        if size < 0 or self.at + size > len(self.data):
            raise _Unreadable
        self.at += size
        return self.data[self.at - size : self.at]

    def i32(self) -> tuple[bytes, int]:
        head = self.take(4)
        return head, int.from_bytes(head, "big", signed=True)


def read_message(data: bytes) -> Part:
    """The message as a tree; as one part if it can't be read."""
    try:
        source = _Bytes(data)
        message = _message(source)
        if source.at != len(data):
            raise _Unreadable
    except (_Unreadable, UnicodeDecodeError):
        return Part("bytes", f"of no message that can be read: {len(data)}", data)
    return message


def _message(source: _Bytes) -> Part:
    version = source.take(2)
    if version == b"\x80\x01":
        version += source.take(1)
        kind_at = source.take(1)
        head, size = source.i32()
        name = source.take(size)
        head = version + kind_at + head + name
    else:
        source.at = 0
        head, size = source.i32()
        name = source.take(size)
        kind_at = source.take(1)
        head += name + kind_at
    seqid, number = source.i32()
    kind = _KINDS.get(kind_at[0], f"kind {kind_at[0]}")
    method = METHODS.get(name.decode())
    children, tail = _fields(source, _declared(kind_at[0], method))
    old = "" if version[:2] == b"\x80\x01" else " in an old header"
    return Part(name.decode(), f"{kind} {number}{old}", head + seqid, children, tail)


def _declared(kind: int, method: Method | None) -> Fields:
    if kind == _EXCEPTION:
        return APPLICATION_EXCEPTION
    if method is None:
        return {}
    return method.result if kind == _REPLY else method.arguments


def _fields(source: _Bytes, declared: Fields) -> tuple[tuple[Part, ...], bytes]:
    found: list[Part] = []
    while (head := source.take(1)) != b"\0":
        number = source.take(2)
        known = declared.get(int.from_bytes(number, "big", signed=True))
        name = f"?{int.from_bytes(number, 'big', signed=True)}" if known is None else known.name
        found.append(_value(source, head[0], name, "" if known is None else known.type, head + number))
    return tuple(found), head


def _value(source: _Bytes, kind: int, name: str, type: str, head: bytes) -> Part:
    if kind in _NUMBERS:
        data = source.take(struct.calcsize(_NUMBERS[kind]))
        (value,) = struct.unpack(_NUMBERS[kind], data)
        member = ENUMS.get(type, {}).get(value)
        return Part(name, f"{value}" if member is None else f"{member}({value})", head + data, type=type)
    if kind == _BOOL:
        data = source.take(1)
        return Part(name, {b"\0": "false", b"\1": "true"}.get(data, f"bool {data[0]}"), head + data, type=type)
    if kind == _STRING:
        length, size = source.i32()
        data = source.take(size)
        return Part(name, _shown(data, binary=type == "binary"), head + length + data, type=type)
    if kind == _STRUCT:
        children, tail = _fields(source, STRUCTS.get(type, {}))
        return Part(name, "" if children else "{}", head, children, tail, type)
    if kind in (_LIST, _SET):
        element = source.take(1)
        length, size = source.i32()
        inner = element_types(type)[0]
        items = [_value(source, element[0], f"[{index}]", inner, b"") for index in range(_bounded(source, size))]
        return Part(name, f"{size} of", head + element + length, tuple(items), type=type)
    if kind == _MAP:
        kinds = source.take(2)
        length, size = source.i32()
        key_type, value_type = [*element_types(type), ""][:2]
        pairs: list[Part] = []
        for _ in range(_bounded(source, size)):
            key = _value(source, kinds[0], "", key_type, b"")
            value = _value(source, kinds[1], f"[{key.text}]", value_type, key.head)
            pairs.append(value)
        return Part(name, f"{size} of", head + kinds + length, tuple(pairs), type=type)
    raise _Unreadable


def _bounded(source: _Bytes, size: int) -> int:
    """No element is shorter than a byte."""
    if not 0 <= size <= len(source.data) - source.at:
        raise _Unreadable
    return size


def _shown(data: bytes, *, binary: bool) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        binary = True
    if binary:
        shown = repr(data[:_TEXT_CHARS_MAX])
        return shown if len(data) <= _TEXT_CHARS_MAX else f"{shown}… {len(data)} bytes"
    shown = json.dumps(text[:_TEXT_CHARS_MAX], ensure_ascii=not text[:_TEXT_CHARS_MAX].isprintable())
    return shown if len(text) <= _TEXT_CHARS_MAX else f"{shown}… {len(text)} characters"


# --- parts of a message ---------------------------------------------------------------------------------------------------------
def items(message: Part) -> Sequence[Part]:
    """The elements of the first list or map in the message."""
    return _first_container(message).children


def with_items(message: Part, data: Sequence[bytes]) -> Part:
    """The message with these elements in its first list."""
    found = _first_container(message)
    head = found.head[:-4] + len(data).to_bytes(4, "big")
    return _replaced(message, found, replace(found, head=head, children=tuple(Part("", "", each) for each in data)))


def _first_container(part: Part) -> Part:
    found = next((each for each in all_parts(part) if each.type.startswith(("list<", "map<"))), None)
    assert found is not None, part.line
    return found


def all_parts(part: Part) -> Iterator[Part]:
    """The part and all parts in it."""
    yield part
    for child in part.children:
        yield from all_parts(child)


def _replaced(part: Part, old: Part, new: Part) -> Part:
    if part is old:
        return new
    return replace(part, children=tuple(_replaced(child, old, new) for child in part.children))


# --- for people -----------------------------------------------------------------------------------------------------------------
def lines(part: Part, indent: str = "  ") -> Iterator[str]:
    """The tree as lines of text and bytes. A part that does not fit a line has one for itself and at least one for each of its children."""
    line = f"{indent}{part.line} | {part.hex}"
    if len(line) <= _LINE_CHARS_MAX or not part.children:
        yield line
        return
    yield f"{indent}{part.name} {part.text}".rstrip() + f" | {part.head.hex()}".rstrip()
    *inside, last = (line for child in part.children for line in lines(child, indent + "  "))
    yield from inside
    yield f"{last} {part.tail.hex()}".rstrip()


def bytes_of_lines(text: list[str]) -> bytes:
    """The bytes that these lines have behind their last bar."""
    return bytes.fromhex(" ".join(line.rpartition("|")[2] for line in text))


def leaves(part: Part, path: str = "") -> Iterator[str]:
    """A line for each value, with its path and its field's bytes: what two messages are compared by for people."""
    if not part.children:
        yield f"{path or part.name} = {part.text}  ({part.head.hex()}{part.tail.hex()})"
        return
    yield f"{path or part.name} {part.text}  ({part.head.hex()})".replace("   ", "  ")
    for child in part.children:
        joint = "" if child.name.startswith("[") or not path else "."
        yield from leaves(child, f"{path}{joint}{child.name}")
