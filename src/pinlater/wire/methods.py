"""The methods of the service as the codec needs them, built once from the generated types.

What comes in is decoded into the plain classes of `generated/received.py`, which have the field names of the Thrift compiler's (`ttypes`):
they have no `__init__`, so that an object costs 50 ns instead of a microsecond, and a field that was not sent shows its default without
having been set. The compiler's classes are for code that builds messages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from thrift.Thrift import TMessageType, TType

from pinlater.wire.checks import Check, build_check
from pinlater.wire.generated import PinLater, received
from pinlater.wire.generated.required import REQUIRED

Spec = tuple[Any, ...]
STRICT_VERSION = 0x8001


@dataclass(frozen=True, slots=True)
class Shape:
    """A struct to decode: the class to make, and the pair of class and spec that the C codec asks for."""

    cls: type[Any]
    pair: list[Any]
    spec: Spec


@dataclass(frozen=True, slots=True)
class Method:
    """All that is known of one method. The `*_pair`s are what the C codec wants: a class and its spec."""

    name: str
    wire_name: bytes
    call_head: bytes  # message header up to the sequence id
    reply_head: bytes
    arguments_class: Callable[..., Any]  # generated, for building
    arguments_pair: list[Any]
    received_arguments: Shape
    strict_arguments: Shape  # the same with all text as bytes
    check_arguments: Check
    returns: bool
    returns_many: bool  # a list or a map
    list_field: str  # the first field of the struct that it returns, if that is a list of structs; else ''
    result_pair: list[Any]
    received_result: Shape
    check_result: Check


class UndecodedText:
    """Any struct with its text as bytes, of a message that is decoded again to see whether they are UTF-8."""

    def __getattr__(self, field: str) -> None:
        """A field that was not sent."""


class ReceivedTypes:
    """The classes that incoming structs are decoded into; with `text_as_bytes` nothing is decoded from UTF-8."""

    def __init__(self, *, text_as_bytes: bool = False) -> None:
        self._text_as_bytes = text_as_bytes
        self._shapes: dict[type[Any], Shape] = {}

    def shape(self, generated: type[Any]) -> Shape:
        """The shape for a generated class."""
        known = self._shapes.get(generated)
        if known is None:
            spec = tuple(self._entry(entry) for entry in generated.thrift_spec)
            cls = UndecodedText if self._text_as_bytes else getattr(received, generated.__name__)
            known = self._shapes[generated] = Shape(cls, [cls, spec], spec)
        return known

    def _entry(self, entry: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
        if entry is None:
            return None
        number, kind, name, argument, default = entry
        return number, kind, name, self._argument(kind, argument), default

    def _argument(self, kind: int, argument: Any) -> Any:
        """The type argument of a spec entry, with our classes in place of the compiler's."""
        if kind == TType.STRUCT:
            shape = self.shape(argument[0])
            return [shape.cls, shape.spec]
        if kind == TType.STRING:
            return "BINARY" if self._text_as_bytes else argument
        if kind in (TType.LIST, TType.SET):
            element, inner, immutable = argument
            return element, self._argument(element, inner), immutable
        if kind == TType.MAP:
            key, key_inner, value, value_inner, immutable = argument
            return key, self._argument(key, key_inner), value, self._argument(value, value_inner), immutable
        return argument


def message_head(name: bytes, kind: int) -> bytes:
    """A strict message header up to, not including, the sequence id."""
    return b"".join((STRICT_VERSION.to_bytes(2, "big"), bytes((0, kind)), len(name).to_bytes(4, "big"), name))


def _build(name: str, as_text: ReceivedTypes, as_bytes: ReceivedTypes) -> Method:
    arguments_class = getattr(PinLater, f"{name}_args")
    result_class = getattr(PinLater, f"{name}_result")
    arguments, result = as_text.shape(arguments_class), as_text.shape(result_class)
    wire_name = name.encode()
    every_argument = tuple(entry[2] for entry in arguments_class.thrift_spec if entry is not None)
    return Method(
        name=name,
        wire_name=wire_name,
        call_head=message_head(wire_name, TMessageType.CALL),
        reply_head=message_head(wire_name, TMessageType.REPLY),
        arguments_class=arguments_class,
        arguments_pair=[arguments_class, arguments_class.thrift_spec],
        received_arguments=arguments,
        strict_arguments=as_bytes.shape(arguments_class),
        check_arguments=build_check(
            arguments.cls, arguments.spec, {**REQUIRED, arguments.cls.__name__: every_argument}
        ),
        returns=result_class.thrift_spec[0] is not None,
        returns_many=result_class.thrift_spec[0] is not None
        and result_class.thrift_spec[0][1] in (TType.LIST, TType.MAP),
        list_field=_list_field(result_class.thrift_spec[0]),
        result_pair=[result_class, result_class.thrift_spec],
        received_result=result,
        check_result=build_check(result.cls, result.spec, REQUIRED),
    )


def _list_field(success: Any) -> str:
    if success is None or success[1] != TType.STRUCT:
        return ""
    first = next(entry for entry in success[3][1] if entry is not None)
    is_list_of_structs = first[1] == TType.LIST and first[3][0] == TType.STRUCT
    return str(first[2]) if is_list_of_structs else ""


def _build_all() -> dict[bytes, Method]:
    as_text, as_bytes = ReceivedTypes(), ReceivedTypes(text_as_bytes=True)
    names = [name.removesuffix("_args") for name in vars(PinLater) if name.endswith("_args")]
    methods = [_build(name, as_text, as_bytes) for name in names]
    return {method.wire_name: method for method in methods}


METHODS = _build_all()
METHODS_BY_CALL_HEAD = {method.call_head: method for method in METHODS.values()}
METHODS_BY_NAME = {method.name: method for method in METHODS.values()}
