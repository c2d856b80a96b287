"""Code outside the stores and their declarations does not ask which kind a store is."""

from __future__ import annotations

import ast
from dataclasses import fields
from pathlib import Path

from pinlater.server.config.kinds import EMBEDDED, SHARDED
from pinlater.server.config.settings import Settings

SOURCES = Path(__file__).parents[2] / "src/pinlater"
MAY_ASK = ("server/storage/", "server/config/kinds/", "server/config/original.py", "import_original/")
"""The last two read files and databases of the original, which have names of their own."""


def test_no_other_code_compares_the_name_of_a_kind() -> None:
    asking = [
        f"{path.relative_to(SOURCES)}:{node.lineno}"
        for path in sorted(SOURCES.rglob("*.py"))
        if not str(path.relative_to(SOURCES)).startswith(MAY_ASK)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Compare) and {*EMBEDDED, *SHARDED} & _texts(node)
    ]
    assert asking == []


def _texts(compared: ast.Compare) -> set[object]:
    return {node.value for node in ast.walk(compared) if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_the_settings_of_a_kind_are_in_the_table_of_its_name() -> None:
    assert set(SHARDED) <= {field.name for field in fields(Settings)}
