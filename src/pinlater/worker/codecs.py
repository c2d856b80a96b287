"""How a task's arguments become a job's body and back. JSON unless said otherwise; MessagePack is there too.

Only what the declared types allow comes out of a body, so a job that anybody may have enqueued can't make anything but those.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol

import msgspec


class Codec(Protocol):
    """Makes bytes of values and values of bytes. `content_type` tells which codec made a body; it travels in the job's headers."""

    content_type: str

    def encode(self, value: Any) -> bytes: ...

    def decode(self, body: bytes, into: Any) -> Any:
        """A value of the type `into`. Raises anything where the body isn't one."""
        ...


def _to_builtin(value: Any) -> Any:
    """For types that msgspec doesn't know: pydantic's models."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise NotImplementedError(f"can't encode a {type(value).__qualname__}")


def _from_builtin(into: type, value: Any) -> Any:
    if hasattr(into, "model_validate"):
        return into.model_validate(value)
    raise NotImplementedError(f"can't decode a {into.__qualname__}")


class JsonCodec:
    """JSON. Dates, UUIDs, enums, dataclasses, msgspec structs and pydantic models included."""

    content_type = "application/json"

    def __init__(self) -> None:
        self._encoder = msgspec.json.Encoder(enc_hook=_to_builtin)
        self._decoder: Callable[[Any], msgspec.json.Decoder[Any]] = lru_cache(512)(
            lambda into: msgspec.json.Decoder(into, dec_hook=_from_builtin)
        )

    def encode(self, value: Any) -> bytes:
        return self._encoder.encode(value)

    def decode(self, body: bytes, into: Any) -> Any:
        return self._decoder(into).decode(body)


class MessagePackCodec:
    """MessagePack: smaller than JSON, and keeps bytes as they are."""

    content_type = "application/msgpack"

    def __init__(self) -> None:
        self._encoder = msgspec.msgpack.Encoder(enc_hook=_to_builtin)
        self._decoder: Callable[[Any], msgspec.msgpack.Decoder[Any]] = lru_cache(512)(
            lambda into: msgspec.msgpack.Decoder(into, dec_hook=_from_builtin)
        )

    def encode(self, value: Any) -> bytes:
        return self._encoder.encode(value)

    def decode(self, body: bytes, into: Any) -> Any:
        return self._decoder(into).decode(body)
