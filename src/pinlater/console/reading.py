"""Reads checked values from an HTTP request: the body in bounded pieces, JSON, the query. Every refusal names the field that is wrong.

Weakness: a body is decoded in one turn of the event loop. The largest one with the smallest items takes about half a second and
half a gigabyte.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, TypeVar, get_origin, get_type_hints
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request

from pinlater.client._token import checked
from pinlater.client.errors import TokenInvalid
from pinlater.console import field_hints
from pinlater.console.endpoint import Content, HeaderParameter
from pinlater.console.endpoints.fields import RequestShape
from pinlater.console.problems import RequestRefused, invalid, no_memory, refused
from pinlater.domain.byte_budget import ByteBudget
from pinlater.wire.limits import FRAME_BYTES_MAX

T = TypeVar("T")
JSON = "application/json"
TEXT, BYTES = "text/plain", "application/octet-stream"
JOB_BODIES = (TEXT, JSON, BYTES)
BODY_BYTES_MAX = FRAME_BYTES_MAX
BODY_READ_S = 60.0
# Items of a list in a request; at most as many as servers accept descriptors, unless they are configured otherwise.
ITEMS_MAX = 50_000
_UTF_8 = ("", "utf-8", "utf8", "us-ascii")
# Characters of an error of the decoder, which quotes the name of an unknown field, however long it is.
_ERROR_CHARS_MAX = 400
_PLACE = re.compile(r"(?P<text>.*?)(?: - at `\$\.?(?P<path>.*)`)?", re.DOTALL)
_NAMED = re.compile(r"(?P<problem>unknown|required) field `(?P<name>.*?)`")


@asynccontextmanager
async def body_of(request: Request, budget: ByteBudget) -> AsyncIterator[bytes]:
    """The body of the request. Its bytes count in the budget until the block ends."""
    _check_size(int(request.headers.get("content-length") or 0))
    held_bytes = 0
    pieces = []
    try:
        try:
            async with asyncio.timeout(BODY_READ_S):
                async for piece in request.stream():
                    held_bytes += len(piece)
                    budget.free_bytes -= len(piece)
                    _check_size(held_bytes)
                    if not budget.admits(held_bytes, alone=True):
                        raise no_memory("the request")
                    pieces.append(piece)
        except TimeoutError:
            raise refused(
                HTTPStatus.REQUEST_TIMEOUT, "REQUEST_TIMEOUT", f"The body did not come within {BODY_READ_S:g} s"
            ) from None
        yield b"".join(pieces)
    finally:
        budget.free_bytes += held_bytes


def _check_size(size_bytes: int) -> None:
    if size_bytes > BODY_BYTES_MAX:
        raise refused(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            "BODY_TOO_LARGE",
            f"The body of the request is too large: at most {BODY_BYTES_MAX} bytes are possible",
            field="body",
        )


def content_of(request: Request, data: bytes) -> Content:
    """The body of a job, which is the body of the request, of one of the types of `JOB_BODIES`."""
    media_type, charset = _content_type(request)
    if media_type not in ("", *JOB_BODIES) or (media_type == TEXT and charset not in _UTF_8):
        raise _unsupported(media_type, JOB_BODIES)
    try:
        if media_type == TEXT:
            data.decode()
        elif media_type == JSON:
            msgspec.json.decode(data)
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError) as error:
        raise invalid("body", f"The body of the job is not {media_type}: {error}") from None
    return Content(data, media_type)


def decoded(request: Request, data: bytes, shape: type[T]) -> T:
    """The JSON body of the request; an empty body is `{}`."""
    media_type, charset = _content_type(request)
    if data and (media_type not in ("", JSON) or charset not in _UTF_8):
        raise _unsupported(media_type, (JSON,))
    try:
        return msgspec.json.decode(_with_bounded_lists(data) or b"{}", type=shape)
    except msgspec.ValidationError as error:
        raise _wrong_field(error, shape, "body") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise invalid("body", f"The body of the request is not JSON: {error}") from None


def _with_bounded_lists(data: bytes) -> bytes:
    """Returns the JSON object, in which each name may occur once. Refuses a list with too many objects before these are created.

    An object takes up to some seventy times the bytes of `{}`.
    """
    if data.count(b"{") <= ITEMS_MAX:
        return data
    fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    for name, value in fields.items():
        if bytes(value).startswith(b"[") and len(msgspec.json.decode(value, type=list[msgspec.Raw])) > ITEMS_MAX:
            raise refused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "TOO_MANY", f"at most {ITEMS_MAX} items are possible", field=name
            )
    return msgspec.json.encode(fields)


def query_of(request: Request, shape: type[RequestShape]) -> Any:
    """Returns the query of the URL in this shape."""
    several = _fields_with_several(shape)
    given: dict[str, Any] = {}
    for name, value in _fields_of_query(request):
        if name in several:
            given.setdefault(name, []).append(value)
        elif name in given:
            raise invalid(name, f"The parameter {name!r} was given twice")
        else:
            given[name] = value
    return fields_of(given, shape, "query")


def _fields_of_query(request: Request) -> Iterator[tuple[str, str]]:
    """The fields in their order. Refuses what is not UTF-8: Starlette puts the same character in its place, whatever it was, so that two
    keys would be one."""
    text = request.scope["query_string"].decode("latin-1")
    for name, value in parse_qsl(text, keep_blank_values=True, encoding="latin-1"):
        try:
            yield name.encode("latin-1").decode(), value.encode("latin-1").decode()
        except UnicodeDecodeError:
            raise invalid(name if name.isascii() else "query", "The query has text that is not UTF-8") from None


def fields_of(given: Mapping[str, Any], shape: type[T], whole: str) -> T:
    """The fields of a query or a form, with strings as values, or None if a form has none, in the types of the shape. `whole`: the name
    in an error that concerns no single field.
    """
    try:
        found = msgspec.convert(given, shape, strict=False)
    except msgspec.ValidationError as error:
        raise _wrong_field(error, shape, whole) from None
    for name, text in given.items():
        if text is not None and getattr(found, name) is None:  # the decoder takes `null` for the absent value
            raise invalid(name, f"{text!r} is not a value")
    return found


def header_of(request: Request, header: HeaderParameter | None) -> str:
    """The value of an endpoint's own header; '' if it has none, or none was given."""
    if header is None:
        return ""
    value = request.headers.get(header.name)
    if value == "":
        raise invalid(header.name, f"The header {header.name} is empty")
    return value or ""


def bearer_of(request: Request) -> str:
    """The token of the request; '' if it has none. Raises RequestRefused for a string that can't be one."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        return ""
    try:
        return checked(token.strip(), "Authorization")
    except ValueError as error:
        raise refused(HTTPStatus.UNAUTHORIZED, TokenInvalid.detail, str(error), field="Authorization") from None


def _fields_with_several(shape: type[RequestShape]) -> set[str]:
    return {name for name, kind in get_type_hints(shape).items() if get_origin(kind) is Sequence}


def _content_type(request: Request) -> tuple[str, str]:
    media_type, _, parameters = request.headers.get("content-type", "").partition(";")
    charset = re.search(r"charset=\"?([^\s;\"]+)", parameters, re.IGNORECASE)
    return media_type.strip().lower(), charset[1].lower() if charset else ""


def _unsupported(media_type: str, possible: Sequence[str]) -> RequestRefused:
    return refused(
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        "UNSUPPORTED_MEDIA_TYPE",
        f"Content-Type {media_type!r} is not supported here; possible: {', '.join(possible)}, in UTF-8",
        field="Content-Type",
    )


def _wrong_field(error: msgspec.ValidationError, shape: type, whole: str) -> RequestRefused:
    """Returns the decoder's error as a refusal that names the field. The decoder gives the place only at the end of its text."""
    said = str(error)
    if len(said) > _ERROR_CHARS_MAX:
        said = f"{said[: _ERROR_CHARS_MAX // 2]}…{said[-_ERROR_CHARS_MAX // 2 :]}"
    found = _PLACE.fullmatch(said)
    text, path = (found["text"], found["path"] or "") if found else (said, "")
    named = _NAMED.search(text)
    parts = [part for part in (path, named["name"] if named else "") if part]
    if whole == "query" and named and named["problem"] == "required":
        text = f"The parameter `{named['name']}` is missing"
    if named and named["problem"] == "unknown":
        text = f"There is no {'parameter' if whole == 'query' else 'field'} `{named['name']}`"
        text += field_hints.hint(named["name"], field_hints.names_at(shape, path))
    if text.startswith("Invalid enum value"):
        text += f"; possible: {', '.join(field_hints.values_at(shape, path))}"
    if path.endswith("_ms") and text.startswith("Expected `int"):
        text += "; it is in milliseconds, such as 5000"
    return invalid(".".join(parts) or whole, text)
