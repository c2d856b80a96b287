"""The methods of the service as the codec needs them, built once from the generated structs (`generated/structs.py`).

A struct that comes in is decoded into its class; what goes out may be any object with the same attributes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from thrift.Thrift import TMessageType, TType

from pinlater.wire.checks import Check, build_check
from pinlater.wire.generated import structs
from pinlater.wire.generated.structs import Spec

STRICT_VERSION = 0x8001


@dataclass(frozen=True, slots=True)
class Shape:
    """A struct to encode or decode: its class, and the pair of class and spec that the C codec asks for."""

    cls: type[Any]
    spec: Spec
    pair: list[Any]

    @classmethod
    def of(cls, struct: type[Any], spec: Spec) -> Shape:
        """Returns the shape of a class with that spec."""
        return cls(struct, spec, [struct, spec])


@dataclass(frozen=True, slots=True)
class Method:
    """All that is known of one method."""

    name: str
    wire_name: bytes
    call_head: bytes  # message header up to the sequence id
    reply_head: bytes
    arguments: Shape
    argument_names: tuple[str, ...]  # but for the context
    strict_arguments: Shape  # the same with all text as bytes
    check_arguments: Check
    returns: bool
    returns_many: bool  # a list or a map
    list_field: str  # the first field of the struct that it returns, if that is a list of structs; else ''
    result: Shape
    check_result: Check


class UndecodedText:
    """Any struct with its text as bytes, of a message that is decoded again to see whether they are UTF-8."""

    def __getattr__(self, field: str) -> None:
        """A field that was not sent."""


def _with_text_as_bytes(spec: Spec) -> Spec:
    return tuple(entry and (*entry[:3], _bytes_in(entry[1], entry[3]), entry[4]) for entry in spec)


def _bytes_in(kind: int, argument: Any) -> Any:
    """The type argument of a spec's entry, with bytes in the place of text."""
    if kind == TType.STRUCT:
        return [UndecodedText, _with_text_as_bytes(argument[1])]
    if kind == TType.STRING:
        return "BINARY"
    if kind in (TType.LIST, TType.SET):
        element, inner, immutable = argument
        return element, _bytes_in(element, inner), immutable
    if kind == TType.MAP:
        key, key_inner, value, value_inner, immutable = argument
        return key, _bytes_in(key, key_inner), value, _bytes_in(value, value_inner), immutable
    return argument


class _ReceivedResult:
    """The answer to a call: a value or an exception."""

    success: Any = None
    e: Any = None


def message_head(name: bytes, kind: int) -> bytes:
    """A strict message header up to, not including, the sequence id."""
    return b"".join((STRICT_VERSION.to_bytes(2, "big"), bytes((0, kind)), len(name).to_bytes(4, "big"), name))


def _build(name: str) -> Method:
    arguments_class: type[Any] = getattr(structs, f"{name}_args")
    arguments, result = structs.SPECS[arguments_class], structs.RESULTS[name]
    as_bytes = _with_text_as_bytes(arguments)
    wire_name = name.encode()
    return Method(
        name=name,
        wire_name=wire_name,
        call_head=message_head(wire_name, TMessageType.CALL),
        reply_head=message_head(wire_name, TMessageType.REPLY),
        arguments=Shape.of(arguments_class, arguments),
        argument_names=tuple(entry[2] for entry in arguments[2:]),
        strict_arguments=Shape.of(UndecodedText, as_bytes),
        check_arguments=build_check(arguments_class, arguments),
        returns=result[0] is not None,
        returns_many=result[0] is not None and result[0][1] in (TType.LIST, TType.MAP),
        list_field=_list_field(result[0]),
        result=Shape.of(_ReceivedResult, result),
        check_result=build_check(_ReceivedResult, result),
    )


def _list_field(success: Any) -> str:
    if success is None or success[1] != TType.STRUCT:
        return ""
    first = next(entry for entry in success[3][1] if entry is not None)
    is_list_of_structs = first[1] == TType.LIST and first[3][0] == TType.STRUCT
    return str(first[2]) if is_list_of_structs else ""


METHODS = {method.wire_name: method for method in map(_build, structs.RESULTS)}
METHODS_BY_CALL_HEAD = {method.call_head: method for method in METHODS.values()}
METHODS_BY_NAME = {method.name: method for method in METHODS.values()}
