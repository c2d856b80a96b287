"""Checks the types of code that isn't a part of the package: what the docs and the examples show."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.house.conftest import REPOSITORY

# Examples use frameworks without types of their own.
_UNTYPED = ("--disable-error-code", "import-untyped", "--allow-subclassing-any")


def assert_types_hold(files: Sequence[Path], folder: Path) -> None:
    """As strictly as our own code, with `folder` as where modules are looked for; fails with what the checker says."""
    settings: list[str | Path] = ["--config-file", REPOSITORY / "pyproject.toml"]
    settings += ["--cache-dir", REPOSITORY / ".mypy_cache"]
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", *settings, *_UNTYPED, *files],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout + checked.stderr
