"""Pages that name tests name tests that exist, and the contract's page leaves none of its own out."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

PAGES = (
    "tests/promises/GUARANTEES.md",
    "tests/promises/README.md",
    "tests/promises/SDK.md",
    "tests/promises/MYSQL.md",
    "tests/promises/REDIS.md",
)
ROW = re.compile(r"^\|(.*)\|(.*)\|$", re.MULTILINE)
NAME = re.compile(r"`(test_\w+)`")
# What is measured, or takes hours, is shown by a command.
COMMAND = re.compile(r"`make ([a-z-]+)[^`]*`")


def defined_in(folder: Path) -> set[str]:
    """Names of the test functions below the folder, as Python reads them: what is commented out or quoted is none."""
    return {
        node.name
        for path in folder.rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


@pytest.fixture(scope="module")
def defined(repository: Path) -> set[str]:
    """Every test there is."""
    return defined_in(repository / "tests")


@pytest.mark.parametrize("page", PAGES)
def test_every_promise_names_tests_that_exist(repository: Path, defined: set[str], page: str) -> None:
    text = (repository / page).read_text()
    promises = {promise.strip(): NAME.findall(shown) + COMMAND.findall(shown) for promise, shown in ROW.findall(text)}
    promises = {promise: tests for promise, tests in promises.items() if promise not in ("promise", "---")}
    assert len(promises) > 10
    assert [promise for promise, tests in promises.items() if not tests] == []
    assert sorted(set(NAME.findall(text)) - defined) == []
    makefile = (repository / "Makefile").read_text()
    assert [target for target in COMMAND.findall(text) if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []


def test_every_test_of_the_promises_stands_behind_one(repository: Path) -> None:
    folder = repository / "tests/promises"
    named = set(NAME.findall((folder / "README.md").read_text()))
    assert sorted(defined_in(folder) - named) == []
