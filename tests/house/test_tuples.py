"""Hot paths make their values by `tuple.__new__`, past the classes' own calls: the type checker sees neither how many fields such a value
has nor which. These tests do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path("src")


class Literal(NamedTuple):
    """A value made by `tuple.__new__`: its class's name, and the arguments."""

    module: str
    line: int
    class_name: str
    values: ast.expr


def _is_tuple_new(node: ast.expr) -> bool:
    return ast.unparse(node) == "tuple.__new__"


def _aliases(tree: ast.Module) -> set[str]:
    """Names that stand for `tuple.__new__` in a module, in assignments of one name or of several at once."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                pairs = (
                    zip(target.elts, node.value.elts, strict=True)
                    if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
                    else [(target, node.value)]
                )
                found |= {ast.unparse(name) for name, value in pairs if _is_tuple_new(value)}
    return found


def literals(text: str, module: str) -> Iterator[Literal]:
    """Every value that the module makes so."""
    tree = ast.parse(text)
    aliases = _aliases(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (_is_tuple_new(node.func) or ast.unparse(node.func) in aliases):
            yield Literal(module, node.lineno, ast.unparse(node.args[0]), node.args[1])


def _is_other_value_with_new_head(values: ast.expr) -> bool:
    """Whether it is `(new, *other[1:])`, which has as many fields as the other value."""
    return isinstance(values, ast.Tuple) and re.fullmatch(r"\(\w+, \*\w+\[1:\]\)", ast.unparse(values)) is not None


def faults(literal: Literal, fields: tuple[str, ...]) -> list[str]:
    """What is wrong with the value's fields. A value that bears the name of another field stands at the wrong place."""
    where = f"{literal.module}:{literal.line}: {literal.class_name}"
    if _is_other_value_with_new_head(literal.values):
        return []
    if not isinstance(literal.values, ast.Tuple) or any(
        isinstance(value, ast.Starred) for value in literal.values.elts
    ):
        return [f"{where}: not a tuple with all of its values"]
    values = literal.values.elts
    if len(values) != len(fields):
        return [f"{where}: {len(values)} values for {len(fields)} fields"]
    names = [ast.unparse(value).rpartition(".")[2] for value in values]
    return [
        f"{where}: {name} stands at the place of {field}"
        for name, field in zip(names, fields, strict=True)
        if name in fields and name != field and names.count(name) == 1
    ]


def _found(repository: Path) -> list[Literal]:
    root = repository / SOURCE
    found: list[Literal] = []
    for path in sorted(root.glob("pinlater/**/*.py")):
        if "tuple.__new__" in (text := path.read_text()):
            found += literals(text, ".".join(path.relative_to(root).with_suffix("").parts))
    return found


def test_each_value_that_is_made_without_its_classs_call_has_the_classs_fields(repository: Path) -> None:
    """A field more or less would move all that follow."""
    found = _found(repository)
    wrong = [
        fault for each in found for fault in faults(each, getattr(import_module(each.module), each.class_name)._fields)
    ]
    assert wrong == []
    assert len({each.module for each in found}) >= 10


def test_no_class_that_is_made_so_does_more_than_its_fields_say(repository: Path) -> None:
    """`tuple.__new__` runs no `__new__` of the class."""
    for each in _found(repository):
        made = getattr(import_module(each.module), each.class_name)
        assert made.__bases__ == (tuple,)
        assert made.__init__ is object.__init__


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("make = tuple.__new__\nmake(Pair, (a.one, a.two))", None),
        ("x, make = 1, tuple.__new__\nmake(Pair, (1, 2))", None),
        ("tuple.__new__(Pair, (1,))", "1 values for 2 fields"),
        ("_new = tuple.__new__\n_new(Pair, (1, 2, 3))", "3 values for 2 fields"),
        ("tuple.__new__(Pair, (a.two, a.one))", "two stands at the place of one"),
        ("tuple.__new__(Pair, values)", "not a tuple with all of its values"),
        ("tuple.__new__(Pair, (one, *pair[1:]))", None),
        ("tuple.__new__(Pair, (one, *pair[2:]))", "not a tuple with all of its values"),
        ("tuple.__new__(Pair, (*head, 2))", "not a tuple with all of its values"),
    ],
)
def test_a_value_with_other_fields_is_found(text: str, fault: str | None) -> None:
    [literal] = literals(text, "example")
    assert literal.class_name == "Pair"
    found = faults(literal, ("one", "two"))
    assert fault in found[0] if fault else not found


_VALUES = {"ack", "call", "checkpoint", "claim", "holder", "job", "key", "order", "request"}


def test_parts_of_values_have_names_and_no_positions() -> None:
    """As `job.unique`, not `job[7]`: a reader, and a search for a field, find it."""
    by_position = [
        f"{path}:{node.lineno}: {ast.unparse(node)}"
        for path in sorted((SOURCE / "pinlater/server").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and node.value.id in _VALUES
        and isinstance(node.slice, ast.Constant)
        and isinstance(node.slice.value, int)
    ]
    assert by_position == []
