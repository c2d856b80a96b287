"""Tests wait for events, or poll with a deadline; they do not sleep.

Only the bodies of tests are checked: not the helper functions that they call, where processes, load and fakes take time on purpose.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path("tests")

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def sleeps_in(source: str) -> Iterator[int]:
    """The lines at which the body of a test calls `sleep`: outside loops, functions within it, and `sleep(0)`, which waits for nothing."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            for statement in node.body:
                yield from _sleeps_below(statement)


def _sleeps_below(node: ast.AST) -> Iterator[int]:
    if isinstance(node, (*_LOOPS, *_FUNCTIONS)):
        return
    if isinstance(node, ast.Call) and _name(node.func) == "sleep" and not _is_zero(node):
        yield node.lineno
    for child in ast.iter_child_nodes(node):
        yield from _sleeps_below(child)


def _name(called: ast.expr) -> str:
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


def _is_zero(call: ast.Call) -> bool:
    return len(call.args) == 1 and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0


def test_no_test_sleeps() -> None:
    found = [f"{path}:{line}" for path in sorted(TESTS.rglob("test_*.py")) for line in sleeps_in(path.read_text())]
    assert found == [], "wait for an event, or poll in a loop with a deadline"


def test_polling_and_the_work_of_fakes_are_no_sleeps() -> None:
    source = """
async def test_waiting():
    await asyncio.sleep(0)
    while not done():
        await asyncio.sleep(0.01)
    async def handler():
        await asyncio.sleep(10)
    with thing():
        time.sleep(1)
def helper():
    time.sleep(1)
"""
    assert list(sleeps_in(source)) == [9]
