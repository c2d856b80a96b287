"""Names of fields, methods and enum members, read from the IDL itself, so that nothing generated has a part in what the tests show."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pinlater

_IDL = Path(pinlater.__file__).parent / "wire" / "pinlater.thrift"
_COMMENT = re.compile(r"//[^\n]*")
_ENUM = re.compile(r"enum\s+(\w+)\s*\{([^}]*)\}")
_MEMBER = re.compile(r"(\w+)\s*=\s*(\d+)")
_STRUCT = re.compile(r"(?:struct|exception)\s+(\w+)\s*\{([^}]*)\}")
_FIELD = re.compile(r"(\d+):\s*(?:(?:required|optional)\s+)?((?:list|set|map)<[^>]*>|\w+)\s+(\w+)")
_METHOD = re.compile(r"((?:list|set|map)<[^>]*>|\w+)\s+(\w+)\(([^)]*)\)\s*throws\s*\(([^)]*)\)")


class Field(NamedTuple):
    """A field of a struct. `type`: as the IDL has it: `string`, `list<AckOutcome>`."""

    name: str
    type: str


Fields = Mapping[int, Field]
"""The fields of a struct by their ids."""


class Method(NamedTuple):
    """A method of the service."""

    arguments: Fields
    result: Fields  # 0: what it returns, 1: its exception


def _fields(text: str) -> dict[int, Field]:
    return {int(number): Field(name, kind) for number, kind, name in _FIELD.findall(text)}


def _method(returned: str, arguments: str, thrown: str) -> Method:
    result = _fields(thrown)
    return Method(_fields(arguments), result if returned == "void" else {0: Field("success", returned), **result})


_TEXT = _COMMENT.sub("", _IDL.read_text())
ENUMS: Mapping[str, Mapping[int, str]] = {
    name: {int(value): member for member, value in _MEMBER.findall(members)} for name, members in _ENUM.findall(_TEXT)
}
STRUCTS: Mapping[str, Fields] = {name: _fields(fields) for name, fields in _STRUCT.findall(_TEXT)}
METHODS: Mapping[str, Method] = {
    name: _method(returned, arguments, thrown) for returned, name, arguments, thrown in _METHOD.findall(_TEXT)
}
APPLICATION_EXCEPTION: Fields = {1: Field("message", "string"), 2: Field("type", "i32")}
"""Thrift's own exception."""


def element_types(type: str) -> list[str]:
    """The types in the angle brackets of a container."""
    return [each.strip() for each in type.partition("<")[2].rstrip(">").split(",")]
