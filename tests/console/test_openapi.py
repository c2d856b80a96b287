"""The document that the console serves, and the table that it is made from."""

from __future__ import annotations

import inspect
import re

from openapi_spec_validator import validate

from pinlater.client import AsyncClient
from pinlater.console.openapi import document, schemas
from pinlater.console.routes import ENDPOINTS
from tests.console.caller import Caller

# What old servers know: `count_jobs`, `list_bulk_runs`, and answers with outcomes, say more.
NOT_OFFERED = {"ack_plain", "bulk_runs", "checkpoint_plain", "count", "ensure_queue"}


async def test_the_document_is_served(caller: Caller) -> None:
    answer = await caller.get("/v1/openapi.json")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json == document()


def test_the_document_is_openapi_3_1() -> None:
    validate(document())


def test_each_endpoint_is_an_operation_with_a_name_of_its_own() -> None:
    operations = [operation for methods in document()["paths"].values() for operation in methods.values()]
    names = [operation["operationId"] for operation in operations]
    assert sorted(names) == sorted({endpoint.name for endpoint in ENDPOINTS})
    assert all(operation["summary"] and operation["tags"] for operation in operations)
    assert {operation["tags"][0] for operation in operations} == {tag["name"] for tag in document()["tags"]}


def test_every_call_of_the_client_has_an_endpoint() -> None:
    """A method that the client gets is offered over HTTP too, or named here."""
    methods = {name for name, value in vars(AsyncClient).items() if inspect.isfunction(value) and name[0] != "_"}
    offered = {name for endpoint in ENDPOINTS for name in endpoint.calls.split(", ")}
    assert offered == methods - NOT_OFFERED


def test_fields_have_units_that_the_client_knows() -> None:
    """A number of a time or a span says so in its name."""
    names = {name for schema in schemas().values() for name in schema["properties"]}
    assert [name for name in names if re.search(r"(timeout|delay|wait|expir|deadline|since)", name)
            and not re.search(r"_ms$|^waiting|^expired$", name)] == []  # fmt: skip
