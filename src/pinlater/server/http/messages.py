"""Requests and responses as values, and how a request's head becomes one."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

_QUERY_FIELDS_MAX = 32
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"


class BadRequest(Exception):
    """The caller's request can't be understood; its text goes back to the caller."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `path` is as received, not percent-decoded; header names are lower-case, and the last of equal ones counts.

    `fields`: the fields of the query in their order; a name may come several times.
    """

    method: str
    path: str
    fields: Sequence[tuple[str, str]]
    headers: Mapping[str, str]

    def last(self, name: str) -> str | None:
        """Returns the value of the last field of this name, or None if there is none."""
        return next((value for found, value in reversed(self.fields) if found == name), None)


@dataclass(frozen=True, slots=True)
class Response:
    """One answer."""

    status: int = 200
    content_type: str = TEXT
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[[Request], Awaitable[Response]]


def text_response(text: str, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(status, TEXT, text.encode(), headers or {})


def json_response(value: object) -> Response:
    return Response(200, JSON, json.dumps(value).encode() + b"\n")


def parse_request(method: bytes, target: bytes, headers: Sequence[tuple[bytes, bytes]]) -> Request:
    """Returns the request. Raises `BadRequest` for a target that is not a plain path with a small query."""
    text = target.decode("latin-1")
    path, _, query = text.partition("?")
    if not path.startswith("/"):
        raise BadRequest("the request's target must be a path")
    try:
        fields = parse_qsl(query, keep_blank_values=True, max_num_fields=_QUERY_FIELDS_MAX)
    except ValueError:
        raise BadRequest(f"more than {_QUERY_FIELDS_MAX} fields in the query") from None
    names = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers}
    return Request(method.decode("latin-1"), path, fields, names)
