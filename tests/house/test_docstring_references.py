"""Files, modules and classes that docstrings name in backticks exist: after a move the old name would mislead."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinlater.server.config.schema import keys
from tests.house.conftest import REPOSITORY

SOURCE = REPOSITORY / "src" / "pinlater"
_FILE = re.compile(r"[\w/]+\.(?:py|lua|sql|json|thrift)")
_DOTTED = re.compile(r"[a-z_]\w*(?:\.\w+)+")
_FILES = [f"/{path.relative_to(REPOSITORY)}" for top in ("src", "tests") for path in (REPOSITORY / top).rglob("*.*")]
_PACKAGES = {path.parent.name for path in SOURCE.rglob("__init__.py")}


def stale_in(docstring: str) -> list[str]:
    """The names of the docstring that are none: `file.py`, `module.Class`, and `package.module` of a package of ours."""
    names = re.findall(r"(?<!`)`([^`\s]+)`(?!`)", docstring)
    return [name for name in names if not (_is_there(name) if _FILE.fullmatch(name) else _resolves(name))]


def _is_there(file: str) -> bool:
    return any(path.endswith(f"/{file}") for path in _FILES)


def _resolves(name: str) -> bool:
    """True as well for what is no reference: a setting, a value's attribute, a name of the standard library."""
    parts = name.split(".")
    if not _DOTTED.fullmatch(name) or name in keys() or not (parts[0] in _PACKAGES or parts[-1][0].isupper()):
        return True
    module, last = "/".join(parts[:-1]), parts[-1]
    if _is_there(f"{module}/{last}.py") or _is_there(f"{module}/{last}/__init__.py"):
        return True
    defined = re.compile(rf"^(?:class |def |async def )?{last}\b", re.MULTILINE)
    places = [path for path in _FILES if path.endswith((f"/{module}.py", f"/{module}/__init__.py"))]
    return any(defined.search(Path(f"{REPOSITORY}{path}").read_text()) for path in places)


def _docstrings() -> Iterator[tuple[Path, str]]:
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield path.relative_to(SOURCE), ast.get_docstring(node) or ""


def test_names_in_docstrings_exist() -> None:
    assert [(str(path), name) for path, docstring in _docstrings() for name in stale_in(docstring)] == []


@pytest.mark.parametrize(
    "name", ["moved_away.py", "http_server.status.Source", "server.dispatch.others", "http.status.Sink"]
)
def test_a_stale_name_is_found(name: str) -> None:
    assert stale_in(f"Implements `{name}`.") == [name]


@pytest.mark.parametrize(
    "name", ["thrift.port", "job.body", "asyncio.run", "http.status.StatusSource", "storage/decide.py", "others"]
)
def test_other_names_are_left_alone(name: str) -> None:
    assert stale_in(f"As `{name}` says.") == []
