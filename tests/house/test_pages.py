"""The dashboard uses the HTTP API and nothing else: a program can do over `/v1` what a page does."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from pinlater.client import AsyncClient
from pinlater.console.endpoint import Endpoint
from pinlater.console.routes import ENDPOINTS

PAGES = Path("src/pinlater/console/pages")
MAY_IMPORT = ("client", "console", "domain", "version")
"""Packages of `pinlater`. Of the client they use values and errors; `api` and `visitors` also have a client of the servers."""
HOLD_A_CLIENT = {"api.py", "visitors.py"}
CALLED_BY_PAGES = {"server_info"}
"""The client's methods that pages call without an endpoint between: what a visitor may do."""

_METHODS = {name for name, value in vars(AsyncClient).items() if inspect.iscoroutinefunction(value) and name[0] != "_"}


def imports_in(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """The modules of `pinlater` that a module imports, each with a name from it, or ''."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from ((node.module, alias.name) for alias in node.names if node.module.split(".")[0] == "pinlater")
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name.split(".")[0] == "pinlater")


def calls_of_a_client_in(tree: ast.AST) -> Iterator[str]:
    """The client's methods that are called on what is named a client."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in _METHODS and "client" in ast.unparse(node.value):
            yield node.attr


def trees(repository: Path) -> dict[str, ast.AST]:
    """The modules of the pages, by the names of their files."""
    return {path.name: ast.parse(path.read_text()) for path in sorted((repository / PAGES).rglob("*.py"))}


def test_pages_import_neither_servers_nor_stores(repository: Path) -> None:
    found = [
        (file, module)
        for file, tree in trees(repository).items()
        for module, _ in imports_in(tree)
        if module != "pinlater" and module.split(".")[1] not in MAY_IMPORT
    ]
    assert found == []


def test_the_endpoints_that_pages_ask_are_offered_to_programs(repository: Path) -> None:
    asked = set()
    for tree in trees(repository).values():
        for module, name in imports_in(tree):
            named = getattr(import_module(module), name, None) if ".endpoints." in module else None
            if isinstance(named, Endpoint):
                asked.add(named)
    assert len(asked) > 20
    assert {endpoint.name for endpoint in asked - set(ENDPOINTS)} == set()


def test_each_call_of_a_client_in_a_page_is_a_call_of_an_endpoint_too(repository: Path) -> None:
    called = {name for tree in trees(repository).values() for name in calls_of_a_client_in(tree)}
    offered = {name for endpoint in ENDPOINTS for name in endpoint.calls.split(", ")}
    assert called == CALLED_BY_PAGES
    assert called - offered == set()


def test_only_the_way_to_the_api_and_the_rights_of_visitors_have_a_client(repository: Path) -> None:
    clients = ("Client", "AsyncClient")
    held = {
        file
        for file, tree in trees(repository).items()
        for module, name in imports_in(tree)
        if module.startswith("pinlater.client") and (name.endswith(clients) or not name)
    }
    assert held == HOLD_A_CLIENT


def test_imports_and_calls_are_found() -> None:
    tree = ast.parse(
        "import pinlater.server.main\nfrom pinlater.client import AsyncClient\n"
        "async def show(self): await self._client.with_token('t').scan('q')"
    )
    assert list(imports_in(tree)) == [("pinlater.server.main", ""), ("pinlater.client", "AsyncClient")]
    assert list(calls_of_a_client_in(tree)) == ["scan"]
