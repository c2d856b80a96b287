"""The reference page explains each setting."""

from __future__ import annotations

from pinlater.server.config.schema import keys
from scripts.reference.settings import tables_of_keys


def test_every_setting_is_explained() -> None:
    """A field needs a docstring."""
    rows = [line for line in tables_of_keys().splitlines() if line.startswith("| `")]
    silent = [row for row in rows if row.endswith("|  |")]
    assert silent == []
    assert len(rows) > len(keys())
