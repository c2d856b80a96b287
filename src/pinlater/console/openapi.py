"""The OpenAPI 3.1 document of the table of endpoints."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from types import NoneType
from typing import Any

from msgspec import json

from pinlater.console.endpoint import Content, Endpoint, HeaderParameter
from pinlater.console.endpoints.fields import Nothing, RequestShape
from pinlater.console.problems import MEDIA_TYPE, Problem
from pinlater.console.reading import BYTES, JOB_BODIES, JSON
from pinlater.console.routes import ENDPOINTS
from pinlater.version import __version__

Schema = dict[str, Any]
_REF = "#/components/schemas/{name}"
_PATH_NAMES = {"queue": "The name of a queue.", "descriptor": "The name of a job, such as `emails:s1:p1:48213`."}
_GROUPS = {
    "jobs": "Store, look up, list, count, cancel, run, retry and delete jobs.",
    "claims": "Dequeue, ack, heartbeat, checkpoint and release.",
    "queues": "Create, list, configure, pause and delete queues.",
    "servers": "The servers behind the API.",
    "failures": "Failed attempts in groups.",
    "workers": "The workers that ask for jobs or hold some.",
    "bulk": "Changes of many jobs in the background.",
    "search": "Jobs with a text in them.",
    "audit": "Changes and their callers.",
}


@cache
def document() -> Schema:
    """The whole document; do not change it."""
    paths: dict[str, Schema] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    whole = {
        "openapi": "3.1.0",
        "info": {
            "title": "PinLater",
            "version": __version__,
            "summary": "A durable asynchronous job service.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{}, {"token": []}],
        "tags": [{"name": name, "description": text} for name, text in _GROUPS.items()],
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "For servers with access control: a token of `pinlater token create`.",
                }
            },
        },
    }
    return dict(json.decode(json.encode(whole)))  # defaults become values of JSON


@cache
def schemas() -> Schema:
    """The schema of each body and answer, and of their parts, by name."""
    shapes = {shape for one in ENDPOINTS for shape in (one.body, one.answer)} - {Content, NoneType, Nothing}
    _, components = json.schema_components([*shapes, Problem], ref_template=_REF)
    return dict(sorted(components.items()))


def query_schema(shape: type[RequestShape]) -> Schema:
    """The parameters of a query, as the schema of an object."""
    _, components = json.schema_components([shape], ref_template=_REF)
    return dict(components[shape.__name__])


def _operation(endpoint: Endpoint[Any, Any, Any]) -> Schema:
    operation: Schema = {
        "operationId": endpoint.name,
        "tags": [endpoint.group],
        "summary": endpoint.description.partition(". ")[0].rstrip("."),
        "description": endpoint.description,
        "parameters": list(_parameters(endpoint)),
        "responses": {str(int(endpoint.status)): _success(endpoint), "default": _problem()},
    }
    if endpoint.body is not Nothing:
        operation["requestBody"] = _body(endpoint)
    return operation


def _parameters(endpoint: Endpoint[Any, Any, Any]) -> Iterator[Schema]:
    for name in re.findall(r"{(\w+)}", endpoint.path):
        schema = {"type": "string", "minLength": 1}
        yield {"name": name, "in": "path", "required": True, "description": _PATH_NAMES[name], "schema": schema}
    query = query_schema(endpoint.query)
    for name, schema in query["properties"].items():
        required = name in query["required"]
        yield {"name": name, "in": "query", "required": required, "schema": _without_null(schema)}
    if endpoint.header is not None:
        yield _header(endpoint.header)


def _without_null(schema: Schema) -> Schema:
    """Removes null from the types of parameters: a parameter of a URL that may be null may be left out."""
    kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    if len(kinds) != 1:
        return schema
    rest = {name: value for name, value in schema.items() if name not in ("anyOf", "default")}
    return {**kinds[0], **rest}


def _header(header: HeaderParameter) -> Schema:
    return {
        "name": header.name,
        "in": "header",
        "required": False,
        "description": header.description,
        "schema": {"type": "string", "minLength": 1},
    }


def _body(endpoint: Endpoint[Any, Any, Any]) -> Schema:
    if endpoint.body is Content:
        schemas_of = {JSON: {}, BYTES: {"type": "string", "format": "binary"}}
        content = {kind: {"schema": schemas_of.get(kind, {"type": "string"})} for kind in JOB_BODIES}
        return {"description": "The body of the job.", "required": True, "content": content}
    needed = bool(schemas()[endpoint.body.__name__]["required"])
    return {"required": needed, "content": {JSON: {"schema": _ref(endpoint.body)}}}


def _success(endpoint: Endpoint[Any, Any, Any]) -> Schema:
    if endpoint.answer is NoneType:
        return {"description": "Done."}
    if endpoint.answer is Content:
        return {"description": "The body.", "content": {BYTES: {"schema": {"type": "string", "format": "binary"}}}}
    text = schemas()[endpoint.answer.__name__].get("description", "The answer.")
    return {"description": text, "content": {JSON: {"schema": _ref(endpoint.answer)}}}


def _problem() -> Schema:
    return {"description": "An error.", "content": {MEDIA_TYPE: {"schema": _ref(Problem)}}}


def _ref(shape: type[Any]) -> Schema:
    return {"$ref": _REF.format(name=shape.__name__)}
