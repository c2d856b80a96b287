"""The tables of the HTTP API, from its table of endpoints and the schemas of its shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from types import NoneType
from typing import Any

from pinlater.console.endpoint import Content, Endpoint
from pinlater.console.endpoints.fields import Nothing
from pinlater.console.openapi import document, query_schema, schemas
from pinlater.console.problems import STATUSES
from pinlater.console.routes import ENDPOINTS

_PREFIX = "#/components/schemas/"


def _endpoints() -> Iterator[str]:
    for group in document()["tags"]:
        yield from (f"### {group['name'].capitalize()}", "", group["description"], "")
        for endpoint in ENDPOINTS:
            if endpoint.group == group["name"]:
                yield from _endpoint(endpoint)


def _endpoint(endpoint: Endpoint[Any, Any, Any]) -> Iterator[str]:
    yield from (f"#### {endpoint.method} {endpoint.path}", "", endpoint.description, "")
    yield f"- Body: {_shape(endpoint.body)}"
    yield f"- Answer: {int(endpoint.status)}, {_shape(endpoint.answer)}"
    if endpoint.header is not None:
        yield f"- Header `{endpoint.header.name}`: {endpoint.header.description}"
    yield from (f"- Client: `{'`, `'.join(endpoint.calls.split(', '))}`", "")
    if endpoint.query is not Nothing:
        yield from _fields("parameter", query_schema(endpoint.query))


def _shape(shape: type[Any]) -> str:
    if shape in (Nothing, NoneType):
        return "none"
    return "the body of a job" if shape is Content else _link(shape.__name__)


def _shapes() -> Iterator[str]:
    for name, schema in schemas().items():
        yield from (f"### {name}", "", schema.get("description", ""), "")
        yield from _fields("field", schema)


def _fields(kind: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"| {kind} | type | meaning |", "|---|---|---|")
    required = schema["required"] if schema.get("additionalProperties") is False else ()
    for name, field in schema["properties"].items():
        default = field.get("default")
        meaning = field.get("description", "")
        if name in required:
            meaning += " Needed."
        elif default not in (None, "", [], {}, ()):
            meaning += f" Default: `{str(default).lower() if isinstance(default, bool) else default}`."
        yield f"| `{name}` | {_type(field)} | {meaning.strip()} |"
    yield ""


def _type(field: Mapping[str, Any]) -> str:
    if "$ref" in field:
        return _link(field["$ref"].removeprefix(_PREFIX))
    if "anyOf" in field:
        return " or ".join(_type(kind) for kind in field["anyOf"])
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if field.get("type") == "array":
        return f"list of {_type(field['items'])}"
    if field.get("type") == "object":
        return f"object of {_type(field['additionalProperties'])}"
    bounds = [f"≥ {field['minimum']}"] if field.get("minimum", 0) > 0 else []
    bounds += [f"≤ {field['maximum']}"] if field.get("maximum", 10**6) < 10**6 else []
    return " ".join([field.get("type", "any JSON"), *bounds])


def _link(name: str) -> str:
    return f"[{name}](#{name.lower()})"


def _statuses() -> Iterator[str]:
    """The errors in the order in which they are looked for."""
    yield from ("| error of the client | status |", "|---|---|")
    for kind, status in STATUSES.items():
        yield f"| `{kind.__name__}` | {status.value} |"
    other = HTTPStatus.SERVICE_UNAVAILABLE
    yield f"| every other `WorldError` | {other.value} |"


TABLES: dict[str, Callable[[], Iterator[str]]] = {
    "endpoints": _endpoints,
    "shapes": _shapes,
    "statuses": _statuses,
}
