"""Turns a task's arguments into a job's body and back: JSON by default, or MessagePack.

A body decodes to values of the declared types only, whatever client enqueued it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from math import isfinite
from typing import Any, Protocol

import msgspec


class Codec(Protocol):
    """Encodes and decodes values. `content_type` names the codec in the headers of a job."""

    content_type: str

    def encode(self, value: Any) -> bytes: ...

    def decode(self, body: bytes, into: Any) -> Any:
        """A value of the type `into`. Raises any exception if the body isn't one."""
        ...


def _to_builtin(value: Any) -> Any:
    """For pydantic models, which msgspec doesn't know."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise NotImplementedError(f"can't encode a value of type {type(value).__qualname__}")


def _from_builtin(into: type, value: Any) -> Any:
    if hasattr(into, "model_validate"):
        return into.model_validate(value)
    raise NotImplementedError(f"can't decode a value of type {into.__qualname__}")


def _has_no_number(value: Any) -> bool:
    """Whether NaN or an infinity is in a value of builtin types."""
    if isinstance(value, Mapping):
        return any(map(_has_no_number, value.values()))
    if isinstance(value, list | tuple | set | frozenset):
        return any(map(_has_no_number, value))
    return isinstance(value, float) and not isfinite(value)


class _MsgspecCodec:
    """Keeps a decoder for each type."""

    def __init__(self, content_type: str, encoder: Any, decoder: Any) -> None:
        self.content_type = content_type
        self._encoder = encoder(enc_hook=_to_builtin)
        self._decoder = lru_cache(512)(lambda into: decoder(into, dec_hook=_from_builtin))

    def encode(self, value: Any) -> bytes:
        encoded: bytes = self._encoder.encode(value)
        return encoded

    def decode(self, body: bytes, into: Any) -> Any:
        return self._decoder(into).decode(body)


class JsonCodec(_MsgspecCodec):
    """JSON, including dates, UUIDs, enums, dataclasses, msgspec structs and pydantic models."""

    def __init__(self) -> None:
        super().__init__("application/json", msgspec.json.Encoder, msgspec.json.Decoder)

    def encode(self, value: Any) -> bytes:
        """Raises ValueError for a number that JSON does not have: it would be written as null."""
        encoded: bytes = self._encoder.encode(value)
        if b"null" in encoded and _has_no_number(msgspec.to_builtins(value, enc_hook=_to_builtin)):
            raise ValueError("JSON has neither NaN nor infinity")
        return encoded


class MessagePackCodec(_MsgspecCodec):
    """MessagePack: smaller than JSON, and holds bytes unchanged."""

    def __init__(self) -> None:
        super().__init__("application/msgpack", msgspec.msgpack.Encoder, msgspec.msgpack.Decoder)


def decoder_of(codec: Codec | None, into: Any) -> Callable[[bytes], Any] | None:
    """What decodes bodies to that type, for a codec of this module; None for one of the user's own."""
    if isinstance(codec, _MsgspecCodec) and type(codec) in (JsonCodec, MessagePackCodec):
        decode: Callable[[bytes], Any] = codec._decoder(into).decode  # noqa: SLF001 - of this module
        return decode
    return None


CARRIED = "write a type of JSON, a date, a UUID, an enum, a dataclass, a msgspec struct or a pydantic model, or give the task a codec"


def cant_carry(codec: Codec, kind: Any) -> bool:
    """Whether a codec of this module can decode no value of a class, so that each job with one would fail. False if that is not certain:
    for codecs of users, for types that are not classes, and for `object`."""
    if type(codec) not in (JsonCodec, MessagePackCodec) or not isinstance(kind, type) or kind is object:
        return False
    if hasattr(kind, "model_validate") or type(kind).__instancecheck__ is not type.__instancecheck__:
        return False  # an abstract class may count a value of JSON as its instance
    try:
        return isinstance(msgspec.inspect.type_info(kind), msgspec.inspect.CustomType)
    except Exception:  # noqa: BLE001 - such a type is refused or accepted elsewhere
        return False
