"""Arguments of scripts, packed: MessagePack as the scripts' library reads it, which has no type for bytes and uses strings for them; and
long lists of strings, each preceded by its length in four bytes, which a script splits many at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct

Packable = bytes | str | int | bool | Sequence["Packable"]

_I64 = Struct(">Bq")
_I32 = Struct(">BI")
_I16 = Struct(">BH")
_LENGTH = Struct(">I")


def encode(value: object) -> bytes:
    """Encodes one value: lists and tuples of lists, tuples, strings, integers and booleans."""
    parts: list[bytes] = []
    _add(parts, value)
    return b"".join(parts)


def strings(values: Iterable[bytes]) -> bytes:
    """A list of strings, as `shared.lua` reads it."""
    parts = [part for value in values for part in (_LENGTH.pack(len(value)), value)]
    return _LENGTH.pack(len(parts) // 2) + b"".join(parts)


def _add(parts: list[bytes], value: object) -> None:
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        size = len(value)
        if size < 32:
            parts.append(bytes((0xA0 | size,)))
        else:
            parts.append(_I16.pack(0xDA, size) if size < 65_536 else _I32.pack(0xDB, size))
        parts.append(value)
    elif isinstance(value, bool):
        parts.append(b"\xc3" if value else b"\xc2")
    elif isinstance(value, int):
        parts.append(bytes((value,)) if 0 <= value < 128 else _I64.pack(0xD3, value))
    elif isinstance(value, list | tuple):
        size = len(value)
        if size < 16:
            parts.append(bytes((0x90 | size,)))
        else:
            parts.append(_I16.pack(0xDC, size) if size < 65_536 else _I32.pack(0xDD, size))
        for item in value:
            _add(parts, item)
    else:
        raise TypeError(f"{type(value).__name__} can't be packed")
