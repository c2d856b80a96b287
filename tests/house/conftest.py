"""Fixtures of the tests about the repository: its root and its tracked files."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def tracked_files(repository: Path) -> list[Path]:
    """All files that git tracks and that are there."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=repository, capture_output=True, check=True, text=True)
    return [path for name in listed.stdout.split("\0") if name and (path := repository / name).is_file()]


def need_thrift_compiler() -> None:
    """Skips where there is no `thrift`; CI must have one."""
    need_program("thrift", "thrift-compiler")


def need_program(name: str, package: str) -> None:
    """Skips where the program is missing; CI must have it. `package`: of Debian."""
    if shutil.which(name) is None:
        message = f"no {name} (Debian: {package})"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
