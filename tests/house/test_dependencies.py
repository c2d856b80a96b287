"""Private parts of other packages: those that the code uses exist, and no newer version with others is installed unseen."""

from __future__ import annotations

import asyncio
import re
import tomllib
from pathlib import Path
from typing import Any

import asyncmy.connection
import pytest
from redis.asyncio.connection import Connection as RedisConnection
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

SOURCES = Path("src/pinlater")
# The private names on the left are used of an unopened connection of the driver, or of uvicorn's protocol of a connection.
MODULES = {
    "asyncmy": ("server/storage/mysql/connection.py", r"raw\.(_\w+)"),
    "redis": ("server/storage/redis/connection.py", r"raw\.(_\w+)"),
    "uvicorn": (
        "console/connection.py",
        r"super\(\)\.(?!__)(\w+)|\bself\.(cycle|flow|timeout_keep_alive_task|client|loop|transport)\b",
    ),
}


def unopened(package: str) -> Any:
    """What the package has for a connection before it is open."""
    if package == "asyncmy":
        return asyncmy.connection.Connection()  # type: ignore[no-untyped-call]
    if package == "redis":
        return RedisConnection()
    return H11Protocol(Config(None, log_config=None), ServerState(), {}, asyncio.get_running_loop())  # type: ignore[arg-type]


@pytest.mark.parametrize("package", MODULES)
async def test_the_private_parts_of_a_package_that_the_code_uses_exist(package: str, repository: Path) -> None:
    module, used = MODULES[package]
    found = re.findall(used, (repository / SOURCES / module).read_text())
    names = {"".join(groups) if isinstance(groups, tuple) else groups for groups in found}
    assert len(names) > 1
    connection = unopened(package)
    assert [name for name in sorted(names) if not hasattr(connection, name)] == []


@pytest.mark.parametrize("package", MODULES)
def test_a_package_whose_private_parts_are_used_has_an_upper_bound(package: str, repository: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    requirements = [
        *project["dependencies"],
        *(one for extra in project["optional-dependencies"].values() for one in extra),
    ]
    [requirement] = [one for one in requirements if re.match(rf"{package}\b", one)]
    assert "<" in requirement
