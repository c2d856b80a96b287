"""The methods of the service as the codec needs them, made once from the generated structs (`generated/structs.py`).

A received struct is decoded into its class; a struct to send may be any object with the same attributes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

from thrift.Thrift import TMessageType, TType

from pinlater.wire.checks import Check, build_check, required_fields
from pinlater.wire.generated import structs
from pinlater.wire.generated.structs import Spec

STRICT_VERSION = 0x8001


class Shape(NamedTuple):
    """A struct to encode or decode: its class, and the pair of class and spec that the C codec expects."""

    cls: type[Any]
    spec: Spec
    pair: list[Any]

    @classmethod
    def of(cls, struct: type[Any], spec: Spec) -> Shape:
        """Returns the shape of a class with that spec."""
        return cls(struct, spec, [struct, spec])


class Method:
    """Everything that is known about one method. Data that only servers need is made with the first call."""

    def __init__(self, name: str) -> None:
        arguments: type[Any] = getattr(structs, f"{name}_args")
        result = structs.RESULTS[name]
        self.name = name
        self.wire_name = name.encode()
        self.call_head = message_head(self.wire_name, TMessageType.CALL)  # up to the sequence id
        self.arguments = Shape.of(arguments, structs.SPECS[arguments])
        self.returns = result[0] is not None
        self.returns_many = self.returns and result[0][1] in (TType.LIST, TType.MAP)
        self.result = Shape.of(_ReceivedResult, result)

    @cached_property
    def reply_head(self) -> bytes:
        """The header of an answer, up to the sequence id."""
        return message_head(self.wire_name, TMessageType.REPLY)

    @cached_property
    def argument_names(self) -> tuple[str, ...]:
        """All but the context."""
        return tuple(entry[2] for entry in self.arguments.spec[2:])

    @cached_property
    def strict_arguments(self) -> Shape:
        """The arguments with all text as bytes."""
        return Shape.of(UndecodedText, _with_text_as_bytes(self.arguments.spec))

    @cached_property
    def check_arguments(self) -> Check:
        """The checks of a call."""
        return build_check(self.arguments.cls, self.arguments.spec)

    @cached_property
    def check_result(self) -> Check:
        """The checks of an answer."""
        return build_check(_ReceivedResult, self.result.spec)

    @cached_property
    def required_in_value(self) -> Callable[[Any], tuple[Any, ...]] | None:
        """Reads what an answer without an exception must have; None if that takes the look of `check_result`."""
        success = self.result.spec[0]
        if success is None or success[1] != TType.STRUCT:
            return None
        return required_fields(success[3][0], success[3][1], success[2])

    @cached_property
    def list_field(self) -> str:
        """The first field of the struct that it returns, if that is a list of structs; otherwise ''."""
        success = self.result.spec[0]
        if success is None or success[1] != TType.STRUCT:
            return ""
        first = next(entry for entry in success[3][1] if entry is not None)
        is_list_of_structs = first[1] == TType.LIST and first[3][0] == TType.STRUCT
        return str(first[2]) if is_list_of_structs else ""


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


METHODS = {method.wire_name: method for method in map(Method, structs.RESULTS)}
METHODS_BY_CALL_HEAD = {method.call_head: method for method in METHODS.values()}
METHODS_BY_NAME = {method.name: method for method in METHODS.values()}
